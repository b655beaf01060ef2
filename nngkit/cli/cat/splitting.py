"""Split a byte stream into messages: by a delimiter, or as MessagePack strings. Pure.

::

    lines = Delimited(b"\\n")
    lines.feed(b"one\\ntw")    [b"one"]
    lines.feed(b"o\\nthree")   [b"two"]
    lines.finish()            [b"three"]: the last line needs no delimiter
"""

from __future__ import annotations

from typing import Final, Protocol

LONGEST: Final = 1 << 30  # bytes of a message, as everywhere: input without delimiters must not fill the memory


class Malformed(Exception):
    """The input does not have the expected format."""


class Splitter(Protocol):
    """Splitter of an input that arrives in pieces of any size."""

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the messages that this piece completes."""

    def finish(self) -> list[bytes]:
        """Return the rest at the end of the input. Raises Malformed if it is incomplete."""


class Delimited:
    """Messages that end with `delimiter`, of one byte or more."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._pieces: list[bytes] = []  # of the incomplete message, joined once
        self._length = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the messages that end in the piece."""
        if self._pieces and len(self._delimiter) > 1:  # the delimiter may span two pieces
            piece = b"".join([*self._pieces, piece])
            self._pieces, self._length = [], 0
        first, *others = piece.split(self._delimiter)
        self._pieces.append(first)
        self._length += len(first)
        messages = []
        if others:
            messages = [b"".join(self._pieces), *others[:-1]]
            self._pieces, self._length = [others[-1]], len(others[-1])
        if self._length > LONGEST:
            raise Malformed(f"a message of more than {LONGEST} bytes")
        return messages

    def finish(self) -> list[bytes]:
        """Return the rest after the last delimiter, unless empty."""
        rest = b"".join(self._pieces)
        self._pieces, self._length = [], 0
        return [rest] if rest else []


class Records:
    """Concatenated MessagePack byte strings and text strings, as `--msgpack` prints them."""

    _WIDTHS: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # tag: bytes of the length after it

    def __init__(self) -> None:
        self._rest = bytearray()
        self._read = 0  # bytes of the input before `_rest`, for error messages

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the records that this piece completes. Raises Malformed."""
        self._rest += piece
        messages, position = [], 0
        while (header := self._header(position)) is not None:
            begin, length = header
            if len(self._rest) - begin < length:
                break
            messages.append(bytes(self._rest[begin : begin + length]))
            position = begin + length
        del self._rest[:position]
        self._read += position
        return messages

    def _header(self, position: int) -> tuple[int, int] | None:
        """Return start and length of the next record's bytes; None if its header is incomplete."""
        if position == len(self._rest):
            return None
        tag = self._rest[position]
        if 0xA0 <= tag <= 0xBF:
            return position + 1, tag - 0xA0
        width = self._WIDTHS.get(tag)
        if width is None:
            raise Malformed(f"no MessagePack string at byte {self._read + position}")
        begin = position + 1 + width
        if len(self._rest) < begin:
            return None
        length = int.from_bytes(self._rest[position + 1 : begin], "big")
        if length > LONGEST:
            raise Malformed(f"a message of more than {LONGEST} bytes at byte {self._read + position}")
        return begin, length

    def finish(self) -> list[bytes]:
        """Return no message. Raises Malformed for an incomplete record."""
        if self._rest:
            raise Malformed(f"ends inside the record at byte {self._read}")
        return []
