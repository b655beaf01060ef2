"""Edits of other peers that the content could not take, and all that follow them. Pure.

A refused edit has not been received: versions end before it, so that no peer takes it for stored. Neither have the
later edits of its stream, nor those that depend on it, whose places may be in it::

    >>> ada, bob = EditStream(b"aaaaaaaa", 1), EditStream(b"bbbbbbbb", 1)
    >>> refused = RefusedEdits()
    >>> refused.add(ada, 3, "XML")
    True
    >>> refused.reason(ada, 2, {}), refused.reason(ada, 4, {}), refused.reason(bob, 1, {ada: 3})
    (None, 'XML', 'it follows a refused edit: XML')
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from nngkit.documents.versions import STREAMS, EditStream

FOLLOWS: Final = "it follows a refused edit: "
LONGEST: Final = 200  # characters of a reason


@dataclass(frozen=True, slots=True)
class RefusedEdit:
    """The first refused edit of a stream, and the reason."""

    stream: EditStream
    seq: int
    why: str

    @property
    def follows(self) -> bool:
        """True if it was refused because it depends on another one."""
        return self.why.startswith(FOLLOWS)


class RefusedEdits:
    """The first refused edit of each stream; of the newest 1,024 streams. A forgotten one is refused again."""

    def __init__(self) -> None:
        self._first: OrderedDict[EditStream, RefusedEdit] = OrderedDict()

    def __iter__(self) -> Iterator[RefusedEdit]:
        return iter(self._first.values())

    def get(self, stream: EditStream) -> RefusedEdit | None:
        """Return the first refused edit of `stream`."""
        return self._first.get(stream)

    def limit(self, stream: EditStream, seq: int) -> int:
        """Return `seq`, or the number before the first refused edit of `stream` if that is less."""
        known = self._first.get(stream)
        return seq if known is None else min(seq, known.seq - 1)

    def reason(self, stream: EditStream, seq: int, deps: Mapping[EditStream, int]) -> str | None:
        """Return why edit `seq` of `stream` with `deps` is refused unseen; None: it may be tried."""
        if not self._first:
            return None
        known = self._first.get(stream)
        if known is not None and seq >= known.seq:
            return known.why
        found = self.among(deps)
        return None if found is None else FOLLOWS + found.why.removeprefix(FOLLOWS)

    def among(self, versions: Mapping[EditStream, int]) -> RefusedEdit | None:
        """Return a refused edit that `versions` include; None if there is none."""
        for one in self._first.values():
            if versions.get(one.stream, 0) >= one.seq:
                return one
        return None

    def add(self, stream: EditStream, seq: int, why: str) -> bool:
        """Record a refused edit. Returns False if this or an earlier one of the stream was known."""
        known = self._first.get(stream)
        if known is not None and known.seq <= seq:
            return False
        self._first[stream] = RefusedEdit(stream, seq, why[:LONGEST])
        if len(self._first) > STREAMS:
            self._first.popitem(last=False)
        return True

    def forget(self, code: str) -> bool:
        """Forget refusals whose reason begins with `code`, and those that follow from them. Returns True for any."""
        found = [one for one in self._first.values() if one.why.removeprefix(FOLLOWS).startswith(code)]
        for one in found:
            del self._first[one.stream]
        return bool(found)

    def received(self, stream: EditStream, seq: int) -> None:
        """Forget what another peer's update has brought after all, and all refusals that followed from others."""
        known = self._first.get(stream)
        if known is None or seq < known.seq:
            return
        del self._first[stream]
        for one in [one for one in self._first.values() if one.follows]:
            del self._first[one.stream]
