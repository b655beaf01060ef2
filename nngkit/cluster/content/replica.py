"""SharedReplica: a program's own object at one node, changed everywhere in the order of the cluster's host. Pure.

Decides what is sent to the host, what the host numbers, and what is requested. The content here, with its position,
table of writers and log, is a `SharedOrder`; own changes are a `SharedWriter`. Knows no content of a change.

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
   `writer.py`.
4. All copies reach the position of the host, once messages arrive for long enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nngkit.cluster.content import messages
from nngkit.cluster.content.order import SharedObject, SharedOrder, runs_of
from nngkit.cluster.content.transfers import Means
from nngkit.cluster.content.writer import SharedWriter
from nngkit.cluster.log_clock import NEVER
from nngkit.documents.sync import wire
from nngkit.documents.sync.messages import Diff, Manifest
from nngkit.documents.versions import EditStream
from nngkit.errors import BadMessage, TooLarge

GATHER: Final = 0.5  # seconds in which a new host hears of copies ahead of its own: many round trips of a tree
FETCHING: Final = 5.0  # seconds until the host begins without what a copy ahead has promised
RESEND: Final = 1.0  # seconds without a confirmation, growing to
RESEND_MOST: Final = 8.0
AT_LAST: Final = 0.1  # seconds until the full state is requested, once the host has one
ASK: Final = 1.0  # seconds until a request is repeated elsewhere, growing to
ASK_MOST: Final = 8.0
_WHAT: Final = "shared object"


class SharedReplica:
    """One shared object at one node. `report(node, why)` is called for rejected input and for exceptions of the object.

    After each event call `step(now)`, and at `wake_at`. The content is in `order`, own changes are in `writer`.
    """

    def __init__(
        self,
        name: str,
        node: str,
        epoch: int,
        obj: SharedObject,
        means: Means,
        *,
        report: Callable[[str, str], None],
        now: float,
        limit: int,
    ) -> None:
        self.name = name
        self.node = node
        self.epoch = epoch
        self.writer = SharedWriter(name)
        self.order = SharedOrder(name, node, epoch, obj, confirm=self._confirm, report=report, limit=limit)
        self.wake_at = now
        self.parent = ""
        self.term = 0  # of the host, as far as known
        self.leading = False
        self._rng, self._send, self._transfers, self._downloads = means
        self._report = report
        # as writer
        self._resend_at = NEVER
        self._resend_pause = RESEND
        # requests
        self._number = int.from_bytes(self._rng.randbytes(6))  # late replies to an earlier replica are not for this one
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
        self._best: tuple[messages.Position, str] | None = None
        self._ordered: list[messages.Entry] = []  # not broadcast yet
        self._ordered_from = messages.START

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
        """Send own changes within the window; only once this copy follows the present host's order."""
        writer = self.writer
        if writer.confirmed == writer.written:
            return
        if self.leading:
            if self._begin_at == NEVER:
                while writer.next <= writer.written:
                    self._append(self.node, self.epoch, writer.next, writer[writer.next])  # confirms it too
            return
        position = self.order.position
        if not self._connected or position.term != self.term or position.at(0) < self.order.known.at(0):
            return
        if (batch := writer.batch()) is not None:
            self._send("", messages.Changes(self.name, position.at(0), self.epoch, *batch))
        if self._resend_at == NEVER:
            self._resend_at = now + self._resend_pause * self._rng.uniform(1.0, 1.5)

    def behind(self, message: messages.Behind) -> None:
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
        self._send(None, messages.Gather(self.name, term, self.epoch, self.order.position))
        self.wake_at = min(self.wake_at, now)

    def offer(self, node: str, message: messages.Offer, now: float) -> None:
        """Take the position of a copy that is ahead; fetch the latest one before the reign begins."""
        if self._begin_at == NEVER or message.position >= self._reign:
            return
        if message.position > max(self.order.position, self._best[0] if self._best is not None else messages.START):
            self._best = message.position, node
            self._ask_from(node, now)

    @property
    def _reign(self) -> messages.Position:
        return messages.Position(self.term, self.epoch, 0)

    def _refuses(self, position: messages.Position) -> bool:
        """Return True if the host takes no content at `position`: none in its reign, only earlier content before it."""
        return self.leading and (self._begin_at == NEVER or position >= self._reign)

    def _begin(self, now: float) -> None:
        """Begin the reign at the present position."""
        self._begin_at = NEVER
        self._request = None
        self._best = None
        self._ask_at = NEVER
        first = self._reign
        base = self.order.begin(first)
        self._send(None, messages.OrderedFragments(self.name, first, base, ()))

    def changes(self, node: str, message: messages.Changes) -> None:
        """Number the changes of a writer."""
        if not self.leading or self._begin_at != NEVER or message.reign != self._reign:
            return  # the writer repeats them
        for n, data in enumerate(message.fragments, message.first):
            last = self.order.last(node, message.epoch)
            expected = {message.after + 1} if last is None else {last + 1, max(message.after, last) + 1}
            if n in expected:
                self._append(node, message.epoch, n, data)
            elif last is None or n > last:
                self._send(node, messages.Behind(self.name, message.epoch, last if last is not None else message.after))
                return

    def _append(self, origin: str, epoch: int, n: int, data: bytes) -> None:
        entry = messages.Entry(origin, epoch, n, data)
        if not self._ordered:
            self._ordered_from = self.order.next
        self._ordered.append(entry)
        self.order.append(entry)

    def _broadcast(self) -> None:
        """Broadcast the changes ordered in this turn, in messages of 256 KiB."""
        entries, self._ordered = self._ordered, []
        for run in runs_of(self.name, self._ordered_from, None, entries):
            self._send(None, messages.OrderedFragments(run.name, run.first, run.base, run.entries))

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

    def ordered(self, message: messages.Run) -> None:
        """Take changes in the host's order."""
        if not self._refuses(message.first):
            self.order.take(message)

    def gap(self, now: float) -> None:
        """Compare with the host: its broadcasts are missing."""
        self._ask_host = True
        self._ask_soon(now)

    def heard_position(self, position: messages.Position, now: float) -> None:
        """Take the position of the host."""
        if position.term >= self.term and not self.leading:
            self.order.hear(position)
            self.wake_at = min(self.wake_at, now)

    def gather(self, node: str, message: messages.Gather, now: float) -> None:
        """Tell a new host of a copy ahead of its own."""
        if not self.leading and message.term >= self.term and self.order.position > message.position:
            self._send(node, messages.Offer(self.name, self.order.position))

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
        return self.order.behind or self._force

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
        self._send(
            node,
            messages.FullObjectRequest(self._number, self.name, messages.START if self._force else self.order.position),
        )
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

    def requested(self, node: str, message: messages.FullObjectRequest, now: float) -> None:
        """Answer with the changes after a position, or with the full state."""
        order = self.order
        if order.position == messages.START:
            self._send(node, messages.NotOpen(message.number, self.name))
            return
        if (missing := order.after(message.position)) is not None:
            self._send(node, messages.MissingFragments(message.number, self.name, order.position, tuple(missing)))
            return
        try:
            body = self._transfers.offer(order.full_state(), name=self._rng.randbytes(16), now=now)
        except BaseException as error:  # the program's
            order.failed(self.node, "full_state", error)
            return
        content = wire.encode(Diff(_NO_STREAM, self.name, body, {}))
        self._send(node, messages.FullObject(message.number, self.name, order.position, content))

    def replied(
        self, node: str, message: messages.MissingFragments | messages.FullObject | messages.NotOpen, now: float
    ) -> None:
        """Take a reply."""
        if self._request is None or self._request[0] != message.number:
            return  # late
        asked = self._request[1]
        before = self.order.position
        if isinstance(message, messages.NotOpen):
            self._request = None
            self._ask_host = True
            at = now if asked and asked == self.parent else now + self._ask_pause * self._rng.uniform(0.5, 1.0)
            self._ask_at = NEVER
            self._ask_soon(at)
            return
        if isinstance(message, messages.MissingFragments):
            self._request = None
            for run in message.runs:
                self.ordered(run)
            if not self.leading:
                self.order.hear(message.head)
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

    def _download(self, node: str, position: messages.Position, manifest: Manifest, now: float) -> None:
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

    def _load(self, node: str, position: messages.Position, body: bytes, now: float) -> None:
        """Load a full state. Raises BadMessage, TooLarge."""
        self._request = None
        before = self.order.position
        if self._refuses(position):
            return
        if position < before or (position == before and not self._force):
            self._settled(before, now)
        elif self.order.load(node, position, body):
            self._force = False
            self._settled(before, now)

    def _settled(self, before: messages.Position, now: float) -> None:
        """Go on at once if the reply brought something and more is missing; else later, elsewhere."""
        if self.order.position != before:
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
            waiting = self._best is not None and self._best[0] > self.order.position and now < self._begin_latest
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
        if self.order.position == messages.START < self.order.known and self._request is None and self._may_ask:
            self._ask_soon(now + self._rng.uniform(0.0, AT_LAST))  # the host has begun: what it had not, it has now
        if now >= self._ask_at and not self._downloading:
            self._ask(now)
        elif self._ask_at == NEVER and self._may_ask and self.behind_host:
            # what is missing may be on its way, and many nodes miss it at once
            self._ask_at = now + self._rng.uniform(0.05, 0.3)
        self.wake_at = min(self._ask_at, self._resend_at)
        if self.leading and self._begin_at != NEVER:
            self.wake_at = min(self.wake_at, self._begin_at if now < self._begin_at else self._begin_latest)
        changed, self.order.changed = self.order.changed, False
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
