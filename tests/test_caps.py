"""Every cap and limit that is reached in milliseconds, from one table: the last thing within it is taken, the next not.

A row has the number as docs and users know it, written out, so that a changed constant is noticed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from nngkit import envelope
from nngkit.calls.server import Server
from nngkit.calls.serving.failures import Failures
from nngkit.cli.diagnosis import MOST_PATH
from nngkit.cli.tools.traffic import Traffic
from nngkit.cluster import issue_ticket
from nngkit.cluster.admission import check_secret
from nngkit.cluster.content.holders import Holders
from nngkit.cluster.content.writer import SharedWriter
from nngkit.cluster.frames import check_id, check_kind
from nngkit.cluster.jobs.messages import Spec, Submit
from nngkit.cluster.jobs.operations import entry, finish_op, forgetting_ops, submit_op
from nngkit.cluster.jobs.submitter import SubmitLimits, Submitter
from nngkit.cluster.jobs.table import JobTable, Source
from nngkit.cluster.jobs.values import WorkLimits
from nngkit.cluster.node.letters import LetterLimits, Letters
from nngkit.cluster.node.node import Node
from nngkit.cluster.node.values import NodeConfig
from nngkit.devices.examining import Once
from nngkit.discovery.lanes import Preference
from nngkit.discovery.messages import SurveyReply
from nngkit.discovery.provider import Provider
from nngkit.discovery.questions.messages import AskQuery, SurveyAnswer, make_ask
from nngkit.discovery.questions.round import QuestionRound
from nngkit.discovery.questions.values import Until
from nngkit.documents.changes import Broadcast
from nngkit.documents.names import check_name as check_document
from nngkit.documents.sync.transfers import Transfers
from nngkit.errors import BadMessage, ConfigError, Full, TimedOut, TooLarge
from nngkit.fanout import encode_entries, parse_entries
from nngkit.fanout.durable.messages import Options
from nngkit.fanout.durable.partition import Limits, check_name
from nngkit.fanout.numbered.backlog import Backlog, HighWater
from nngkit.fanout.numbered.joining import Join
from nngkit.fanout.numbered.lag import Published
from nngkit.fanout.outbox.entries import OutboxReceiver
from nngkit.journal.ingest import encode_request, parse_request
from nngkit.journal.record import encode_origin
from nngkit.mesh.limits import MeshLimits
from nngkit.mesh.state import MeshState
from nngkit.protocols import Batch, Bus, Pair0, Pair1, Pattern, Pub, Pull, Push, Sub, Surveyor
from nngkit.protocols.batch import pack, unpack
from nngkit.testing import eventually

REFUSED = (BadMessage, ConfigError, Full, TimedOut, TooLarge, ValueError)


def taken(function: Callable[..., object], *arguments: Any, **options: Any) -> bool:
    """Return True unless the call refuses its arguments."""
    try:
        function(*arguments, **options)
    except REFUSED:
        return False
    return True


def text(function: Callable[[str], object]) -> Callable[[int], bool]:
    """Return the check of a function of a text, by the text's length in bytes."""
    return lambda n: taken(function, "x" * (n % 2) + "é" * (n // 2))


def plain(function: Callable[[str], object]) -> Callable[[int], bool]:
    """Return the same for text in ASCII."""
    return lambda n: taken(function, "x" * n)


# ---- queues of sockets: docs/protocols.md has the table --------------------------------------------------------------


def queued(kind: type[Pair0 | Pair1 | Push], when_full: Any) -> Callable[[int], bool]:
    """Return the check of a queue for all peers, by messages without a peer: a refusal is counted or raised."""

    def check(n: int) -> bool:
        with kind(send_buffer=3, when_full=when_full, send_timeout=0.001, linger=0.0) as ours:
            sent = [taken(ours.send, b"%d" % number) for number in range(n)]
            assert ours.stats.sent == (n if when_full == "drop_oldest" else min(n, 3))
            assert ours.stats.dropped == (max(0, n - 3) if when_full.startswith("drop") else 0)
            return all(sent) and not ours.stats.dropped

    return check


def read_ahead(kind: type[Sub | Bus], kept: bytes) -> Callable[[int], bool]:
    """Return the check of a receive queue that drops; `kept`: the first message that is received, of 0 to 3."""

    def check(n: int) -> bool:
        sender: Pub | Bus = Pub(listen="inproc://caps") if kind is Sub else Bus(listen="inproc://caps")
        options: dict[str, Any] = {"topics": [b""]} if kind is Sub else {}
        with sender, kind(dial="inproc://caps", recv_buffer=3, **options) as ours:
            sender.wait_for_peers(1, 5.0)
            for number in range(n):
                sender.send(b"%d" % number)
            eventually(lambda: ours.stats.read == n)
            assert ours.recv(timeout=5.0) == (kept if n > 3 else b"0")
            return ours.stats.dropped == 0

    return check


def held_back(n: int) -> bool:
    """Return True if a Pull with room for 3 has read n messages."""
    with (
        Pull(listen="inproc://caps", recv_buffer=3) as pull,
        Push(dial="inproc://caps", send_timeout=0.001, linger=0.0) as push,
    ):
        push.wait_for_peers(1, 5.0)
        for _ in range(n):
            push.send(b"x")
        eventually(lambda: pull.stats.read == min(n, 3))
        time.sleep(0.02)  # for one more
        assert pull.stats.dropped == 0
        return pull.stats.read == n


def too_large(n: int) -> bool:
    """Return True if a message of n bytes arrives within `recv_max_size=1000`."""
    with Pull(listen="inproc://caps", recv_max_size=1000) as pull, Push(dial="inproc://caps", linger=0.0) as push:
        push.send(bytes(n))
        eventually(lambda: pull.stats.read or pull.stats.too_large)
        return pull.stats.too_large == 0 and len(pull.recv(timeout=5.0)) == n


def max_pipes(n: int) -> bool:
    """Return True if n peers join a socket with `max_pipes=2`."""
    with Pull(listen="inproc://caps", max_pipes=2) as pull:
        peers = [Push(dial="inproc://caps", reconnect=5.0) for _ in range(n)]
        try:
            eventually(lambda: pull.stats.pipes + pull.stats.cut >= n)
            return pull.stats.cut == 0
        finally:
            for peer in peers:
                peer.close()


# ---- the rooms above -------------------------------------------------------------------------------------------------

PROVIDER = Provider("n", "tcp://h:1", "i", 1)
ASK = AskQuery("a", name="n")


def providers(n: int) -> tuple[Provider, ...]:
    """Return n providers."""
    return tuple(Provider("n", f"tcp://h:{number + 1}", f"{number}", 1) for number in range(n))


def answers_held(n: int) -> bool:
    """Return True if a question keeps n answers of providers that it does not know yet, and counts none as foreign."""
    this = QuestionRound(ASK, [1])
    for number in range(n):
        this.receive(1, SurveyAnswer(("n", "tcp://h:1", f"{number}", 1), b"").encode(), 0.1)
    return this.counters["foreign answers"] == 0


def names_counted(n: int) -> bool:
    """Return True if a server counts n kinds of errors by their names."""
    failures = Failures("s")
    for number in range(n):
        failures.count(str(number))
    return "other" not in failures.counts()


def handled(body: Any) -> Any:
    """Return the body, as a handler."""
    return body


def methods(n: int) -> bool:
    """Return True if a server takes n methods."""
    server = Server("s", listen="tcp://127.0.0.1:0", codec="cbor")
    return all(taken(server.method(str(number)), handled) for number in range(n))


def depth(n: int) -> bool:
    """Return True if lists n deep are decoded."""
    return taken(envelope.decode, b"\x81" * (n - 1) + b"\x80", what="x")


def unread(n: int) -> bool:
    """Return True if a reader of changes keeps n of them."""
    broadcast: Broadcast[int] = Broadcast()
    reader = broadcast.reader()
    for number in range(n):
        broadcast.send(number)
    reader.unread()
    return taken(reader.unread)


def backlog(n: int) -> bool:
    """Return True if a backlog of 3 keeps n messages."""
    this = Backlog(HighWater(messages=3), "report")
    this.put([Published(b"x", b"p" * 8, 1, number, 0, False, 0) for number in range(1, n + 1)], 0.0)
    assert this.dropped == max(0, n - 3)
    return this.dropped == 0


def joined(n: int) -> bool:
    """Return True if a join of 3 holds n live messages."""
    join = Join(3)
    join.hold([("s", number, b"x") for number in range(1, n + 1)])
    assert (join.held, join.dropped) == (min(n, 3), max(0, n - 3))
    return join.dropped == 0


def outboxes(n: int) -> bool:
    """Return True if a receiver remembers n outboxes."""
    receiver = OutboxReceiver({number.to_bytes(16, "big"): 1 for number in range(n - 1)})
    receiver.accept(encode_entries(b"o" * 16, 0, [b"x"]))
    return len(receiver.positions) == n


def once(n: int) -> bool:
    """Return True if the first of n bodies is remembered."""
    remembers = Once(60.0)
    assert all(remembers.is_new(b"%d" % number, 0.0) for number in range(n))
    return not remembers.is_new(b"0", 0.0)


def rows(n: int) -> bool:
    """Return True if n peers have rows of their own."""
    traffic = Traffic(0.0)
    for number in range(n):
        traffic.add(b"x", str(number), 0.0)
    return "(others)" not in {row.topic for row in traffic.rows(1.0)}


def submitted(limits: SubmitLimits, payload: bytes) -> Callable[[int], bool]:
    """Return the check of a submitter, by jobs."""

    def check(n: int) -> bool:
        submitter = Submitter("a", 1, limits)
        return all(taken(submitter.submit, "k", payload, 0.0) for _ in range(n))

    return check


def letters(limits: LetterLimits, receiver: str) -> Callable[[int], bool]:
    """Return the check of the letters of a node, by letters; `receiver` is formatted with the number of each."""

    def check(n: int) -> bool:
        out = Letters(1, limits)
        return all(taken(out.send, receiver.format(number), "k", b"", 0.0) for number in range(n))

    return check


def sent_ahead(n: int) -> bool:
    """Return True if n jobs are sent before the host has told its window."""
    submitter = Submitter("a", 1)
    submitter.attached(1, 0.0)
    for _ in range(n):
        submitter.submit("k", b"", 0.0)
    sent = sum(
        len(group.numbers)
        for message in submitter.take(0.0).sends
        if isinstance(message, Submit)
        for group in message.groups
    )
    assert sent == min(n, 1000)
    return sent == n


def questions(n: int) -> bool:
    """Return True if a node repeats all of n questions that have no answer."""
    node = Node(NodeConfig(cluster="c", id="a"), epoch=1, now=0.0, wall=0.0, rng=Random(1), entropy=Random(1).randbytes)
    numbers = {node.questions.ask("status", "", 0.0) for _ in range(n)}
    with patch.object(node.questions, "_post") as post:
        node.questions.attached(0.0)
    return len(post.mock_calls) == len(numbers)


def documents_of_holders(n: int) -> bool:
    """Return True if a host knows the holders of n documents."""
    holders = Holders("host", 0.0)
    for number in range(n):
        holders.opened(str(number), "a", 1.0, parent="", avoid="")
    return holders.refused == 0


def forgotten(*, keyed: bool) -> Callable[[int], bool]:
    """Return the check of the finished jobs that are forgotten at once."""

    def check(n: int) -> bool:
        table, numbers = JobTable(), list(range(1, n + 1))
        keys = [b"%d" % number for number in numbers] if keyed else None
        operation = submit_op(Source("a", 1), 1, 0.0, Spec("k"), numbers, [b""] * n, keys)
        jobs = [job for group in table.apply(entry([operation])).accepted for job in group]
        table.apply(entry([finish_op(0.0, [job.serial for job in jobs], [b""] * n, [1] * n)]))
        _, operations = forgetting_ops(table, WorkLimits(), 0.0, 1e6)
        return len(operations[0][-1]) == n

    return check


def shared_changes(n: int) -> bool:
    """Return True if n changes of a shared object wait for the host."""
    writer = SharedWriter("o")
    return all(taken(writer.change, b"") for _ in range(n))


def transfers(n: int) -> bool:
    """Return True if the first of n large updates is still kept."""
    cache = Transfers()
    manifests = [cache.offer(bytes([number]) * (256 * 1024 + 1), name=b"%d" % number, now=0.0) for number in range(n)]
    assert not any(isinstance(manifest, bytes) for manifest in manifests)
    return bool(cache.chunks(b"0", (0,), 0.0))


class Cap(NamedTuple):
    """Limit, and whether a number is within it."""

    of: str
    most: int
    within: Callable[[int], bool]


POLICIES: dict[type[Pair0 | Pair1 | Push], tuple[str, ...]] = dict.fromkeys(
    (Pair0, Pair1, Push), ("block", "drop", "drop_oldest", "raise")
)


def caps() -> Iterator[Cap]:
    """Yield the table."""
    for kind, policies in POLICIES.items():
        for policy in policies:
            yield Cap(f"{kind.__name__}: send_buffer, {policy}", 3, queued(kind, policy))
        yield Cap(f"{kind.__name__}: send_buffer, any", 8192, partial(buffered, kind))
    yield Cap("Sub: recv_buffer, keeps the newest", 3, read_ahead(Sub, b"1"))
    yield Cap("Bus: recv_buffer, keeps the oldest", 3, read_ahead(Bus, b"0"))
    yield Cap("Pull: recv_buffer, holds back", 3, held_back)
    yield Cap("Pull: recv_buffer, any", 8192, lambda n: configured(Pull, recv_buffer=n))
    yield Cap("Surveyor: recv_buffer, any", 1 << 20, lambda n: configured(Surveyor, recv_buffer=n))
    yield Cap("recv_max_size", 1000, too_large)
    yield Cap("max_pipes", 2, max_pipes)
    yield Cap("name of a socket", 63, text(lambda name: configured(Pull, check=False, name=name)))
    yield Cap("path of a Unix socket", MOST_PATH, lambda n: configured(Pull, dial="ipc://" + "x" * n))
    yield Cap("tokens of a pattern", 64, lambda n: taken(Pattern, ".".join("x" * n)))
    yield Cap("messages of a batch", 65_536, lambda n: taken(unpack, pack([b""] * n), largest=1))
    yield Cap("items of a batch", 65_536, lambda n: taken(Batch, items=n))

    yield Cap("envelope: bytes", 64 * 1024, lambda n: taken(envelope.decode, envelope.encode(bytes(n - 3)), what="x"))
    yield Cap("envelope: depth", 32, depth)

    yield Cap("provider: name", 128, text(lambda name: Provider(name, "tcp://h:1")))
    yield Cap("provider: address", 256, plain(lambda name: Provider("n", f"tcp://{name[6:]}")))
    yield Cap("provider: id", 64, plain(lambda name: Provider("n", "tcp://h:1", name, 1)))
    yield Cap("provider: version", 64, text(lambda version: replace(PROVIDER, version=version)))
    yield Cap("provider: zone", 64, text(lambda zone: replace(PROVIDER, zone=zone)))
    yield Cap("provider: tag", 64, text(lambda tag: replace(PROVIDER, tags=frozenset([tag]))))
    yield Cap("provider: tags", 16, lambda n: taken(replace, PROVIDER, tags=frozenset(map(str, range(n)))))
    yield Cap("provider: epoch", 2**63 - 1, lambda n: taken(replace, PROVIDER, epoch=n))
    yield Cap("provider: load", 10**9, lambda n: taken(replace, PROVIDER, load=n))
    yield Cap("provider: weight", 65_535, lambda n: taken(replace, PROVIDER, weight=n))
    yield Cap("provider: priority", 16, lambda n: taken(replace, PROVIDER, priority=n))
    yield Cap("survey: providers of a reply", 64, lambda n: taken(SurveyReply("s", providers(n)).encode))
    yield Cap("preference: zones", 16, lambda n: taken(Preference, prefer=tuple(map(str, range(n)))))
    yield Cap("preference: bytes of a zone", 64, text(lambda zone: Preference(prefer=(zone,))))
    yield Cap("question: seconds", 60, lambda n: taken(Until, n))
    yield Cap("question: bytes", 60 * 1024, lambda n: taken(make_ask, "a", bytes(n), None, Until(1.0)))
    yield Cap("question: bytes of an answer", 60 * 1024, lambda n: taken(SurveyAnswer(PROVIDER.key, bytes(n)).encode))
    yield Cap("question: answers of unknown providers", 1024, answers_held)

    yield Cap("server: methods", 256, methods)
    yield Cap("server: concurrency", 65_536, lambda n: taken(Server, "s", handled, concurrency=n))
    yield Cap("server: kinds of errors by name", 64, names_counted)

    yield Cap("consumer: name", 64, plain(check_name))
    yield Cap("consumer: topics", 256, lambda n: taken(Options, topics=tuple(map(str, range(n)))))
    yield Cap("consumer: records in flight", 1 << 20, lambda n: taken(Limits, max_ack_pending=n))
    yield Cap("consumer: deliveries", (1 << 31) - 1, lambda n: taken(Limits, max_deliver=n))
    yield Cap("subscriber: backlog", 3, backlog)
    yield Cap("follower: live messages held while it reads the journal", 3, joined)
    yield Cap(
        "outbox: values of a message", 65_536, lambda n: taken(parse_entries, encode_entries(b"o" * 16, 0, [b""] * n))
    )
    yield Cap("outbox: outboxes that a receiver remembers", 65_536, outboxes)
    yield Cap("mesh: id", 64, text(lambda name: MeshState(name, 1, 0.0, MeshLimits())))
    yield Cap("mesh: epoch", (1 << 53) - 1, lambda n: taken(MeshState, "i", n, 0.0))
    yield Cap("journal: topic", 1024, text(lambda topic: encode_origin(topic, "sub", None)))
    yield Cap("journal: id of a request", 64, lambda n: taken(parse_request, encode_request(bytes(n), [b""])))
    yield Cap("journal: values of a request", 65_536, lambda n: taken(parse_request, encode_request(b"", [b""] * n)))
    yield Cap("device: bodies remembered by `once`", 65_536, once)
    yield Cap("top: rows", 1000, rows)

    yield Cap("document: name", 200, text(check_document))
    yield Cap("document: unread changes", 4096, unread)
    yield Cap("document: large transfers kept", 16, transfers)
    yield Cap("shared object: changes that wait", 65_536, shared_changes)
    yield Cap("shared object: bytes of a change", 256 * 1024, lambda n: taken(SharedWriter("o").change, bytes(n)))

    yield Cap("cluster: id", 64, text(check_id))
    yield Cap("cluster: kind", 64, text(check_kind))
    yield Cap("cluster: token", 1024, text(lambda token: check_secret("token", token)))
    yield Cap("cluster: name in a ticket", 64, text(lambda name: issue_ticket("t", name, until=1.0)))
    yield Cap("cluster: jobs of a submitter", 3, submitted(SubmitLimits(jobs=3), b""))
    yield Cap("cluster: bytes of jobs", 3, submitted(SubmitLimits(bytes=30), bytes(10)))
    yield Cap("cluster: letters to one node", 3, letters(LetterLimits(waiting=3), "b"))
    yield Cap("cluster: jobs sent ahead", 1000, sent_ahead)
    yield Cap("cluster: questions without an answer", 1024, questions)
    yield Cap("cluster: documents of the table of holders", 65_536, documents_of_holders)
    yield Cap("cluster: finished jobs forgotten at once", 5000, forgotten(keyed=False))
    yield Cap("cluster: finished jobs with keys forgotten at once", 5000, forgotten(keyed=True))
    yield Cap("cluster: nodes with letters", 3, letters(LetterLimits(receivers=3), "{}"))


def buffered(kind: Any, n: int) -> bool:
    """Return True if a socket can have a queue of n messages to send."""
    return configured(kind, send_buffer=n)


def configured(kind: Any, *, check: bool = True, **options: Any) -> bool:
    """Return True if a socket can have these options."""
    if not check:
        kind(**options).close()
        return True
    return taken(lambda: kind(**options).close())


@pytest.mark.parametrize("cap", list(caps()), ids=lambda cap: cap.of)
def test_the_last_within_a_cap_is_taken_and_the_next_is_not(cap: Cap) -> None:
    assert cap.within(cap.most)
    assert not cap.within(cap.most + 1)
