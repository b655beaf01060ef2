"""The pairs of `outages.py`, and the process that runs one end of all of them: ``_child.py _outage_pairs:run TASK``."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import _fault_rooms as shared
import _outage_bricks as bricks
import _outage_rooms as rooms
import trio
from _outage_bricks import End
from _outage_records import Notes

import nngkit.protocols._core.peer_watch as peer_watch
from _child import report
from nngkit import trust

Role = Callable[..., Awaitable[None]]


@dataclass(frozen=True)
class Pair:
    """Two ends. `near`: on the host that loses power or its address. `near_listens`: it listens, and the other dials.

    `tells`: every loss is reported to the reader, or there is none. `resumes`: see `Ledger`.
    """

    name: str
    near: Role
    far: Role
    near_listens: bool = True
    scheme: str = "tcp"
    tells: bool = True
    resumes: bool = False


def _bricks() -> list[Pair]:
    found = []
    for scheme in ("tcp", "ws", "tls+tcp", "wss"):
        end = "" if scheme == "tcp" else f", {scheme.removesuffix('+tcp')}"
        for listens in (True, False):
            word = "listens" if listens else "dials"
            found.append(Pair(f"Push {word}, Pull{end}", bricks.push, bricks.pull, listens, scheme, tells=False))
            found.append(Pair(f"Pub {word}, Sub{end}", bricks.publish, bricks.subscribe, listens, scheme))
    return found


PAIRS: Final = (
    *_bricks(),
    Pair("Pair1", bricks.pair, bricks.pair, tells=False),
    Pair("Bus", bricks.bus, bricks.bus, tells=False),
    Pair("Rep, Req", bricks.reply, bricks.request),
    Pair("Surveyor, Respondent", bricks.survey, bricks.respond),
    Pair("Publisher, Subscriber", shared.publisher, shared.subscriber),
    Pair("Publisher, Recorder, Following", shared.publisher, rooms.following),
    Pair("Push, Recorder", bricks.push, rooms.recorder, tells=False),
    Pair("ConsumerServer, Consumer", shared.consumer_server, shared.consumer, resumes=True),
    Pair("OutboxReceiver, Outbox", shared.outbox_receiver, shared.outbox),
    Pair("Mesh", shared.mesh, shared.mesh),
    Pair("Daemon, Service", rooms.daemon, rooms.service),
    Pair("Daemon, Resolver", rooms.changing_service, rooms.resolver, tells=False),
    Pair("Server, Client", rooms.server, rooms.client),
    Pair("DocumentPeer", rooms.writer, rooms.reader),
    Pair("DocumentPeer, ws", rooms.writer, rooms.reader, scheme="ws"),
    Pair("Host, Member, jobs", rooms.host, rooms.member),
    Pair("Push, device, Pull", bricks.push, rooms.device, tells=False),
)


async def run(task: dict[str, Any]) -> None:
    """Run one end of pairs until the process is killed. `near`: which; `pairs`: their numbers; `old`: as a kernel
    without TCP_RTO_MAX_MS."""
    if task["old"]:
        peer_watch.TCP_RTO_MAX_MS = None
    trust.use("open")  # two hosts without strangers
    folder = Path(task["folder"])
    logging.basicConfig(
        filename=folder / f"{task['name']}.log", level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s"
    )
    notes = Notes(str(folder / f"{task['name']}-{time.time_ns()}.notes"))
    async with trio.open_nursery() as nursery:
        for number in task["pairs"]:
            own = folder / f"{task['name']}-{number}"
            own.mkdir(exist_ok=True)
            nursery.start_soon(_end, task, number, own, notes)
        report(url="")


async def _end(task: dict[str, Any], number: int, folder: Path, notes: Notes) -> None:
    pair = PAIRS[number]
    port = task["port"] + 10 * number
    here, there, certificates, near = (task[key] for key in ("here", "there", "certificates", "near"))
    run, listens = time.time_ns(), pair.near_listens == near
    end = End(number + task["offset"], here, there, port, pair.scheme, run, folder, certificates, notes, listens)
    try:
        await (pair.near if near else pair.far)(end)
    except Exception:  # the other pairs go on; this one does not come back
        logging.getLogger("outages").exception("%s has failed", pair.name)
