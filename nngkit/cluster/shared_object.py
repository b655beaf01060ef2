"""SharedReplica: a program's own object at one node, changed everywhere in the order of the cluster's host. Pure.

The object has ``update(fragment: bytes)``, ``full_state() -> bytes`` and ``load(full: bytes)``. A change goes to the
host, which numbers it and broadcasts it; all nodes apply it in that order, its writer too.

    a position    (term, epoch of the host, number): the changes so far, in one host's order
    a reign       begins with number 0 at the position of its host then, the base
    behind        the missing changes are requested by position, at the parent, else at the host;
                  if it does not keep them, or this copy is ahead of the base, the full state comes instead
    a new host    asks for half a second whether a copy is ahead of its own, and takes that first

Invariants, with one host for each term (tests/cluster/documents_network.py checks them):

1. Two copies at the same position have the same content.
2. Each change of a writer is in that content at most once, and in the writer's order.
3. A writer that stays gets each change into the content in the end, also one that a dead host had confirmed: see
   `documents_writer.py`.
4. All copies reach the position of the host, once messages arrive for long enough.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, Protocol

from nngkit import envelope
from nngkit.cluster.documents_copy import CopyRng
from nngkit.cluster.documents_messages import (
    START,
    Behind,
    Changes,
    Entry,
    FullObject,
    FullObjectRequest,
    Gather,
    MissingFragments,
    NotOpen,
    Offer,
    OrderedFragments,
    Position,
    Send,
)
from nngkit.cluster.documents_transfers import Downloads
from nngkit.cluster.documents_writer import ENTRY, RUN_BYTES, WRITERS, SharedWriter, full_from, runs_of
from nngkit.documents.sync import wire
from nngkit.documents.sync.messages import Diff, Manifest
from nngkit.documents.sync.transfers import Transfers
from nngkit.documents.versions import EditStream
from nngkit.errors import BadMessage, TooLarge

__all__ = ["SharedObject", "SharedReplica"]

GATHER: Final = 0.5  # seconds in which a new host hears of copies ahead of its own: many round trips of a tree
FETCHING: Final = 5.0  # seconds until the host begins without what a copy ahead has promised
LOG_BYTES, LOG_CHANGES = 4 << 20, 4096  # kept for nodes that are behind; as in a document's log
HELD_BYTES, HELD_CHANGES = 4 << 20, 4096  # ahead of missing ones; beyond, they are requested again
RESEND: Final = 1.0  # seconds without a confirmation, growing to
RESEND_MOST: Final = 8.0
AT_LAST: Final = 0.1  # seconds until the full state is requested, once the host has one
ASK: Final = 1.0  # seconds until a request is repeated elsewhere, growing to
ASK_MOST: Final = 8.0
NEVER: Final = float("inf")
_WHAT: Final = "shared object"


class SharedObject(Protocol):
    """Interface of a program's object. `update` must do the same at every node."""

    def update(self, fragment: bytes) -> object: ...
    def full_state(self) -> bytes: ...
    def load(self, full: bytes) -> object: ...


class SharedReplica:
    """One shared object at one node. `report(node, why)` is called for rejected input and for exceptions of the object.

    After each event call `step(now)`, and at `wake_at`.
    """

    def __init__(
        self,
        name: str,
        node: str,
        epoch: int,
        obj: SharedObject,
        *,
        rng: CopyRng,
        send: Send,
        transfers: Transfers,
        downloads: Downloads,
        report: Callable[[str, str], None],
        now: float,
        limit: int,
    ) -> None:
        self.name = name
        self.node = node
        self.epoch = epoch
        self.obj = obj
        self.position = START
        self.writer = SharedWriter(name)
        self.applied = self.loads = self.failures = 0
        self.wake_at = now
        self.parent = ""
        self.term = 0  # of the host, as far as known
        self.leading = False
        self._rng = rng
        self._send = send
        self._transfers = transfers
        self._downloads = downloads
        self._report = report
        self._limit = limit
        self._table: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._log: deque[tuple[Position, Position, Entry | None]] = deque()  # position, the one before, change
        self._log_bytes = 0
        self._held: dict[Position, tuple[Position, Entry | None]] = {}  # by the position before
        self._held_bytes = 0
        self._known = START  # the latest position heard of
        self._changed = False
        # as writer
        self._resend_at = NEVER
        self._resend_pause = RESEND
        # requests
        self._number = int.from_bytes(rng.randbytes(6))  # late replies to an earlier replica are not for this one
        self._request: tuple[int, str] | None = None
        self._downloading = False
        self._ask_at = NEVER
        self._ask_pause = ASK
        self._ask_host = False
        self._force = False
        self._connected = False
        # as host
        self._begin_at = NEVER
        self._begin_latest = NEVER
        self._best: tuple[Position, str] | None = None
        self._ordered: list[Entry] = []  # not broadcast yet
        self._ordered_from = START

    # ------------------------------------------------------------------ as writer

    def change(self, fragment: bytes, now: float) -> int:
        """Send a change to the host; return its number, to compare with `confirmed`. Raises Full, TooLarge."""
        number = self.writer.change(fragment)
        self.wake_at = min(self.wake_at, now)
        return number

    @property
    def confirmed(self) -> int:
        """Own changes up to this number are in the content."""
        return self.writer.confirmed

    def _send_mine(self, now: float) -> None:
        """Send own changes within the window; only in the host's reign, where the own table is true of it."""
        writer = self.writer
        if writer.confirmed == writer.written:
            return
        if self.leading:
            if self._begin_at == NEVER:
                while writer.next <= writer.written:
                    self._order(self.node, self.epoch, writer.next, writer[writer.next])  # confirms it too
            return
        if not self._connected or self.position.term != self.term or self.position[:2] < self._known[:2]:
            return
        if (batch := writer.batch()) is not None:
            self._send("", Changes(self.name, self.position._replace(number=0), self.epoch, *batch))
        if self._resend_at == NEVER:
            self._resend_at = now + self._resend_pause * self._rng.uniform(1.0, 1.5)

    def behind(self, message: Behind) -> None:
        """Send again what the host misses."""
        if message.epoch == self.epoch:
            self.writer.behind(message.last)

    def _confirm(self, n: int) -> None:
        self.writer.confirm(n)
        self._resend_pause, self._resend_at = RESEND, NEVER

    # ------------------------------------------------------------------ as host

    def lead(self, term: int, now: float) -> None:
        """Begin to be the host of a term."""
        self.leading, self.term = True, term
        self._best = None
        self._begin_at, self._begin_latest = now + GATHER, now + GATHER + FETCHING
        self.writer.again()
        self._send(None, Gather(self.name, term, self.epoch, self.position))
        self.wake_at = min(self.wake_at, now)

    def offer(self, node: str, message: Offer, now: float) -> None:
        """Take the position of a copy that is ahead; fetch the latest one before the reign begins."""
        if self._begin_at == NEVER or message.position >= self._reign:
            return
        if message.position > max(self.position, self._best[0] if self._best is not None else START):
            self._best = message.position, node
            self._ask_from(node, now)

    @property
    def _reign(self) -> Position:
        return Position(self.term, self.epoch, 0)

    def _begin(self, now: float) -> None:
        """Begin the reign at the present position."""
        base = self.position
        first = self._reign
        self._begin_at = NEVER
        self._request = None
        self._best = None
        self._ask_at = NEVER
        if base >= first:
            self._report(self.node, f"{self.name}: its copy is of term {base.term}, after term {self.term}")
            base = START
        self._held.clear()
        self._held_bytes = 0
        self._apply(first, base, None)
        self._known = self.position
        self._send(None, OrderedFragments(self.name, first, base, ()))

    def changes(self, node: str, message: Changes) -> None:
        """Number the changes of a writer."""
        if not self.leading or self._begin_at != NEVER or message.reign != self._reign:
            return  # the writer repeats them
        for n, data in enumerate(message.fragments, message.first):
            last = self._table.get((node, message.epoch))
            expected = {message.after + 1} if last is None else {last + 1, max(message.after, last) + 1}
            if n in expected:
                self._order(node, message.epoch, n, data)
            elif last is None or n > last:
                self._send(node, Behind(self.name, message.epoch, last if last is not None else message.after))
                return

    def _order(self, origin: str, epoch: int, n: int, data: bytes) -> None:
        position = self.position._replace(number=self.position.number + 1)
        entry = Entry(origin, epoch, n, data)
        if not self._ordered:
            self._ordered_from = position
        self._ordered.append(entry)
        self._apply(position, self.position, entry)
        self._known = self.position

    def _broadcast(self) -> None:
        """Broadcast the changes ordered in this turn, in messages of 256 KiB."""
        entries, self._ordered = self._ordered, []
        for run in runs_of(self.name, self._ordered_from, None, entries):
            self._send(None, run)

    # ------------------------------------------------------------------ the order

    def ordered(self, message: OrderedFragments) -> None:
        """Take changes in the host's order."""
        position = message.first
        before = message.base
        if before is None:
            before = position._replace(number=position.number - 1)
        else:
            self._take(position, before, None)
            before, position = position, position._replace(number=1)
        for entry in message.entries:
            self._take(position, before, entry)
            before, position = position, position._replace(number=position.number + 1)

    def _take(self, position: Position, before: Position, entry: Entry | None) -> None:
        if position <= self.position:
            return
        if self.leading and (self._begin_at == NEVER or position >= self._reign):
            return  # the order of others is only of use until the own reign begins
        self._known = max(self._known, position)
        if before != self.position or before == START:
            size = ENTRY + (0 if entry is None else len(entry.data))
            if len(self._held) < HELD_CHANGES and self._held_bytes + size <= HELD_BYTES and before not in self._held:
                self._held[before] = position, entry
                self._held_bytes += size
            return
        self._apply(position, before, entry)
        self._release()

    def _release(self) -> None:
        while self.position != START and (found := self._held.pop(self.position, None)) is not None:
            self._held_bytes -= ENTRY + (0 if found[1] is None else len(found[1].data))
            self._apply(found[0], self.position, found[1])

    def _apply(self, position: Position, before: Position, entry: Entry | None) -> None:
        """Apply the next change."""
        self.position = position
        self._log.append((position, before, entry))
        self._log_bytes += ENTRY
        self._changed = True
        if entry is not None:
            self.applied += 1
            self._log_bytes += len(entry.data)
            writer = entry.origin, entry.epoch
            self._table[writer] = entry.n
            self._table.move_to_end(writer)
            if len(self._table) > WRITERS:
                self._table.popitem(last=False)  # the same one at every node
            try:
                self.obj.update(entry.data)
            except Exception as error:  # the program's; the same at every node, so the order goes on
                self.failures += 1
                self._report(entry.origin, f"{self.name}: update raised {type(error).__name__}: {error}")
            if writer == (self.node, self.epoch):
                self._confirm(entry.n)
        while len(self._log) > LOG_CHANGES or self._log_bytes > LOG_BYTES:
            _, _, gone = self._log.popleft()
            self._log_bytes -= ENTRY + (0 if gone is None else len(gone.data))

    # ------------------------------------------------------------------ catching up

    def attached(self, term: int, parent: str, now: float, *, spread: float, after: float = 0.0) -> None:
        """Take a new parent or a new host; compare `after` seconds, and up to `spread` more."""
        if term != self.term:
            self.leading = False
            self._begin_at = NEVER
            self._resend_pause = RESEND
        self.term, self.parent, self._connected = term, parent, True
        self.writer.again()
        self._request, self._downloading = None, False
        self._ask_host = not parent
        self._ask_pause = ASK
        self._ask_soon(now + after + self._rng.uniform(0.0, spread))
        self.wake_at = min(self.wake_at, now)

    def gap(self, now: float) -> None:
        """Compare with the host: its broadcasts are missing."""
        self._ask_host = True
        self._ask_soon(now)

    def heard_position(self, position: Position, now: float) -> None:
        """Take the position of the host."""
        if position.term >= self.term and not self.leading:
            self._known = max(self._known, position)
            self.wake_at = min(self.wake_at, now)

    def gather(self, node: str, message: Gather, now: float) -> None:
        """Tell a new host of a copy ahead of its own."""
        if not self.leading and message.term >= self.term and self.position > message.position:
            self._send(node, Offer(self.name, self.position))

    def request_full(self, now: float) -> None:
        """Take the full state again, even if nothing seems to be missing; not at the host."""
        if not self.leading:
            self._force = True
            self._ask_soon(now)

    @property
    def behind_host(self) -> bool:
        """True while changes are missing, as far as known."""
        if self.leading:
            return self._begin_at != NEVER
        return self.position == START or self.position < self._known or self._force

    @property
    def _may_ask(self) -> bool:
        return self._connected and not self.leading and not self._downloading

    def _ask_soon(self, at: float) -> None:
        self._ask_at = min(self._ask_at, at)
        self.wake_at = min(self.wake_at, self._ask_at)

    def _ask_from(self, node: str, now: float) -> None:
        self._number += 1
        self._request = self._number, node
        self._downloading = False
        self._send(node, FullObjectRequest(self._number, self.name, START if self._force else self.position))
        self._ask_at = now + self._ask_pause * self._rng.uniform(1.0, 1.5)
        self.wake_at = min(self.wake_at, self._ask_at)

    def _ask(self, now: float) -> None:
        if self.leading:
            if self._begin_at != NEVER and self._best is not None:
                self._ask_from(self._best[1], now)  # the request or its reply was lost
            else:
                self._ask_at = NEVER
            return
        if not self._connected:
            self._ask_at = NEVER
            return
        node = "" if self._ask_host else self.parent
        self._ask_host = bool(self.parent) and not self._ask_host  # in turn, if the first has no answer
        self._ask_from(node, now)
        self._ask_pause = min(2 * self._ask_pause, ASK_MOST)

    def requested(self, node: str, message: FullObjectRequest, now: float) -> None:
        """Answer with the changes after a position, or with the full state."""
        if self.position == START:
            self._send(node, NotOpen(message.number, self.name))
            return
        if message.position == self.position or (found := self._after(message.position)) is not None:
            entries = [] if message.position == self.position else found
            assert entries is not None
            self._send(node, MissingFragments(message.number, self.name, self.position, tuple(entries)))
            return
        table = [[origin, epoch, n] for (origin, epoch), n in self._table.items()]
        try:
            full = envelope.encode([table, bytes(self.obj.full_state())])
            body = self._transfers.offer(full, name=self._rng.randbytes(16), now=now)
        except Exception as error:  # the program's
            self.failures += 1
            self._report(self.node, f"{self.name}: full_state raised {type(error).__name__}: {error}")
            return
        content = wire.encode(Diff(_NO_STREAM, self.name, body, {}))
        self._send(node, FullObject(message.number, self.name, self.position, content))

    def _after(self, position: Position) -> list[OrderedFragments] | None:
        """Return the kept changes after `position`, up to 256 KiB; None if they do not follow it."""
        start = next((index for index, (_, before, _) in enumerate(self._log) if before == position), None)
        if position == START or start is None:
            return None
        runs: list[OrderedFragments] = []
        entries: list[Entry] = []
        size, first, base = 0, START, None
        for index in range(start, len(self._log)):
            at, before, entry = self._log[index]
            if entry is None:
                runs += runs_of(self.name, first, base, entries)
                entries, first, base = [], at, before
                size += ENTRY
                continue
            size += len(entry.data) + ENTRY
            if size > RUN_BYTES and index > start:
                break
            if not entries and base is None:
                first = at
            entries.append(entry)
        return [*runs, *runs_of(self.name, first, base, entries)]

    def replied(self, node: str, message: MissingFragments | FullObject | NotOpen, now: float) -> None:
        """Take a reply."""
        if self._request is None or self._request[0] != message.number:
            return  # late
        asked = self._request[1]
        before = self.position
        if isinstance(message, NotOpen):
            self._request = None
            self._ask_host = True
            at = now if asked and asked == self.parent else now + self._ask_pause * self._rng.uniform(0.5, 1.0)
            self._ask_at = NEVER
            self._ask_soon(at)
            return
        if isinstance(message, MissingFragments):
            self._request = None
            for run in message.runs:
                self.ordered(run)
            self._known = max(self._known, message.head) if not self.leading else self._known
            self._settled(before, now)
            return
        try:
            reply = wire.decode_reply(message.content, peer=node)
            if not isinstance(reply, Diff):
                raise BadMessage(_WHAT, "it is no full state", node)
            if isinstance(reply.body, Manifest):
                self._download(node, message.position, reply.body, now)
            else:
                self._load(node, message.position, reply.body, now)
        except (BadMessage, TooLarge) as error:
            self._report(node, str(error))
            self._request = None

    def _download(self, node: str, position: Position, manifest: Manifest, now: float) -> None:
        request = self._request

        def done(body: bytes | None, then: float) -> None:
            if self._request != request:
                return
            self._downloading = False
            if body is None:
                self._request = None
                self._ask_soon(then)
            else:
                try:
                    self._load(node, position, body, then)
                except (BadMessage, TooLarge) as error:
                    self._report(node, str(error))
                    self._request = None
            self.wake_at = min(self.wake_at, then)

        self._downloads.start(node, manifest, done, now)
        self._downloading = True
        self._ask_at = NEVER

    def _load(self, node: str, position: Position, body: bytes, now: float) -> None:
        """Load a full state. Raises BadMessage, TooLarge."""
        self._request = None
        before = self.position
        if self.leading and (self._begin_at == NEVER or position >= self._reign):
            return
        if position < self.position or (position == self.position and not self._force):
            self._settled(before, now)
            return
        value = envelope.decode(body, what=_WHAT, limit=self._limit, peer=node)
        table, full = full_from(value, node)
        try:
            self.obj.load(full)
        except Exception as error:  # the program's
            self.failures += 1
            self._report(node, f"{self.name}: load raised {type(error).__name__}: {error}")
            return
        self.loads += 1
        self._changed = True
        self._force = False
        self.position = position
        self._known = max(self._known, position)
        self._table = table
        self._log.clear()
        self._log_bytes = 0
        for key in [one for one, (at, _) in self._held.items() if at <= position]:
            _, entry = self._held.pop(key)
            self._held_bytes -= ENTRY + (0 if entry is None else len(entry.data))
        self._confirm(table.get((self.node, self.epoch), 0))
        self._release()
        self._settled(before, now)

    def _settled(self, before: Position, now: float) -> None:
        """Go on at once if the reply brought something and more is missing; else later, elsewhere."""
        if self.position != before:
            self._ask_pause = ASK
            if not self.behind_host:
                self._ask_at = NEVER
                return
            self._ask_host = self._ask_host if not self.parent else not self._ask_host  # the same one again
            if not self.leading:
                self._ask_at = now
        elif not self.behind_host and not self.leading:
            self._ask_at = NEVER

    # ------------------------------------------------------------------ time

    def step(self, now: float) -> bool:
        """Do what follows from the events, and what is due; sets `wake_at`. Returns True if the content changed."""
        if self.leading and self._begin_at != NEVER:
            waiting = self._best is not None and self._best[0] > self.position and now < self._begin_latest
            if now >= self._begin_at and not waiting:
                self._begin(now)
        if now >= self._resend_at:
            self._resend_at = NEVER
            if self.writer.written > self.confirmed:
                self.writer.again()
                self._resend_pause = min(2 * self._resend_pause, RESEND_MOST)
        self._send_mine(now)
        if self._ordered:
            self._broadcast()
        if self.position == START < self._known and self._request is None and self._may_ask:
            self._ask_soon(now + self._rng.uniform(0.0, AT_LAST))  # the host has begun: what it had not, it has now
        if now >= self._ask_at and not self._downloading:
            self._ask(now)
        elif self._ask_at == NEVER and self._may_ask and self.behind_host:
            # what is missing may be on its way, and many nodes miss it at once
            self._ask_at = now + self._rng.uniform(0.05, 0.3)
        self.wake_at = min(self._ask_at, self._resend_at)
        if self.leading and self._begin_at != NEVER:
            self.wake_at = min(self.wake_at, self._begin_at if now < self._begin_at else self._begin_latest)
        changed, self._changed = self._changed, False
        return changed

    def node_removed(self, node: str, now: float) -> None:
        """Ask elsewhere if a node has left."""
        if self._request is not None and self._request[1] == node:
            self._request, self._downloading = None, False
            self._ask_soon(now)
        if self._best is not None and self._best[1] == node:
            self._best = None
            self._begin_at = min(self._begin_at, now)
            self.wake_at = min(self.wake_at, now)


_NO_STREAM: Final = EditStream(bytes(8), 0)  # a full state is known by its position
