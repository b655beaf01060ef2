"""One named consumer at its server: its partitions, its state on disk, and the deliveries to its sessions."""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import trio

from nngkit.background import WakeUp
from nngkit.errors import AccessDenied, BadMessage, ConfigError, Damaged, NotFound, NotStored, TooLarge
from nngkit.fanout.durable import messages
from nngkit.fanout.durable.feed import PER_HEADER, PER_RECORD, Feed
from nngkit.fanout.durable.file import StateFile
from nngkit.fanout.durable.partition import ANY, Partition, Runs, offsets_in, runs_of
from nngkit.journal.reader import Journal

log_ = logging.getLogger("nngkit.fanout")

OVERHEAD: Final = 4096  # bytes of a reply beside its records
MOST_SESSIONS: Final = 4096


@dataclass(slots=True, eq=False)
class _Session:
    """A client's connection to the consumer: the last reply to it, which it may not have received."""

    number: int
    last: list[tuple[int, Sequence[int]]] = field(default_factory=list)  # (partition, offsets)


@dataclass(slots=True)
class _Reply:
    """Records for one reply, and how many more records and bytes it can have."""

    request: messages.FetchRequest
    records: int
    size: int
    batches: list[messages.Columns] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return self.records <= 0 or self.size <= 0

    def add(self, columns: messages.Columns) -> None:
        self.batches.append(columns)
        self.records -= len(columns.offsets)
        self.size -= _size_of(columns)


class NamedConsumer:
    """State of one name. All methods run in the server's loop; files are read in threads.

    Opening raises ConfigError, Damaged.
    """

    def __init__(self, folder: Path, name: str, journal: Journal, options: messages.Options | None) -> None:
        self.name = name
        self.wake = WakeUp()
        self.version = 0
        self.removed = False
        self.partitions: dict[int, Partition] = {}
        self._journal = journal
        self._feeds: dict[int, Feed] = {}
        self._sessions: dict[str, _Session] = {}
        self._left: dict[str, None] = {}
        self._turn = 0
        self._ends: dict[int, int] = {}
        self._reading = trio.Lock()
        self._wanted = self._done = 0
        self._syncing = False
        self._ahead_until = float("-inf")  # acknowledgements of deliveries that a power loss took are taken until then
        self._synced = trio.Event()
        self._file = StateFile(folder, name, self._snapshot)
        try:
            self.options = self._restored() or options or messages.Options()
            self.check(options)
        except BaseException:
            self._file.close()
            raise

    # State on disk

    def _restored(self) -> messages.Options | None:
        """Take in the state on disk; return the options in it, None for a new consumer. Raises Damaged."""
        entries = self._file.entries
        if not entries:
            return None
        now, wall = trio.current_time(), time.time()
        found: messages.Options | None = None
        try:
            for entry in entries:
                match entry:
                    case ["options", fields]:
                        found = messages.OPTIONS.parse(fields)
                        for state in self.partitions.values():
                            state.limits = found.limits
                    case ["cursor", int(number), int(cursor)] if found is not None:
                        self.partitions[number] = Partition(found.limits, cursor)
                    case ["deliver", int(number), int(behind), int(at), int(count), bytes(flat)]:
                        offsets = list(offsets_in(messages.unpack_runs(flat)))
                        wait = self.partitions[number].limits.ack_wait
                        due = now + min(max(0.0, at / 1e6 + wait - wall), wait)
                        self.partitions[number].deliver(
                            offsets, behind=behind, now=now, session=ANY, count=count, due=due
                        )
                    case ["skipped", int(number), int(count)]:
                        self.partitions[number].skipped = count
                    case ["settle", int(number), bytes(flat)]:
                        self.partitions[number].settle(messages.unpack_runs(flat))
                    case ["ahead", int(number), bytes(flat)]:
                        self.partitions[number].settle(messages.unpack_runs(flat), end=1 << 63)
                    case _:
                        raise ValueError(f"unknown entry {entry[0]!r}")
            if found is None:
                raise ValueError("it has no options")
        except (KeyError, ValueError, BadMessage) as error:
            raise Damaged(str(self._file.path), str(error), advice="delete the consumer") from error
        self._file.entries = []
        self._ahead_until = now + found.ack_wait
        return found

    def check(self, options: messages.Options | None) -> None:
        """Raise ConfigError if the consumer has other options."""
        if options is None or options == self.options:
            return
        ours, theirs = options.fields(), self.options.fields()
        differs = ", ".join(f"{key}={theirs[key]!r}, not {ours[key]!r}" for key in ours if ours[key] != theirs[key])
        why = f"{self.name} exists with {differs}; leave the options out, or change them: change=True or --change"
        raise ConfigError("consumer", why, self.name)

    async def change(self, changes: dict[str, Any]) -> None:
        """Change options; the position stays. They are on disk when this returns. Raises ConfigError, NotStored.

        Records in flight are delivered again whatever their topics, and at the time that was set when they were sent.
        """
        async with self._reading:  # no delivery is under way
            self.options = self.options.changed(changes)
            self._file.append(["options", self.options.fields()])
            for state in self.partitions.values():
                state.limits = self.options.limits
            for feed in self._feeds.values():
                feed.select(self.options.topics)
        await self._sync()
        self.notify()

    def _snapshot(self) -> Iterator[list[Any]]:
        yield ["options", self.options.fields()]
        now, wall = trio.current_time(), time.time()
        for number, state in self.partitions.items():
            yield ["cursor", number, state.cursor]
            for count, due, runs in state.in_flight():
                at = wall - state.limits.ack_wait + (0.0 if due is None else due - now)
                yield ["deliver", number, state.cursor, int(at * 1e6), count, messages.pack_runs(runs)]
            if state.ahead:
                yield ["ahead", number, messages.pack_runs(runs_of(sorted(state.ahead)))]
            if state.skipped:
                yield ["skipped", number, state.skipped]

    async def _sync(self) -> None:
        """Return when all entries are on disk; callers share a sync. Raises NotStored, NotFound."""
        self._wanted += 1
        mine = self._wanted
        while self._done < mine:
            self.check_there()
            if self._syncing:
                await self._synced.wait()
                continue
            self._syncing = True
            upto = self._wanted
            try:
                if not self._file.is_over:
                    try:
                        await trio.to_thread.run_sync(self._file.sync)
                    except OSError as error:
                        log_.error("%s: %s; writing a new file", self._file.path, error)
                    self.check_there()
                if self._file.is_over:
                    upto = self._wanted
                    self._file.replace()
                self._done = upto
            except OSError as error:
                raise NotStored(f"{self._file.path}: {error.strerror or error}") from error
            finally:
                self._syncing = False
                self._synced.set()
                self._synced = trio.Event()

    # Partitions

    def refresh(self, ends: dict[int, int]) -> None:
        """Add the partitions that the consumer does not have yet. Raises OSError, Damaged."""
        fresh = not self.partitions
        for number, end in ends.items():
            if number in self.partitions:
                continue
            match self.options.start:
                case "latest" if fresh:
                    cursor = end
                case "offset":
                    cursor = min(self.options.value, end)
                case "time":
                    cursor = self._journal.offset_at(number, self.options.value, damaged="before")
                case _:
                    cursor = self._journal.bounds(number).start
            self.partitions[number] = Partition(self.options.limits, cursor)
            self._file.append(["cursor", number, cursor])

    def due(self) -> float | None:
        """Return the earliest deadline of a record in flight."""
        return min((due for each in self.partitions.values() if (due := each.due()) is not None), default=None)

    def expire(self, now: float) -> bool:
        """Make overdue records ready; return True if there are ready ones."""
        for number, state in self.partitions.items():
            self._note_given_up(number, state.expire(now))
        return any(state.ready for state in self.partitions.values())

    def info(self, ends: dict[int, int]) -> list[messages.ConsumerInfo]:
        """Return the state by partition."""
        return [
            messages.ConsumerInfo(
                self.name,
                number,
                state.cursor,
                state.floor,
                ends.get(number, state.cursor),
                len(state.open),
                state.settled,
                state.redelivered,
                state.given_up,
                state.skipped + state.below(self._journal.bounds(number).start),
            )
            for number, state in sorted(self.partitions.items())
        ]

    # Requests

    async def fetch(self, request: messages.FetchRequest, ends: dict[int, int]) -> list[messages.Columns]:
        """Return the next records, of up to about `request.size` bytes; an empty list if there are none.

        Raises TooLarge for a record that the client cannot receive.
        """
        async with self._reading:
            if request.session in self._left:
                return []
            session = self._session(request)
            self.expire(trio.current_time())
            self._ends = ends
            reply = _Reply(request, request.records, min(request.size, request.largest - OVERHEAD))
            numbers = sorted(self.partitions)
            self._turn = (self._turn + 1) % max(1, len(numbers))
            for number in numbers[self._turn :] + numbers[: self._turn]:
                if number not in self._feeds:
                    self._feeds[number] = Feed(self._journal, number, self.options.topics)
                try:
                    for step in (self._again, self._first):
                        if not reply.is_full:
                            await step(number, reply)
                except BaseException:
                    self._give_back(request.session, reply.batches)
                    raise
                finally:
                    self._note_skipped(number)
            if self._sessions.get(request.session) is not session:  # it has left during the read
                self._give_back(request.session, reply.batches)
                return []
            session.number = request.seen + 1
            session.last = [(columns.partition, columns.offsets) for columns in reply.batches]
            return reply.batches

    def _give_back(self, session: str, batches: list[messages.Columns]) -> None:
        for columns in batches:
            again = self.partitions[columns.partition].release(session, columns.offsets)
            self._note(columns.partition, again, 0.0)

    def _session(self, request: messages.FetchRequest) -> _Session:
        session = self._sessions.get(request.session)
        if session is None:
            if len(self._sessions) >= MOST_SESSIONS:
                self._sessions.pop(next(iter(self._sessions)))
            session = self._sessions[request.session] = _Session(request.seen)
        elif session.number != request.seen:  # the last reply did not arrive
            self._release(request.session, session)
            session.number = request.seen
        session.last = []
        return session

    def _release(self, name: str, session: _Session) -> None:
        for number, offsets in session.last:
            self._note(number, self.partitions[number].release(name, offsets), 0.0)
        session.last = []

    async def _again(self, number: int, reply: _Reply) -> None:
        """Append records that are delivered again to the batches."""
        state, session = self.partitions[number], reply.request.session
        due = state.again(reply.records, now=trio.current_time(), session=session) if state.ready else []
        if not due:
            return
        counts = dict(due)
        try:
            found, gone, later = await trio.to_thread.run_sync(self._feeds[number].again, list(counts), reply.size)
        except BaseException:  # not delivered, so that it does not count
            state.release(session, counts)
            raise
        if gone:  # retention or damage took them while they were in flight
            self._settle(number, runs_of(gone))
            self._feeds[number].skipped += len(gone)
            log_.warning("%s: %d records in flight are not readable any more", self.name, len(gone))
        if later:
            state.release(session, later)
        for columns in found:
            if any(offset not in state.open for offset in columns.offsets):  # settled during the read
                columns = _without(columns, lambda offset: offset in state.open)
            if len(columns.offsets):
                columns.counts = [counts[offset] for offset in columns.offsets]
                if (fits := max(_fitting(columns, reply.size), not reply.batches)) < len(columns.offsets):
                    state.release(session, columns.offsets[fits:])
                    first = set(columns.offsets[:fits])
                    columns = _without(columns, first.__contains__)
                if not fits or not self._fits(columns, reply):
                    state.release(session, columns.offsets)
                    continue
                reply.add(columns)
                by_count: dict[int, list[int]] = {}
                for offset in columns.offsets:
                    by_count.setdefault(counts[offset], []).append(offset)
                self._note(number, by_count, state.limits.ack_wait)

    async def _first(self, number: int, reply: _Reply) -> None:
        """Append records that are delivered for the first time to the batches."""
        state, session = self.partitions[number], reply.request.session
        feed, end = self._feeds[number], self._ends.get(number, 0)
        while state.cursor < end and not reply.is_full and (room := min(reply.records, state.room)) > 0:
            columns, behind = await trio.to_thread.run_sync(feed.take, state.cursor, end, room, reply.size)
            if columns is None:
                state.deliver([], behind=behind, now=trio.current_time(), session=session)
                self._file.append(["deliver", number, behind, 0, 1, b""])
                continue
            if state.ahead and len(state.unsettled(columns.offsets)) < len(columns.offsets):
                columns = _without(columns, lambda offset: offset not in state.ahead)
            if not self._fits(columns, reply):
                break
            offsets = columns.offsets
            state.deliver(offsets, behind=behind, now=trio.current_time(), session=session)
            self._note(number, {1: offsets}, state.limits.ack_wait)
            if len(offsets):
                reply.add(columns)

    def _fits(self, columns: messages.Columns, reply: _Reply) -> bool:
        """Return False if the records are for the next reply. Raises TooLarge if no reply can carry them."""
        whole, largest, alone = _size_of(columns) + OVERHEAD, reply.request.largest, not reply.batches
        if whole > largest and alone and len(columns.offsets) == 1:
            error = TooLarge(whole, largest)
            error.args = (f"{self.name}: offset {columns.offsets[0]} of partition {columns.partition}: {error}",)
            raise error
        return alone or len(columns.offsets) > 1 or _size_of(columns) <= reply.size

    async def settle(self, request: messages.SettleRequest, end: int) -> int:
        """Carry out the request; return how many records it concerned. An ack is on disk then.

        Raises NotStored; AccessDenied after an ack of records of which some were delivered to other sessions only.
        """
        state = self.partitions.get(request.partition)
        if state is None:
            raise ConfigError("partition", f"{self.name} has no partition {request.partition}", request.partition)
        now, runs = trio.current_time(), request.runs
        match request.how:
            case "nak":
                given_up, again = state.retry(runs, now=now, delay=request.delay, session=request.session)
                self._note_given_up(request.partition, given_up)
                self._note(request.partition, again, request.delay)
                self.notify()
                return len(given_up) + sum(map(len, again.values()))
            case "release":
                offsets = [offset for offset in offsets_in(runs) if offset in state.open]
                again = state.release(request.session, offsets)
                self._note(request.partition, again, 0.0)
                self.notify()
                return sum(map(len, again.values()))
            case "progress":
                extended = state.extend(runs, now=now, session=request.session)
                self._note(request.partition, extended, state.limits.ack_wait)
                return sum(map(len, extended.values()))
            case _:
                ahead = end if now < self._ahead_until else None
                known, foreign = self._settle(request.partition, runs, ahead, request.session)
                await self._sync()
                self.notify()
                if foreign or (ahead is None and any(sum(run) > state.cursor for run in runs)):
                    why = f"{self.name}: records of partition {request.partition} were not delivered to this session"
                    raise AccessDenied(why)
                return known

    def _settle(
        self, number: int, runs: Runs, end: int | None = None, session: str | None = None
    ) -> tuple[int, list[int]]:
        """Settle records, as Partition.settle does, and append that to the file."""
        state = self.partitions[number]
        cursor = state.cursor
        known, foreign = state.settle(runs, session=session, end=end)
        if foreign:
            others = set(foreign)
            within = ((first, min(first + count, cursor) - first) for first, count in runs if first < cursor)
            runs = runs_of(sorted({offset for offset in offsets_in(within) if offset not in others}))
        self._file.append(["settle", number, messages.pack_runs(runs)])
        beyond = [offset for offset in state.ahead if offset >= cursor]
        if beyond:
            self._file.append(["ahead", number, messages.pack_runs(runs_of(sorted(beyond)))])
        return known, foreign

    def _note(self, number: int, by_count: dict[int, list[int]], wait: float) -> None:
        """Write that the records are delivered again in `wait` seconds, unless they are settled before."""
        state = self.partitions[number]
        at = int((time.time() + wait - state.limits.ack_wait) * 1e6)
        for count, offsets in by_count.items():
            self._file.append(["deliver", number, state.cursor, at, count, messages.pack_runs(runs_of(offsets))])

    def _note_skipped(self, number: int) -> None:
        feed, state = self._feeds[number], self.partitions[number]
        if feed.skipped:
            state.skipped += feed.skipped
            feed.skipped = 0
            self._file.append(["skipped", number, state.skipped])

    def _note_given_up(self, number: int, offsets: list[int]) -> None:
        if offsets:
            self._file.append(["settle", number, messages.pack_runs(runs_of(offsets))])
            most = self.options.limits.max_deliver
            log_.warning(
                "%s: offset %d and %d more: given up after %s deliveries", self.name, offsets[0], len(offsets) - 1, most
            )

    def leave(self, name: str, seen: int) -> None:
        """End a session: make ready what it did not receive."""
        self._left[name] = None  # a fetch that was sent before may be handled after this
        if len(self._left) > MOST_SESSIONS:
            del self._left[next(iter(self._left))]
        session = self._sessions.pop(name, None)
        if session is not None:
            if session.number != seen:
                self._release(name, session)
            self.notify()

    def has_left(self, name: str) -> bool:
        """Return True if the session has ended."""
        return name in self._left

    def check_there(self) -> None:
        """Raise NotFound once it was deleted, also during a request."""
        if self.removed:
            raise NotFound(f"consumer {self.name}: it was deleted")

    def notify(self) -> None:
        """Wake waiting fetches."""
        self.version += 1
        self.wake.wake()

    def save(self) -> None:
        """Create the file, if there is none. Raises OSError."""
        if self._file.is_over:
            self._file.replace()

    def remove(self) -> None:
        """Delete the state. Raises OSError."""
        self.removed = True
        self._file.remove()
        self._file.close()
        self.notify()

    def discard(self) -> None:
        """Close the file as it is; a name that is new leaves none."""
        self._file.close()

    def close(self) -> None:
        """Close the file, after a last sync of what is not confirmed."""
        try:
            if self._file.is_over:
                self._file.replace()
            else:
                self._file.sync()
        except OSError as error:
            log_.error("%s: %s", self._file.path, error)
        self._file.close()


def _size_of(columns: messages.Columns) -> int:
    headers = 0 if columns.headers is None else sum(map(_header_size, columns.headers))
    return len(columns.data) + len(columns.key_data) + PER_RECORD * len(columns.offsets) + headers


def _header_size(pairs: list[Any]) -> int:
    return sum(len(name) + len(value) + PER_HEADER for name, value in pairs)


def _fitting(columns: messages.Columns, size: int) -> int:
    """Return how many of the first records have `size` bytes together."""
    if _size_of(columns) <= size:
        return len(columns.offsets)
    keys = columns.key_sizes or [0] * len(columns.offsets)
    headers = columns.headers or [()] * len(columns.offsets)
    sizes = zip(columns.sizes, keys, map(_header_size, headers), strict=True)
    return bisect_right(list(accumulate(value + max(key, 0) + PER_RECORD + more for value, key, more in sizes)), size)


def _without(columns: messages.Columns, keep: Any) -> messages.Columns:
    """Return the records that `keep` accepts. Rarely needed, so it is simple rather than fast."""
    rows = [row for row, offset in enumerate(columns.offsets) if keep(offset)]
    values, keys = columns.values(), columns.keys()
    return messages.Columns(
        columns.partition,
        [columns.offsets[row] for row in rows],
        [columns.times[row] for row in rows],
        None if columns.counts is None else [columns.counts[row] for row in rows],
        columns.topics,
        None if columns.topic_of is None else [columns.topic_of[row] for row in rows],
        [columns.sizes[row] for row in rows],
        b"".join(values[row] for row in rows),
        None if columns.key_sizes is None else [columns.key_sizes[row] for row in rows],
        b"".join(keys[row] or b"" for row in rows),
        None if columns.headers is None else [columns.headers[row] for row in rows],
    )
