"""`nngkit doc replay`: a recorded editing trace through real peers, and whether they end where the record ends.

Real: each peer is a DocumentPeer with sockets of its own, all in this process, each connected to each. One author types
at the first peer, edit by edit, as a program does. Of several authors each sits at a peer: what he typed was typed into
a document that had exactly what he saw then (drafts.py); it enters at his peer, as its own edit, once that has all he
saw, and goes out to the others, who write at the same time.

What is compared: all peers with each other, by content, always; and the text with the recorded end. Where authors wrote
at the same place at once, the order is the CRDT's to choose, and the record was made by another one: so that is looked
into. If another order of the authors gives another end, the end is not determined by the trace; then it counts as
equal if one of the orders (of all, with up to three authors) gives the recorded end, and the peers replay that one. If
none does, the characters are compared without their order, and `text` is "undetermined".
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import trio

from nngkit.cli.doc.arguments import BODY
from nngkit.cli.doc.drafts import Drafted, draft, orders
from nngkit.cli.doc.opening import in_trio
from nngkit.cli.doc.trace import BadTrace, Trace, check_lengths, parsed
from nngkit.cli.output import json_line, out
from nngkit.documents import Document, DocumentPeer
from nngkit.documents.versions import EditStream, covers
from nngkit.errors import ConfigError, TimedOut

__all__ = ["Plan", "Run", "plan", "replay"]

DOCUMENT: Final = "replay"
TURN: Final = 64  # edits from one look of the loop at its sockets to the next; one message of the BUS holds so many
AHEAD: Final = 2048  # edits that the others may lack: half of what is kept to answer them one by one
POLL: Final = 0.05  # seconds: events tell of most changes, and this of the rest


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be typed, and what is known of its end. `order`: of the authors. `determined`: whether that matters
    not; None where it was not looked into, as the recorded end was reached."""

    trace: Trace
    drafted: Drafted | None
    order: tuple[int, ...]
    determined: bool | None
    seconds: float


@dataclass(slots=True)
class Run:
    """What happened. `typing`, `converging`: seconds. `bytes`: on the BUS and in answers, all peers'."""

    texts: Sequence[str]
    alike: bool
    typing: float
    converging: float
    bytes: int
    messages: int
    asked: int
    gaps: int


def replay(arguments: argparse.Namespace) -> int:
    """Read, type, compare; 0 if it ends where it should."""
    try:
        planned = plan(parsed(Path(arguments.trace).read_bytes()))
    except OSError as error:
        raise ConfigError("FILE", f"{arguments.trace}: {error.strerror or error}", arguments.trace) from error
    except BadTrace as error:
        raise ConfigError("FILE", f"{arguments.trace}: {error}", arguments.trace) from error
    held = False

    async def work() -> None:
        nonlocal held
        async with _mesh(arguments.peers, arguments.transport) as peers:
            done = await _run(planned, peers, arguments.timeout)
        fields = _fields(planned, done, arguments)
        held = bool(fields["ok"])
        out(json_line(fields) if arguments.json else _text(fields))

    return in_trio(work) or (0 if held else 1)


def plan(trace: Trace) -> Plan:
    """Check the trace, and find out whose text comes first where that is open. Raises BadTrace."""
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
    """Peers that all know each other."""
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
    """A peer and its document, and an event for whatever happens to it."""

    def __init__(self, peer: DocumentPeer) -> None:
        self.peer = peer
        self.document: Document = peer.open(DOCUMENT)
        self.body = self.document.text(BODY)
        self.told = trio.Event()
        self.document.engine.observe(self._observed)

    def _observed(self, update: bytes, origin: object) -> None:
        self.told.set()
        self.told = trio.Event()

    async def has(self, need: dict[EditStream, int], patience: float) -> None:
        """Wait for edits. Raises TimedOut if nothing at all comes for that long."""
        seen, since = self.peer.versions(DOCUMENT), trio.current_time()
        while not covers(now := self.peer.versions(DOCUMENT), need):
            if now != seen:
                seen, since = now, trio.current_time()
            elif trio.current_time() - since > patience:
                raise TimedOut(f"{self.peer.name} has had no edit for {patience:g} s that it still lacks", patience)
            with trio.move_on_after(POLL):
                await self.told.wait()


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
        sum(each.bytes_said + each.bytes_asked for each in stats),
        sum(each.said for each in stats),
        sum(each.asked for each in stats),
        sum(each.gaps for each in stats),
    )


async def _type(trace: Trace, sites: list[_Site], patience: float) -> None:
    """One author: edit by edit, at the first peer."""
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
    """Several authors, each at a peer, all at once; each edit enters when its author's peer has what he saw."""
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
            site.document.engine.apply(update)  # no peer's: it is told to the others as this peer's own
            if number % TURN == 0:
                await trio.lowlevel.checkpoint()
            if number > AHEAD and number % AHEAD == 0:
                for other in sites:
                    await other.has({site.peer.me: number - AHEAD}, patience)

    async with trio.open_nursery() as nursery:
        for site, edits in zip(sites, work, strict=True):
            nursery.start_soon(author, site, edits)


async def _alike(sites: list[_Site], patience: float) -> bool:
    """Whether all come to have the same content."""
    want: dict[EditStream, int] = {site.peer.me: site.peer.versions(DOCUMENT).get(site.peer.me, 0) for site in sites}
    try:
        for site in sites:
            await site.has({stream: count for stream, count in want.items() if count}, patience)
    except TimedOut:
        return False
    return len({site.document.digest() for site in sites}) == 1


def _fields(planned: Plan, done: Run, arguments: argparse.Namespace) -> dict[str, Any]:
    """docs/schemas/doc-replay.json."""
    trace, text = planned.trace, done.texts[0]
    same = Counter(text) == Counter(trace.end)
    open_ = planned.determined is False and same
    verdict = "equal" if text == trace.end else "undetermined" if open_ else "differs"
    return {
        "file": arguments.trace,
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
        "undetermined": "text: not compared in its order: authors wrote at the same place at once, which CRDTs order "
        f"in different ways; the {fields['characters']} characters are those of the recorded end",
    }[fields["text"]]
    if fields["text"] == "equal" and fields["determined"] is False:
        text += f"; authors wrote at the same place at once, which it has with the authors in order {fields['order']}"
    return (
        f"peers: {fields['peers']}, {'all alike' if fields['alike'] else 'NOT ALIKE'}\n"
        f"{text}\n"
        f"typed: {fields['edits']} edits of {fields['authors']} in {fields['typing']:.1f} s, "
        f"{fields['rate']:.0f} edits/s; alike {fields['converging'] * 1000:.0f} ms after the last\n"
        f"sent: {fields['bytes']} bytes in {fields['messages']} messages; {fields['gaps']} gaps, "
        f"{fields['asked']} questions"
    )
