"""Replay a recorded editing trace through real peers, and compare the result with the recorded end.

    .venv/bin/python benchmarks/_replay_trace.py FILE [--peers N] [--transport tcp|ipc|inproc|ws] [--timeout S] [--json]

The peers are DocumentPeers of this process, each with sockets of its own, connected to each other. A single author
types at the first peer, edit by edit. Several authors sit at a peer each: an edit was typed into a document that had
exactly its parents (_trace_drafts.py), and enters at its author's peer once that has them, while the others write.

All peers are compared with each other by content, always, and the text with the recorded end. The order of concurrent
insertions at one place is the CRDT's choice, and another CRDT made the record. So if the end differs, other orders of
the authors are tried (all, for up to three authors). If one of them gives the recorded end, the peers replay it, and
`determined` is false. If orders differ and none gives it, the characters are compared without their order, and `text`
is "undetermined".

Exit codes: 0 equal or undetermined, 1 another end, 2 usage or an invalid trace.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import trio
from _trace import BadTrace, Trace, check_lengths, parsed
from _trace_drafts import BODY, Drafted, draft, orders

from nngkit.documents import Document, DocumentPeer
from nngkit.documents.versions import EditStream, covers
from nngkit.errors import TimedOut

DOCUMENT: Final = "replay"
TURN: Final = 64  # edits between two checkpoints of the loop; a message of the BUS holds as many
AHEAD: Final = 2048  # edits that the others may lack: half of what a peer keeps to answer for single edits
POLL: Final = 0.05  # seconds: events report most changes, polling the rest


@dataclass(frozen=True, slots=True)
class Plan:
    """The trace to type. `order`: of the authors. `determined`: False if the end depends on it, None if not tried."""

    trace: Trace
    drafted: Drafted | None
    order: tuple[int, ...]
    determined: bool | None
    seconds: float


@dataclass(slots=True)
class Run:
    """Result of a replay. `typing`, `converging`: seconds. `bytes`: of all peers, on the BUS and in replies."""

    texts: Sequence[str]
    alike: bool
    typing: float
    converging: float
    bytes: int
    messages: int
    asked: int
    gaps: int


def main() -> int:
    """Read, type and compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="the trace: JSON, also gzipped")
    parser.add_argument("--peers", type=int, choices=range(1, 65), default=2, metavar="N", help="from 1 to 64")
    parser.add_argument("--transport", choices=("tcp", "ipc", "inproc", "ws"), default="tcp")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds without any progress")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    try:
        planned = plan(parsed(Path(arguments.file).read_bytes()))
    except (OSError, BadTrace) as error:
        parser.exit(2, f"{arguments.file}: {error}\n")

    async def work() -> Run:
        async with _mesh(arguments.peers, arguments.transport) as peers:
            return await _run(planned, peers, arguments.timeout)

    fields = _fields(planned, trio.run(work), arguments)
    print(json.dumps(fields) if arguments.json else _text(fields))
    return 0 if fields["ok"] else 1


def plan(trace: Trace) -> Plan:
    """Check the trace, and choose the order of concurrent insertions. Raises BadTrace."""
    if not trace.concurrent:
        check_lengths(trace)
        return Plan(trace, None, (0,), None, 0.0)
    begin = time.perf_counter()
    ends: set[str] = set()
    first: Plan | None = None
    for order in orders(trace.agents):
        drafted = draft(trace, order)
        ends.add(drafted.text)
        equal = drafted.text == trace.end
        if equal or first is None:
            determined = None if first is None else False
            first = Plan(trace, drafted, order, determined, time.perf_counter() - begin)
        if equal:
            return first
    assert first is not None
    return Plan(trace, first.drafted, first.order, len(ends) == 1, time.perf_counter() - begin)


@asynccontextmanager
async def _mesh(count: int, transport: str) -> AsyncIterator[list[DocumentPeer]]:
    """Run `count` peers, all connected to each other."""
    with TemporaryDirectory(prefix="nngkit-") as folder:
        listen = {
            "tcp": "tcp://127.0.0.1:0",
            "ws": "ws://127.0.0.1:0/replay",
            "ipc": f"ipc://{folder}/{{}}",
            "inproc": f"inproc://{folder}/{{}}",
        }[transport]
        async with AsyncExitStack() as stack:
            peers: list[DocumentPeer] = []
            for number in range(count):
                dial = [peer.address for peer in peers]
                peer = DocumentPeer(listen=listen.format(number), dial=dial, name=f"peer {number}")
                peers.append(await stack.enter_async_context(peer))
            for peer in peers:
                await peer.wait_for_peers(count - 1, 30.0)
            yield peers


class _Site:
    """A peer, its document, and an event for its changes."""

    def __init__(self, peer: DocumentPeer) -> None:
        self.peer = peer
        self.document: Document = peer.open(DOCUMENT)
        self.body = self.document.text(BODY)
        self.changed = trio.Event()
        self.document.engine.observe(self._observed)

    def _observed(self, update: bytes, origin: object) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def has(self, need: dict[EditStream, int], patience: float) -> None:
        """Wait for edits. Raises TimedOut after `patience` seconds without any edit."""
        seen, since = self.peer.versions(DOCUMENT), trio.current_time()
        while not covers(now := self.peer.versions(DOCUMENT), need):
            if now != seen:
                seen, since = now, trio.current_time()
            elif trio.current_time() - since > patience:
                raise TimedOut(f"{self.peer.name} received none of its missing edits in {patience:g} s", patience)
            with trio.move_on_after(POLL):
                await self.changed.wait()


async def _run(planned: Plan, peers: list[DocumentPeer], patience: float) -> Run:
    sites = [_Site(peer) for peer in peers]
    begin = time.perf_counter()
    if planned.drafted is None:
        await _type(planned.trace, sites, patience)
    else:
        await _enter(planned.trace, planned.drafted, sites, patience)
    typed = time.perf_counter()
    alike = await _alike(sites, patience)
    end = time.perf_counter()
    stats = [peer.stats for peer in peers]
    return Run(
        [str(site.body) for site in sites],
        alike,
        typed - begin,
        end - typed,
        sum(each.bytes_sent + each.request_bytes for each in stats),
        sum(each.sent for each in stats),
        sum(each.requests for each in stats),
        sum(each.gaps for each in stats),
    )


async def _type(trace: Trace, sites: list[_Site], patience: float) -> None:
    """Type the edits of one author at the first peer."""
    author, count = sites[0], 0
    if trace.start:
        author.body.insert(0, trace.start)
    for number, txn in enumerate(trace.txns):
        with author.document.transaction():
            for position, deleted, inserted in txn.patches:
                author.body.splice(position, deleted, inserted)
        if number % TURN == 0:
            await trio.lowlevel.checkpoint()
        if number % AHEAD == 0:
            count = author.peer.versions(DOCUMENT).get(author.peer.me, 0)
            for site in sites[1:]:
                await site.has({author.peer.me: count - AHEAD} if count > AHEAD else {}, patience)


async def _enter(trace: Trace, drafted: Drafted, sites: list[_Site], patience: float) -> None:
    """Enter the edits of several authors at a peer each, as soon as it has the parents."""
    counts = [0] * len(sites)
    if drafted.start:
        sites[0].document.engine.apply(drafted.start)
        counts[0] = 1
    first = {0: counts[0]} if drafted.start else {}
    after: list[dict[int, int]] = []
    work: list[list[tuple[bytes, dict[int, int]]]] = [[] for _ in sites]
    for number, txn in enumerate(trace.txns):
        need = dict(first)
        for parent in txn.parents:
            for place, count in after[parent].items():
                need[place] = max(count, need.get(place, 0))
        if update := drafted.updates[number]:
            place = txn.agent % len(sites)
            counts[place] += 1
            work[place].append((update, need))
            need = {**need, place: counts[place]}
        after.append(need)

    async def author(site: _Site, edits: list[tuple[bytes, dict[int, int]]]) -> None:
        for number, (update, need) in enumerate(edits):
            await site.has({sites[place].peer.me: count for place, count in need.items()}, patience)
            site.document.engine.apply(update)  # no remote edit: the peer publishes it as its own
            if number % TURN == 0:
                await trio.lowlevel.checkpoint()
            if number > AHEAD and number % AHEAD == 0:
                for other in sites:
                    await other.has({site.peer.me: number - AHEAD}, patience)

    async with trio.open_nursery() as nursery:
        for site, edits in zip(sites, work, strict=True):
            nursery.start_soon(author, site, edits)


async def _alike(sites: list[_Site], patience: float) -> bool:
    """Wait until all peers have all edits; return True if their contents are equal."""
    want: dict[EditStream, int] = {site.peer.me: site.peer.versions(DOCUMENT).get(site.peer.me, 0) for site in sites}
    try:
        for site in sites:
            await site.has({stream: count for stream, count in want.items() if count}, patience)
    except TimedOut:
        return False
    return len({site.document.digest() for site in sites}) == 1


def _fields(planned: Plan, done: Run, arguments: argparse.Namespace) -> dict[str, Any]:
    trace, text = planned.trace, done.texts[0]
    same = Counter(text) == Counter(trace.end)
    open_ = planned.determined is False and same
    verdict = "equal" if text == trace.end else "undetermined" if open_ else "differs"
    return {
        "file": arguments.file,
        "ok": done.alike and verdict != "differs",
        "text": verdict,
        "alike": done.alike,
        "determined": planned.determined,
        "order": list(planned.order),
        "same_characters": same,
        "peers": len(done.texts),
        "authors": trace.agents,
        "transactions": len(trace.txns),
        "edits": trace.edits,
        "characters": len(text),
        "recorded": len(trace.end),
        "first_difference": _difference(text, trace.end),
        "drafting": round(planned.seconds, 3),
        "typing": round(done.typing, 3),
        "rate": round(trace.edits / done.typing, 1) if done.typing else 0.0,
        "converging": round(done.converging, 4),
        "bytes": done.bytes,
        "messages": done.messages,
        "gaps": done.gaps,
        "asked": done.asked,
    }


def _difference(one: str, other: str) -> int | None:
    if one == other:
        return None
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _text(fields: dict[str, Any]) -> str:
    text = {
        "equal": f"text: equal to the recorded end, {fields['characters']} characters",
        "differs": f"text: DIFFERS from the recorded end at {fields['first_difference']}: {fields['characters']} "
        f"characters, recorded {fields['recorded']}",
        "undetermined": "text: order not compared: CRDTs order concurrent insertions at one place in different ways; "
        f"the {fields['characters']} characters are those of the recorded end",
    }[fields["text"]]
    if fields["text"] == "equal" and fields["determined"] is False:
        text += f"; concurrent insertions at one place are in the order of the authors {fields['order']}"
    return (
        f"peers: {fields['peers']}, {'all alike' if fields['alike'] else 'NOT ALIKE'}\n"
        f"{text}\n"
        f"typed: {fields['edits']} edits of {fields['authors']} in {fields['typing']:.1f} s, "
        f"{fields['rate']:.0f} edits/s; alike {fields['converging'] * 1000:.0f} ms after the last\n"
        f"sent: {fields['bytes']} bytes in {fields['messages']} messages; {fields['gaps']} gaps, "
        f"{fields['asked']} questions"
    )


if __name__ == "__main__":
    sys.exit(main())
