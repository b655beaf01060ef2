"""A transparent content for tests: the set of its edits, each with its causal history.

An update is a list of edit names, and so is a state; a single edit is marked as such. Applying an edit before its
dependencies is an error of the caller, and ends the test.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from nngkit import envelope
from nngkit.documents.versions import Edit, EditStream, Versions, merge

ONE = envelope.encode({"edit": 0})[:-1]  # beginning of a single edit
Name = tuple[bytes, int, int]  # origin, epoch, number


class Plain:
    """A `local_copy.Content`. `saw`, shared by all contents of a document, maps each edit to its causal history."""

    def __init__(self, saw: dict[Name, frozenset[Name]]) -> None:
        self.saw = saw
        self.names: frozenset[Name] = frozenset()
        self.applied: list[Name] = []  # one by one

    def write(self, stream: EditStream, seq: int) -> bytes:
        """Write a local edit; return it as an update."""
        name = (*stream, seq)
        assert name not in self.saw, "a number was used twice"
        self.saw[name] = self.names
        self.names |= {name}
        return envelope.encode({"edit": [name]})

    def apply(self, update: bytes, origin: object = None) -> bool:
        names = frozenset(read(update))
        if any(name not in self.saw for name in names):
            raise ValueError("this edit was never written")
        if update.startswith(ONE):  # merged updates may repeat edits
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
        """Return the versions of the content; fails if a stream has a gap."""
        found: Versions = {}
        for origin, epoch, seq in self.names:
            found = merge(found, {EditStream(origin, epoch): seq})
        assert len(self.names) == sum(found.values()), "there are holes in it"
        return found


def read(data: bytes) -> list[Name]:
    """Decode the names in an update or state. Raises ValueError."""
    try:
        value = envelope.decode(data, what="plain", limit=1 << 24)
        return [(origin, epoch, seq) for origin, epoch, seq in (value["edit"] if data.startswith(ONE) else value)]
    except Exception as error:
        raise ValueError(f"not an update: {error}") from error


class Lenient(Plain):
    """A content that takes edits in any order and under any number, as lies are among them, but refuses some."""

    def __init__(self, refused: set[bytes]) -> None:
        super().__init__({})
        self.refused = refused

    def apply(self, update: bytes, origin: object = None) -> bool:
        if update in self.refused:
            raise ValueError("this edit is refused")
        before = self.names
        self.names |= frozenset(read(update))
        return self.names != before


class Disk:
    """An `EditLog`: the written edits of one document, and how many are synced."""

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
        """Return the updates that survive a crash."""
        return [update for _, update, _ in self.entries[: self.safe] if update]

    def load(self) -> tuple[Versions, list[bytes], list[tuple[EditStream, int, Edit]]]:
        """Return versions, updates in order, and the edits among them."""
        versions: Versions = {}
        for has, _, _ in self.entries:
            versions = merge(versions, has)
        return (
            versions,
            [update for _, update, _ in self.entries if update],
            [record for _, _, record in self.entries if record is not None],
        )
