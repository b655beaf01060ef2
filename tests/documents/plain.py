"""A content so plain that all its mistakes are seen: the set of edits that are in it, each with all that it knew.

An update is a list of edits' names, and so is a state; one edit, as it was written, says that it is one. Taking an edit
in before one that its author had seen is an error of whoever asked for it, and ends the test.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from nngkit import envelope
from nngkit.documents.versions import Edit, EditStream, Versions, merge

ONE = envelope.encode({"edit": 0})[:-1]  # how one edit begins, as it is delivered
Name = tuple[bytes, int, int]  # origin, epoch, number


class Plain:
    """`local.Content`. `saw`, shared by all contents of one document, has for each edit what its author had seen."""

    def __init__(self, saw: dict[Name, frozenset[Name]]) -> None:
        self.saw = saw
        self.names: frozenset[Name] = frozenset()
        self.applied: list[Name] = []  # one by one

    def write(self, stream: EditStream, seq: int) -> bytes:
        """An edit of our own, as an update."""
        name = (*stream, seq)
        assert name not in self.saw, "a number was used twice"
        self.saw[name] = self.names
        self.names |= {name}
        return envelope.encode({"edit": [name]})

    def apply(self, update: bytes, origin: object = None) -> bool:
        names = frozenset(read(update))
        if any(name not in self.saw for name in names):
            raise ValueError("nobody wrote this")
        if update.startswith(ONE):  # what comes as a whole may come again
            assert not names & self.names, "delivered twice"
            self.applied += names
        after = self.names | names
        for name in names:
            assert self.saw[name] <= after, f"{name} was taken in before something that its author had seen"
        changed = after != self.names
        self.names = after
        return changed

    def changes_since(self, state: bytes | None = None) -> bytes:
        had = frozenset() if state is None else frozenset(read(state))
        return envelope.encode(sorted(self.names - had))

    def merge(self, updates: Sequence[bytes]) -> bytes:
        assert updates
        return envelope.encode(sorted({name for update in updates for name in read(update)}))

    def state(self) -> bytes:
        return envelope.encode(sorted(self.names))

    def digest(self) -> bytes:
        return hashlib.sha256(self.state()).digest()[:16]

    def versions(self) -> Versions:
        """What they are the content of. They must be all from 1 to the last of each stream."""
        found: Versions = {}
        for origin, epoch, seq in self.names:
            found = merge(found, {EditStream(origin, epoch): seq})
        assert len(self.names) == sum(found.values()), "there are holes in it"
        return found


def read(data: bytes) -> list[Name]:
    """The names in an update or state. ValueError."""
    try:
        value = envelope.decode(data, what="plain", limit=1 << 24)
        return [(origin, epoch, seq) for origin, epoch, seq in (value["edit"] if data.startswith(ONE) else value)]
    except Exception as error:
        raise ValueError(f"not an update: {error}") from error


class Disk:
    """`local.Disk`: what has been written of one document, and how much of it is safe."""

    def __init__(self) -> None:
        self.entries: list[tuple[Versions, bytes, tuple[EditStream, int, Edit] | None]] = []
        self.safe = 0

    def append(self, stream: EditStream, seq: int, edit: Edit) -> None:
        self.entries.append(({stream: seq}, edit.payload, (stream, seq, edit)))

    def append_merge(self, update: bytes, versions: Versions) -> None:
        self.entries.append((dict(versions), update, None))

    def sync(self) -> None:
        self.safe = len(self.entries)

    def crash(self) -> None:
        del self.entries[self.safe :]

    def safely(self) -> list[bytes]:
        """Updates that will be there after a crash."""
        return [update for _, update, _ in self.entries[: self.safe] if update]

    def load(self) -> tuple[Versions, list[bytes], list[tuple[EditStream, int, Edit]]]:
        """Versions, updates in their order, and the edits among them."""
        versions: Versions = {}
        for has, _, _ in self.entries:
            versions = merge(versions, has)
        return (
            versions,
            [update for _, update, _ in self.entries if update],
            [record for _, _, record in self.entries if record is not None],
        )
