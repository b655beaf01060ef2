"""Processes of the rooms for `faults.py`: ``_child.py _fault_ends:run TASK`` runs one until it is killed.

A sender notes SENT before it sends, and KEPT once the message is acknowledged; a receiver notes READ. Errors that a
room raises for one message are noted (FAILED), and the program goes on, as a careful one does; those that end a room's
block end the program. When the file ``stop`` appears, senders end, and note DONE.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, Final

import trio
from _fault_syscalls import die_with_parent, fail_writes
from _outage_bricks import PACE
from _outage_records import SENT, Notes

KEPT: Final = b"K"  # acknowledged: the room has promised to keep it
SETTLED: Final = b"A"  # the receiver has acknowledged it, for good
RAN: Final = b"N"  # a handler has begun with it
FAILED: Final = b"F"  # an error was raised for it
DONE: Final = b"D"  # the sender has ended; the number is 0
log = logging.getLogger("faults")
PAD: Final = 256 << 10  # bytes added to messages where memory is to be used up


@dataclass
class End:
    """One process. `ports`: addresses that it may listen at, by a number that all processes know."""

    role: str
    ports: list[str]
    folder: Path
    notes: Notes
    task: dict[str, Any]
    run: int = field(default_factory=time.monotonic_ns)  # not the wall clock, which may jump

    @property
    def data(self) -> Path:
        """Folder of what it keeps, across restarts."""
        return self.folder / "data" / self.role

    @property
    def stopping(self) -> bool:
        return (self.folder / "stop").exists()

    @property
    def pad(self) -> bytes:
        return bytes(PAD) if (self.folder / "large").exists() else b""

    def note(self, kind: bytes, number: int = 0, *, channel: int = 0, run: int = 0) -> None:
        self.notes.write(kind, channel, run or self.run + channel, number)

    def body(self, number: int, channel: int) -> bytes:
        """Note that a message is sent now; return it. Each channel of a process is a run of its own."""
        self.note(SENT, number, channel=channel)
        return (self.run + channel).to_bytes(8, "big") + number.to_bytes(8, "big")

    def seen(self, kind: bytes, body: bytes, channel: int = 0) -> None:
        """Note a message that has come."""
        run, number = (int.from_bytes(body[at : at + 8], "big") for at in (0, 8))
        self.note(kind, number, channel=channel, run=run)

    async def paced(
        self,
        send: Callable[[bytes], Awaitable[object]],
        channel: int = 0,
        *,
        keeps: bool = False,
        pause: float = PACE,
        last: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint,
    ) -> None:
        """Send numbered messages until it is told to stop; then wait for `last`.

        `keeps`: a message is acknowledged when `send` returns.
        """
        from nngkit import NngkitError

        number = 0
        while not self.stopping:
            number += 1
            try:
                await send(self.body(number, channel))
            except (NngkitError, OSError, MemoryError) as error:
                self.note(FAILED, number, channel=channel)
                log.warning("message %d of channel %d: %r", number, channel, error)
            else:
                if keeps:
                    self.note(KEPT, number, channel=channel)
            await trio.sleep(pause)
        await last()
        self.note(DONE, channel=channel)


def run(task: dict[str, Any]) -> None:
    """Run the process `role` of a room by its `function` in `_fault_rooms`, until it is killed."""
    die_with_parent()
    folder = Path(task["folder"])
    notes = Notes(str(folder / f"{task['role']}-{time.monotonic_ns()}.notes"))
    if task["trigger"]:
        fail_writes(str(folder / "data" / task["role"]), task["trigger"])
    logging.basicConfig(level=logging.INFO, format=f"%(relativeCreated)d {task['role']} %(name)s %(message)s")
    from nngkit import trust

    trust.use("open")  # a host without strangers
    sys.path.append(str(Path(__file__).parent.parent))  # audits of the tests
    import _fault_rooms

    function, end = getattr(_fault_rooms, task["function"]), End(task["role"], task["ports"], folder, notes, task)
    if iscoroutinefunction(function):
        trio.run(function, end)
    else:
        function(end)
