"""Steps of a voter, and stores that are written, closed and opened again."""

from __future__ import annotations

import os
from pathlib import Path

from nngkit.cluster.election.values import Persist, Restored, SaveEntries, SaveMeta
from nngkit.cluster.shell.store import VoterStore

STEPS: list[list[Persist]] = [
    [SaveMeta(1, 1, "a", (("a", 5), ("b", 6)))],
    [SaveEntries(2, 1, 1, (b"", b"two", b"three"))],
    [SaveMeta(3, 2, None, ()), SaveEntries(4, 3, 2, (b"another three", b"four"))],
    [SaveEntries(5, 5, 2, (b"x" * 100_000,))],
]


def stored(path: Path, groups: list[list[Persist]]) -> Restored | None:
    """Write the groups; return what is there when the store is opened again."""
    store = VoterStore(path)
    store.open()
    for steps in groups:
        assert store.write(steps) == max(step.token for step in steps)
    store.close()
    return reopened(path)


def reopened(path: Path, owner: tuple[str, str] | None = None) -> Restored | None:
    store = VoterStore(path, owner)
    try:
        return store.open()
    finally:
        store.close()


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))
