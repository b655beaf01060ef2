"""Cells of `faults.py`: faults, rooms, the processes that are hit, and the cells that do not apply, with the reason.

Pure data, read by the harness and by `_page.py`, which writes docs/reliability.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

FAULTS: Final = {
    "SIGKILL": "the process is killed, and started again",
    "SIGSTOP 30 s": "the process stands still for 30 s",
    "ENOSPC": "the file system of its folder is full for some seconds, to the last byte",
    "EIO": "writes and syncs in its folder fail for some seconds with an I/O error",
    "clock +1 day": "its clock jumps a day ahead, and stays there; one seed of three then restarts it",
    "clock -1 day": "its clock jumps a day back, and stays there; one seed of three then restarts it",
    "out of descriptors": "it can open no descriptor for some seconds; strangers connect, or it has to dial again",
    "memory limit": "it can map no more memory for some seconds; bodies of messages have 256 KiB meanwhile",
}
DISK: Final = ("ENOSPC", "EIO")
NO_DISK: Final = "keeps nothing on disk"


@dataclass(frozen=True)
class Room:
    """A room's processes. `hit`: those hit in turn, by seed; `stores`: the one that is hit where a disk fails, if any.

    `roles`: functions of `_fault_rooms`, by the name of the process, in the order of their start. `ways`: channels on
    which a receiver notes messages: one that was sent after the fault has to come on each. `said`: the promise. `ends`:
    faults after which the program may end by itself, as its page says, to be started again by its supervisor.
    `reopened`: processes that look at the stores in the end, each alone.
    """

    name: str
    roles: dict[str, str]
    hit: tuple[str, ...]
    ways: tuple[int, ...]
    said: str
    stores: str | None = None
    ends: tuple[str, ...] = ()
    reopened: dict[str, str] = field(default_factory=dict)

    def hits(self, fault: str, seed: int) -> str | None:
        """Return the process that is hit; None if the cell does not apply."""
        return self.stores if fault in DISK else self.hit[(seed - 1) % len(self.hit)]


MEMORY: Final = "memory limit"
ROOMS: Final = (
    Room(
        "discovery",
        {"daemon": "daemon", "other": "daemon", "clock": "changing_service", "resolver": "resolver"},
        ("daemon",),
        (0, 1),
        "no `resolve` fails while one daemon of two is hit; both know the newest state afterwards",
        ends=(MEMORY,),
    ),
    Room(
        "calls",
        {"daemon": "daemon", "one": "server", "two": "server", "client": "client"},
        ("one",),
        (0, 2),
        "no idempotent call fails while one server of two is hit; other calls are run at most once",
        ends=(MEMORY,),
    ),
    Room(
        "numbered fan-out",
        {"publisher": "publisher", "subscriber": "subscriber"},
        ("publisher", "subscriber"),
        (0,),
        "each message comes once, or the subscriber is told how many are missing",
        ends=(MEMORY,),
    ),
    Room(
        "consumers",
        {"server": "consumer_server", "consumer": "consumer"},
        ("server", "consumer"),
        (0,),
        "each stored record is delivered; after `ack` has returned, never again",
        stores="server",
        ends=(MEMORY,),
    ),
    Room(
        "outbox",
        {"receiver": "outbox_receiver", "sender": "outbox"},
        ("sender", "receiver"),
        (0,),
        "each value whose `put` has returned is received, once",
        stores="sender",
        ends=(MEMORY,),
    ),
    Room(
        "mesh",
        {"middle": "mesh", "left": "mesh", "right": "mesh"},
        ("middle", "left"),
        (1, 3, 6, 2),
        "each message comes once to each node, or the node is told of the gap; three nodes in a line",
        ends=(MEMORY,),
    ),
    Room(
        "documents",
        {"one": "document", "two": "document"},
        ("one",),
        (0, 1),
        "each edit whose `durable` has returned is in both stores in the end",
        stores="one",
        ends=(MEMORY, *DISK),
        reopened={"two": "document_store", "one": "document_store"},
    ),
    Room(
        "cluster",
        {"a": "voter", "b": "voter", "c": "voter", "submitter": "submitter"},
        ("a", "c"),
        (0,),
        "each accepted job ends, and its result comes once; three voters with stores, of which one is hit",
        stores="a",
        ends=(MEMORY, *DISK),
    ),
    Room(
        "journal",
        {"recorder": "recorder", "load": "load"},
        ("recorder",),
        (0,),
        "each acknowledged request is in the journal, once with `distinct`; all files are good",
        stores="recorder",
        ends=(MEMORY,),
    ),
)


def reason(room: Room, fault: str) -> str | None:
    """Return why a cell does not apply; None if it does."""
    return NO_DISK if fault in DISK and room.stores is None else None
