"""Reading a CBOR array item by item, each with its expected type. Pure; used by `wire.py`.

    >>> reader = WireReader([7, "minutes"], "example", None)
    >>> reader.whole(), reader.doc()
    (7, 'minutes')

Each mismatch raises BadMessage with the place of the item. Items after those that are read are a later version's, and
are ignored.
"""

from __future__ import annotations

from typing import Any, Final

from nngkit import envelope
from nngkit.documents.names import check_name
from nngkit.documents.sync.messages import TEXT, VERSION
from nngkit.documents.versions import EditStream, Versions, from_wire, seq_from, stream_from
from nngkit.errors import BadMessage, ConfigError

__all__ = ["VERSION_WHAT", "WireReader"]

VERSION_WHAT: Final = "documents protocol version"
"""`what` of the BadMessage for a newer protocol version."""


class WireReader:
    """The items of one array, read in order."""

    __slots__ = ("at", "items", "peer", "what")

    def __init__(self, items: list[Any], what: str, peer: str | None) -> None:
        self.items, self.what, self.peer, self.at = items, what, peer, 0

    def bad(self, why: str) -> BadMessage:
        return BadMessage(self.what, why, self.peer)

    def next(self) -> Any:
        if self.at >= len(self.items):
            raise self.bad(f"it has {len(self.items)} items, too few")
        self.at += 1
        return self.items[self.at - 1]

    def of(self, kind: type) -> Any:
        value = self.next()
        if type(value) is not kind:
            raise self.bad(f"item {self.at} must be {kind.__name__}, not {type(value).__name__}")
        return value

    def blob(self, size: int | None = None) -> bytes:
        value: bytes = self.of(bytes)
        if size is not None and len(value) != size:
            raise self.bad(f"item {self.at} must be {size} bytes, not {len(value)}")
        return value

    def blob_or_none(self, size: int | None = None, most: int | None = None) -> bytes | None:
        if self.at < len(self.items) and self.items[self.at] is None:
            self.at += 1
            return None
        value = self.blob(size)
        if most is not None and len(value) > most:
            raise self.bad(f"item {self.at} has {len(value)} bytes, over the limit of {most}")
        return value

    def whole(self, low: int = 0, high: int = 2**53 - 1) -> int:
        value: int = self.of(int)
        if not low <= value <= high:
            raise self.bad(f"item {self.at} is out of range")
        return value

    def text(self, most: int = TEXT) -> str:
        value: str = self.of(str)
        if len(value.encode(errors="replace")) > most:
            raise self.bad(f"item {self.at} is longer than {most} bytes")
        return value

    def text_or_none(self) -> str | None:
        if self.at < len(self.items) and self.items[self.at] is None:
            self.at += 1
            return None
        return self.text()

    def doc(self) -> str:
        try:
            return check_name(self.of(str))
        except ConfigError as refused:
            raise self.bad(envelope.shown(refused)) from refused

    def stream(self) -> EditStream:
        return stream_from(self.next(), what=self.what, peer=self.peer)

    def seq(self) -> int:
        return seq_from(self.next(), what=self.what, peer=self.peer)

    def versions(self) -> Versions:
        return from_wire(self.next(), what=self.what, peer=self.peer)

    def entries(self, most: int, least: int = 0) -> list[Any]:
        value: list[Any] = self.of(list)
        if not least <= len(value) <= most:
            raise self.bad(f"item {self.at} has {len(value)} entries, not {least} to {most}")
        return value

    def each(self, most: int, least: int = 0) -> list[WireReader]:
        entries = self.entries(most, least)
        for entry in entries:
            if type(entry) is not list:
                raise self.bad(f"an entry of item {self.at} must be a list, not {type(entry).__name__}")
        return [WireReader(entry, self.what, self.peer) for entry in entries]

    def fields(self) -> dict[str, Any]:
        value: dict[str, Any] = self.of(dict)
        envelope.check_version(value, VERSION, what=VERSION_WHAT, peer=self.peer)
        return value

    def addresses(self, fields: dict[str, Any], name: str, most: int) -> tuple[str, ...]:
        """Return a list of addresses from a map; empty if absent."""
        entries = envelope.field(fields, name, list, what=self.what, peer=self.peer, default=[], max_len=most)
        reader = WireReader(entries, f"{self.what}: {name}", self.peer)
        found = tuple(reader.text() for _ in entries)
        if unusable := next((each for each in found if not envelope.is_address(each)), None):
            raise reader.bad(f"it has no address, but {envelope.shown(unusable)}")
        return found

    def lists(self, fields: dict[str, Any], name: str, most: int) -> list[WireReader]:
        """Return a list of lists from a map; empty if absent."""
        entries = envelope.field(fields, name, list, what=self.what, peer=self.peer, default=[])
        return WireReader([entries], f"{self.what}: {name}", self.peer).each(most)

    def names(self, fields: dict[str, Any], name: str, most: int) -> tuple[str, ...]:
        """Return a list of document names from a map; empty if absent."""
        entries = envelope.field(fields, name, list, what=self.what, peer=self.peer, default=[], max_len=most)
        reader = WireReader(entries, f"{self.what}: {name}", self.peer)
        return tuple(reader.doc() for _ in entries)

    def label(self, fields: dict[str, Any]) -> str | None:
        name: str | None = envelope.field(
            fields, "name", str, what=self.what, peer=self.peer, default=None, max_len=TEXT
        )
        return None if name is None else envelope.shown(name)
