"""Signal handlers that raise in the main thread: nothing is lost or duplicated."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from nngkit.errors import TimedOut
from nngkit.protocols import TLS, Batch, Bus, PeerEvent, Pub, Pull, Push, Rep, Req, Request, Sub
from nngkit.protocols._core import peer_queues as _peer_queues
from nngkit.protocols._core.poller import reader_thread
from nngkit.protocols._nng import operations as _operations
from nngkit.protocols._nng import process as _process
from nngkit.protocols._waiting.waiters import ThreadWaiter
from nngkit.testing import Background, aeventually, eventually
from tests.protocols.alarms import interrupt
from tests.protocols.wires import WAIT, said
from tests.switches import many_switches

PROTOCOLS = str(Path(_operations.__file__).parent.parent)

# ---- signal handlers that raise --------------------------------------------------------------------------------------


# `hammer(step)` runs step() repeatedly in the main thread and interrupts it about every millisecond, at any point. A
# step records its result in the expression that produced it: a handler runs at calls and jumps, and there is neither
# between the return of a Python function and the list that takes its result.
INTERRUPTED = """
    import signal, sys, threading, time
    from nngkit.errors import Closed, TimedOut
    from nngkit.protocols import *
    from nngkit.testing import eventually

    SECONDS, WHAT, SCHEME = float(sys.argv[1]), sys.argv[2], sys.argv[3]
    URL = {"inproc": "inproc://interrupted"}.get(SCHEME, f"{SCHEME}://127.0.0.1:0")
    SECURE = {}
    if SCHEME == "tls+tcp":
        import trustme
        authority = trustme.CA()
        one = authority.issue_cert("127.0.0.1")
        pems = one.cert_chain_pems[0].bytes(), one.private_key_pem.bytes()
        SECURE["tls"] = TLS(ca=authority.cert_pem.bytes(), cert=pems[0], key=pems[1])
    armed = False
    interrupts = 0

    class Interrupt(Exception):
        pass

    def interrupt(*_):
        global armed, interrupts
        if armed:
            armed = False
            interrupts += 1
            raise Interrupt

    def hammer(step):
        global armed
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                armed = True
                while time.monotonic() < end:
                    step()
                armed = False
            except Interrupt:
                pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert interrupts > 20, interrupts

    def number(body):
        return int(body[:8])
"""
RECEIVING = """
    count = 0
    over = threading.Event()

    def produce():
        global count
        while not over.is_set():
            push.send(b"%08d" % count + b"x" * (count % 50), timeout=30)
            count += 1

    push = Push(listen=URL, **SECURE, send_buffer=50)
    pull = Pull(dial=push.address, **SECURE)
    push.wait_for_peers(1, 15)
    thread = threading.Thread(target=produce)
    thread.start()
    got = []

    def recv():
        got.append(pull.recv(timeout=30))

    def recv_msg():
        got.append(pull.recv_msg(timeout=30))

    def recv_many():
        global got
        got += pull.recv_many(5, timeout=30)

    def timed_out():
        global got
        try:
            got += pull.recv_many(5, timeout=0.0005)
        except TimedOut:
            pass

    hammer({"recv": recv, "recv_msg": recv_msg, "recv_many": recv_many, "timed out": timed_out}[WHAT])
    over.set()
    while thread.is_alive():  # it may wait for room
        timed_out()
    while len(got) < count:
        try:
            got += pull.recv_many(timeout=1 if SECURE else 5)
        except TimedOut:
            assert SECURE
            break
    numbers = [number(body) for body in got]
    if SECURE:  # a connection ends if its decryption is interrupted, and what it brought is lost
        assert numbers == sorted(set(numbers)), "out of order, or doubled"
        assert pull.stats.left <= interrupts
    else:
        moved = [(place, one) for place, one in enumerate(numbers) if place != one]
        assert numbers == list(range(count)), (count, len(numbers), len(set(numbers)), interrupts, moved[:40])
    assert [len(body) for body in got] == [8 + one % 50 for one in numbers]
    pull.close(), push.close()
    print("done")
"""
SENDING = """
    got = []
    pull = Pull(listen=URL, **SECURE)
    push = Push(dial=pull.address, **SECURE, send_buffer=2, linger=30)
    push.wait_for_peers(1, 15)

    def consume():
        for body in pull:
            got.append(body)

    thread = threading.Thread(target=consume)
    thread.start()
    count = 0
    returned = []

    def send():
        global count
        count += 1
        push.send(b"%08d" % count + b"x" * (count % 50), timeout=30)
        returned.append(count)

    def send_many():
        global count
        first = count + 1
        count += 5
        push.send_many([b"%08d" % one + b"x" * (one % 50) for one in range(first, first + 5)], timeout=30)
        returned.extend(range(first, first + 5))

    def timed_out():
        global count
        count += 1
        try:
            push.send(b"%08d" % count + b"x" * (count % 50), timeout=0.0005)
            returned.append(count)
        except TimedOut:
            refused.append(count)

    refused = []
    hammer({"send": send, "send_many": send_many, "timed out": timed_out}[WHAT])
    push.send(b"%08d" % 0, timeout=30)
    end = time.monotonic() + 30
    while not got or number(got[-1]):
        assert time.monotonic() < end, "the last one does not arrive"
        time.sleep(0.01)
    pull.close()
    thread.join()
    numbers = [number(body) for body in got[:-1]]
    assert [len(body) for body in got[:-1]] == [8 + one % 50 for one in numbers], "a message was torn"
    assert numbers == sorted(set(numbers)), "out of order, or doubled"
    assert not set(returned) - set(numbers), f"lost: {sorted(set(returned) - set(numbers))[:10]} {interrupts}"
    assert not set(refused) & set(numbers), "timed out and sent all the same"
    assert push.stats.sent == len(got), (push.stats.sent, len(got))
    push.close()
    print("done")
"""
ASKING = """
    seen = []
    rep = Rep(listen=URL, **SECURE)
    req = Req(dial=rep.address, **SECURE)
    req.wait_for_peers(1, 15)

    def answer():
        for question in rep:
            seen.append(question.body)
            question.reply(question.body[::-1])

    thread = threading.Thread(target=answer)
    thread.start()
    count = 0
    asked = []

    def request():
        global count
        count += 1
        question = b"%08d" % count
        reply = req.request(question, timeout=30)
        asked.append((question, reply))

    hammer(request)
    assert req.request(b"last", timeout=30) == b"tsal"
    assert len(asked) > 20, len(asked)
    for question, reply in asked:
        assert reply == question[::-1], (question, reply)
    if not SECURE:  # see above
        assert len(seen) == len(set(seen)), "asked twice"
    assert {question for question, _ in asked} <= set(seen)
    assert not len(req._asking), "a request that ended is still waited for"
    stats = req.stats
    assert stats.resent <= (interrupts if SECURE else 0)
    assert stats.late <= interrupts
    rep.close()
    thread.join()
    req.close()
    print("done")
"""
PUBLISHING = """
    got = []
    sub = Sub(listen=URL, **SECURE, topics="", recv_buffer=8192)
    pub = Pub(dial=sub.address, **SECURE, send_buffer=8192, linger=30)
    pub.wait_for_peers(1, 15)

    def consume():
        for body in sub:
            got.append(number(body))

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    count = 0
    returned = []

    def publish():
        global count, waiting
        if waiting or not count % 100:
            waiting = True  # so that nothing is dropped; an interrupt does not end that
            if pub.stats.sent - len(got) > 2000:
                time.sleep(0.0005)
                return
            waiting = False
        count += 1
        pub.send(b"%08d" % count)
        returned.append(count)

    waiting = False
    hammer(publish)
    assert pub.drain(10), pub.stats  # an interrupted write continues without another send
    end = time.monotonic() + 10
    while len(got) < pub.stats.written:
        assert time.monotonic() < end, (len(got), pub.stats, sub.stats)
        time.sleep(0.01)
    assert (pub.stats.dropped, sub.stats.dropped) == (0, 0)
    assert got == sorted(set(got)), "out of order, or doubled"
    assert not set(returned) - set(got), f"lost: {sorted(set(returned) - set(got))[:10]} {interrupts}"
    assert pub.stats.sent == len(got), (pub.stats.sent, len(got))
    pub.close(), sub.close()
    thread.join()
    print("done")
"""
ANSWERING = """
    rep = Rep(listen=URL, **SECURE)
    req = Req(dial=rep.address, **SECURE)
    req.wait_for_peers(1, 15)
    over = threading.Event()
    asked = []
    lost = []

    def ask(number):
        count = 0
        while not over.is_set():
            count += 1
            question = b"%d %d" % (number, count)
            try:
                asked.append((question, req.request(question, timeout=1)))
            except TimedOut:
                lost.append(question)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    answered = []

    def answer():
        question = rep.recv(timeout=30)
        taken.append(question.body)
        question.reply(question.body[::-1])
        answered.append(question.body)

    taken = []
    hammer(answer)
    over.set()
    while any(thread.is_alive() for thread in threads):
        try:
            question = rep.recv(timeout=0.05)
        except TimedOut:
            continue
        question.reply(question.body[::-1])
    assert len(asked) > 20, len(asked)
    for question, reply in asked:
        assert reply == question[::-1], (question, reply)
    # a question is lost only where the handler interrupted its answer, or beside so much else that its reply was late
    unread = sorted(set(lost) & set(answered))
    eventually(lambda: len(unread) <= req.stats.late, 10)
    assert len(lost) - req.stats.late <= interrupts, (len(lost), req.stats, interrupts)
    rep.close(), req.close()
    print("done")
"""
PROGRAMS = {
    "recv": RECEIVING,
    "recv_msg": RECEIVING,
    "recv_many": RECEIVING,
    "recv, timed out": RECEIVING,
    "send": SENDING,
    "send_many": SENDING,
    "send, timed out": SENDING,
    "request": ASKING,
    "publish": PUBLISHING,
    "reply": ANSWERING,
}


def hammer(what: str, scheme: str, seconds: float) -> None:
    program = INTERRUPTED + PROGRAMS[what]
    assert said(program, str(seconds), what.rpartition(", ")[2], scheme, timeout=seconds + 2 * WAIT) == "done"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["tcp", "tls+tcp", "inproc"])
@pytest.mark.parametrize("what", PROGRAMS)
def test_a_signal_handler_that_raises_loses_and_duplicates_nothing(what: str, scheme: str) -> None:
    hammer(what, scheme, 0.7)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("scheme", ["tcp", "inproc"])
@pytest.mark.parametrize("what", PROGRAMS)
def test_a_signal_handler_that_raises_for_long_loses_and_duplicates_nothing(what: str, scheme: str) -> None:
    hammer(what, scheme, 10.0)


def leave_reading_to_the_test(pull: Pull) -> None:
    """Let the reader thread not read for ``pull``, which has a peer and has received nothing."""
    poller = pull._core.poller

    def polls() -> bool:
        with suppress(TimedOut):
            pull.recv(timeout=0.001)
        return poller.epoll is not None

    eventually(polls)
    assert poller.epoll is not None
    reader_thread().remove(poller, poller.epoll)


@pytest.mark.parametrize("call", ["recv", "recv_many", "recv_msg", "recv_msgs", "recv_view"])
def test_a_receive_that_is_interrupted_anywhere_keeps_the_order_if_another_thread_reads_next(call: str) -> None:
    """Failed once in a million messages: what the other thread read passed by the message in hand."""
    which, sent, reached = 0, 0, True
    got: list[bytes] = []
    with Push(listen="inproc://ordered") as push, Pull(dial=push.address) as pull:
        push.wait_for_peers(1, WAIT)
        poller, resume = pull._core.poller, pull._state.resume

        def send() -> None:
            nonlocal sent
            push.send(b"%d" % sent)
            sent += 1
            assert push.drain(WAIT)

        def resume_late() -> None:
            send()
            Background(poller.read_ready).result()
            resume()

        leave_reading_to_the_test(pull)
        pull._state.resume = resume_late
        while reached:
            send()
            while len(got) < sent:
                got += pull.recv_many(timeout=WAIT)
            send()  # it is received alone
            with interrupt(which, PROTOCOLS) as done:
                received = getattr(pull, call)(timeout=WAIT)
                got += received if isinstance(received, list) else [received]
            reached = bool(done)
            while len(got) < sent:
                got += pull.recv_many(timeout=WAIT)
            assert [int(bytes(one)) for one in got] == list(range(sent)), done
            which += 1
    assert which > 20


@pytest.mark.parametrize("call", ["recv", "recv_msg"])
@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "tls+tcp://127.0.0.1:0", "ws://127.0.0.1:0/x"])
def test_a_receive_that_is_interrupted_anywhere_is_made_up_for_without_another_message(
    url: str, call: str, shared_tls: TLS
) -> None:
    """Failed at 11 places of a WebSocket: the message stayed until the next one arrived."""
    which, reached = 0, True
    with Push(listen=url, tls=shared_tls) as push, Pull(dial=push.address, tls=shared_tls, recv_buffer=1) as pull:
        push.wait_for_peers(1, WAIT)
        leave_reading_to_the_test(pull)
        while reached:
            got: list[bytes] = []
            push.send(b"%d" % which)
            assert push.drain(WAIT)
            with interrupt(which, PROTOCOLS) as done:
                got.append(getattr(pull, call)(timeout=WAIT))
            reached = bool(done)
            if not got:
                got.append(getattr(pull, call)(timeout=WAIT))
            assert got == [b"%d" % which], done
            which += 1
    assert which > 20


@pytest.mark.parametrize("call", ["recv_msg", "recv_msgs"])
def test_a_first_receive_with_pipes_that_is_interrupted_anywhere_loses_nothing(call: str) -> None:
    """Failed at 27 places: the queue was emptied to give its messages their pipes."""
    which, reached = 0, True
    while reached:
        got: list[bytes] = []
        with Push(listen="inproc://named") as push, Pull(dial=push.address) as pull:
            push.send_many([b"0", b"1", b"2"])
            eventually(lambda: pull.stats.received == 3)
            with interrupt(which, PROTOCOLS) as done:
                received = getattr(pull, call)(timeout=WAIT)
                got += received if isinstance(received, list) else [received]
            reached = bool(done)
            while len(got) < 3:
                got += pull.recv_msgs(timeout=WAIT)
            assert [(bytes(one), getattr(one, "pipe", None)) for one in got] == [
                (b"%d" % number, pull.pipes[0]) for number in range(3)
            ], done
        which += 1
    assert which > 20


def test_an_unsubscribe_that_is_interrupted_anywhere_loses_nothing() -> None:
    """Failed at one place: the queue was emptied, and not filled again."""
    which, reached = 0, True
    with Pub(listen="inproc://unsubscribed") as pub, Sub(dial=pub.address, topics=["a"]) as sub:
        pub.wait_for_peers(1, WAIT)
        while reached:
            sub.subscribe("b")
            received = sub.stats.received
            pub.send_many([b"a0", b"b", b"a1"])
            eventually(lambda: sub.stats.received == received + 3)  # noqa: B023
            with interrupt(which, PROTOCOLS) as done:
                sub.unsubscribe("b")
            reached = bool(done)
            got = [sub.recv(timeout=WAIT), sub.recv(timeout=WAIT)]
            if b"b" in got:
                got += [sub.recv(timeout=WAIT)]
                got.remove(b"b")
            assert got == [b"a0", b"a1"], done
            if b"b" in sub.topics:
                sub.unsubscribe("b")
            which += 1
    assert which > 20


@pytest.mark.parametrize("call", ["send", "send_many", "send_except", "send_to", "send_to_some", "offer_to"])
def test_a_fan_out_that_is_interrupted_anywhere_is_written_and_counted(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed once: a burst was queued, and the alarm that ends it not set yet."""
    monkeypatch.setattr(_peer_queues, "BURST_GAP", 60.0)  # tracing is slow
    which, reached, got = 0, True, 0
    with Bus(listen="tcp://127.0.0.1:0") as bus, Bus(dial=bus.address) as other:
        bus.wait_for_peers(1, WAIT)
        [pipe] = bus.pipes
        calls: dict[str, Callable[[], object]] = {
            "send": lambda: bus.send(b"second"),
            "send_many": lambda: bus.send_many([b"second", b"third"]),
            "send_except": lambda: bus.send_except(None, [b"second", b"third"]),
            "send_to": lambda: bus.send_to(pipe, [b"second", b"third"]),
            "send_to_some": lambda: bus.send_to_some([pipe], b"second"),
            "offer_to": lambda: bus.offer_to(pipe, [b"second", b"third"]),
        }
        while reached:
            bus.send(b"first")
            assert bus.drain(WAIT)  # no alarm is set
            with interrupt(which, PROTOCOLS) as done:
                calls[call]()
            reached = bool(done)
            assert bus.drain(WAIT), which  # without another send
            while got < bus.stats.sent:
                other.recv(timeout=WAIT)
                got += 1
            which += 1
    assert which > (10 if call == "send" else 20)  # one message is queued in line


@pytest.mark.parametrize("place", range(3))
def test_a_reply_of_a_task_that_is_interrupted_anywhere_keeps_no_other_back(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replies of a loop's turn are written together: the interrupted one may be the first, or between others."""
    monkeypatch.setattr(_peer_queues, "TURN_GAP", 60.0)  # tracing is slow

    async def main() -> int:
        which, reached = 0, True
        async with Rep(listen="tcp://127.0.0.1:0") as rep, Req(dial=rep.address) as req:
            while reached:
                answered: set[bytes] = set()

                async def ask(body: bytes, answered: set[bytes] = answered) -> None:
                    answered.add(await req.arequest(body))

                with trio.fail_after(WAIT):
                    async with trio.open_nursery() as nursery:
                        for number in range(3):
                            nursery.start_soon(ask, b"%d" % number)
                        await aeventually(lambda: not rep._outbox._watchdog.is_set, WAIT)  # it would write them
                        requests: list[Request] = []
                        while len(requests) < 3:
                            requests += await rep.arecv_many()
                        for request in requests[:place]:
                            await request.areply(request.body)
                        with interrupt(which, PROTOCOLS) as done:
                            await requests[place].areply(requests[place].body)
                        for request in requests[place + 1 :]:
                            await request.areply(request.body)
                        others = {request.body for request in requests if request is not requests[place]}
                        await aeventually(partial(others.issubset, answered), WAIT)
                        nursery.cancel_scope.cancel()
                reached = bool(done)
                which += 1
        return which

    assert trio.run(main) > 10


@pytest.mark.parametrize("size", [10, 1000])
@pytest.mark.parametrize("call", ["send", "send_many", "publish"])
def test_a_batch_that_is_interrupted_anywhere_is_sent(call: str, size: int) -> None:
    """Failed at three places: a batch had no alarm, or no room for ever, or was lost."""
    batch = Batch(items=2 if call == "send" else 3, size=300, delay=0.001)  # the interrupted call fills it
    sender: Push | Pub
    receiver: Pull | Sub
    if call == "publish":
        sender, receiver = Pub(listen="tcp://127.0.0.1:0", batch=batch), Sub(topics="", batch=batch)
    else:
        sender, receiver = Push(listen="tcp://127.0.0.1:0", batch=batch), Pull(batch=batch)
    which, reached = 0, True
    with sender, receiver:
        receiver.dial(sender.address)
        sender.wait_for_peers(1, WAIT)
        got: list[bytes] = []
        while reached:
            sender.send(b"%04d" % which)
            with interrupt(which, PROTOCOLS) as done:
                if call == "send":
                    sender.send(bytes(size))
                else:
                    sender.send_many([bytes(size), bytes(size)])
            reached = bool(done)
            while len(got) < sender.stats.sent:  # without another send
                got.append(receiver.recv(timeout=WAIT))
            which += 1
    assert [body for body in got if any(body)] == [b"%04d" % number for number in range(which)]
    assert which > 5


@pytest.mark.parametrize("batch", [None, Batch(items=2, delay=0.001)], ids=["", "batch"])
def test_an_interrupted_send_is_no_gap_in_the_numbers(batch: Batch | None) -> None:
    which, reached, got = 0, True, 0
    with (
        Pub(listen="tcp://127.0.0.1:0", sequence=True, batch=batch) as pub,
        Sub(dial=pub.address, topics="", sequence=True, batch=batch) as sub,
    ):
        pub.wait_for_peers(1, WAIT)
        while reached:
            pub.send(b"first", topic=b"t")
            with interrupt(which, PROTOCOLS) as done:
                pub.send(b"second", topic=b"t")
            reached = bool(done)
            while got < pub.stats.sent:
                sub.recv(timeout=WAIT)
                got += 1
            assert (sub.stats.lost, sub.stats.duplicate) == (0, 0), done
            which += 1
    assert which > 20


class Freed:
    """True once NNG's objects that were opened since it was made are freed."""

    def __init__(self) -> None:
        self._before = set(_operations._owners)

    def __call__(self) -> bool:
        return self._before.issuperset(_operations._owners)

    def __repr__(self) -> str:
        return repr([one for number, one in _operations._owners.items() if number not in self._before])


@pytest.mark.parametrize("batch", [None, pytest.param(Batch(delay=10.0), marks=pytest.mark.slow)], ids=["", "batch"])
@pytest.mark.parametrize(
    "url",
    [
        "tcp://127.0.0.1:0",
        *(pytest.param(url, marks=pytest.mark.slow) for url in ("ws://127.0.0.1:0/x", "abstract://")),
        "inproc://closed",
    ],
)
def test_a_close_that_is_interrupted_anywhere_frees_everything(url: str, batch: Batch | None) -> None:
    which, reached, freed = 0, True, Freed()
    while reached:
        push = Push(listen=url, batch=batch, linger=0.0)
        with Pull(dial=push.address, batch=batch):
            push.wait_for_peers(1, WAIT)
            push.send(b"x")
            with interrupt(which, PROTOCOLS) as done:
                push.close()
            reached = bool(done)
            if not push.closed:  # interrupted before anything was done
                push.close()
            assert push not in _process._open, done
            Push(listen=push.address).close()  # the address is free
        eventually(freed, what=lambda: f"{done}: {freed}")
        which += 1
    assert which > 100


@pytest.mark.parametrize("scheme", ["tcp", "ws", "abstract", "inproc"])
def test_a_dial_that_is_interrupted_anywhere_dials_or_leaves_nothing(scheme: str) -> None:
    url = {"tcp": "tcp://127.0.0.1:0", "ws": "ws://127.0.0.1:0/x"}.get(scheme, f"{scheme}://dialed")
    which, reached, freed = 0, True, Freed()
    while reached:
        with Pull(listen=url) as pull, Push(linger=0.0) as push:
            with interrupt(which, PROTOCOLS) as done:
                push.dial(pull.address)
            reached = bool(done)
            if not push._dialed:
                push.dial(pull.address)
            push.wait_for_peers(1, WAIT)
            assert len(push.pipes) == 1, done
        eventually(freed, what=lambda: f"{done}: {freed}")
        which += 1
    assert which > 20


@pytest.mark.parametrize("scheme", ["ws", "abstract", "inproc"])
def test_a_listen_that_is_interrupted_anywhere_listens_or_leaves_nothing(scheme: str) -> None:
    """Failed at each place after the address was taken: it stayed in use for ever."""
    which, reached = 0, True
    with Pull(listen="ws://127.0.0.1:0/other") as other:  # at the same port, for ws
        url = other.address.replace("other", "this") if scheme == "ws" else f"{scheme}://listened"
        freed = Freed()
        while reached:
            with Pull() as pull:
                with interrupt(which, PROTOCOLS) as done:
                    pull.listen(url)
                reached = bool(done)
                if not pull.addresses:
                    pull.listen(url)
                with Push(dial=url) as push:
                    push.wait_for_peers(1, WAIT)
            eventually(freed, what=lambda: f"{done}: {freed}")
            which += 1
    assert which > 10


@pytest.mark.slow
def test_a_connection_whose_cut_is_interrupted_anywhere_ends_and_requeues_its_messages() -> None:
    count, which, reached = 20, 0, True
    body = bytes(500_000)
    while reached:
        left: list[str] = []
        with Push(listen="tcp://127.0.0.1:0", send_buffer=count, linger=0.0) as push:
            with Pull(dial=push.address, recv_buffer=1, reconnect=60.0):
                push.wait_for_peers(1, WAIT)
                push.on_peer(lambda event: left.append(event.reason) if event.kind == "left" else None)  # noqa: B023
                for number in range(count):
                    push.send(b"%03d" % number + body)
                with interrupt(which, PROTOCOLS) as done:
                    push.disconnect(push.pipes[0])
                reached = bool(done)
                for pipe in push.pipes:  # interrupted before anything was done
                    push.disconnect(pipe)
                assert (set(left), push.pipes, push.stats.left) == ({"disconnected"}, (), 1), which
            first = push.stats.written + push.stats.broken
            assert push.stats.unwritten == count - first > 0
            with Pull(dial=push.address, recv_max_size=600_000) as other:
                got = [int(other.recv(timeout=WAIT)[:3]) for _ in range(count - first)]
            assert got == list(range(first, count)), which
        eventually(lambda: not _operations._ending)
        which += 1
    assert which > 50


@pytest.mark.slow
def test_a_connection_whose_end_is_interrupted_anywhere_ends() -> None:
    """Failed once in thousands of programs: Ctrl-C came as the peer left, and its connection was never freed."""
    which, unreached = 0, 0
    with Push(listen="tcp://127.0.0.1:0") as last:
        while unreached < 5:  # sometimes another thread reads
            left: list[str] = []

            def send_last(event: PeerEvent) -> None:
                if event.kind == "left":
                    if not left:  # noqa: B023
                        last.send(b"last")
                    left.append(event.reason)  # noqa: B023

            with Pull(listen="tcp://127.0.0.1:0", dial=last.address) as pull, Push(dial=pull.address) as push:
                pull.wait_for_peers(2, WAIT)
                eventually(lambda: len(last.pipes) == 1)  # the one before has left
                leaver = next(pipe for pipe in pull.pipes if not pipe.dialed)
                end = pull.on_peer(send_last)

                def leave() -> None:
                    eventually(lambda: pull._core.poller.has_polling_waiter)
                    push.send_many([b"first", b"second"])
                    push.close()

                leaving = Background(leave)
                got: list[bytes] = []
                with interrupt(which, PROTOCOLS) as done:
                    while b"last" not in got:
                        got += pull.recv_many(timeout=WAIT)
                while b"last" not in got:
                    got += pull.recv_many(timeout=WAIT)
                leaving.result()
                eventually(lambda: left)  # noqa: B023
                assert got[:3] == [b"first", b"second", b"last"], (
                    which
                )  # a callback that is interrupted is called again
                assert (set(left), leaver in pull.pipes, pull.stats.left) == ({"the peer closed"}, False, 1), which
                end()
            eventually(lambda: not _operations._ending)
            which += 1
            unreached = 0 if done else unreached + 1
    assert which > 100


DEAF = """
    import signal, threading, time
    from pathlib import Path
    from nngkit.protocols import Pull

    def masks():
        found = {}
        for task in Path("/proc/self/task").iterdir():
            lines = (task / "status").read_text().splitlines()
            values = dict(line.partition(":\t")[::2] for line in lines)
            found[int(task.name)] = values["Name"], int(values["SigBlk"], 16)
        return found

    with Pull(listen="tcp://127.0.0.1:0"):
        ours = {thread.native_id for thread in threading.enumerate()}
        end = time.monotonic() + 15
        while True:  # until each has begun: taken its name, and the mask in place of the full one of a new thread
            theirs = {task: mask for task, mask in masks().items() if task not in ours}
            begun = [name.startswith("nng:") and not mask >> (signal.SIGSEGV - 1) & 1 for name, mask in theirs.values()]
            if begun and all(begun):
                break
            assert time.monotonic() < end, theirs
            time.sleep(0.01)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM, signal.SIGCHLD):
            assert all(mask >> (number - 1) & 1 for _, mask in theirs.values()), (number, theirs)
        for number in (signal.SIGBUS, signal.SIGABRT):
            assert not any(mask >> (number - 1) & 1 for _, mask in theirs.values()), (number, theirs)
        deaf = {thread.native_id for thread in threading.enumerate() if thread.name == "nngkit-freeing"}
        hearing = ours - deaf
        assert [masks()[task][1] for task in hearing] == [0] * len(hearing), "one of Python's threads was left deaf"
    print("done")
"""


def test_nngs_threads_do_not_take_signals() -> None:
    # a signal taken by an NNG thread is noted there and does not interrupt the main thread's wait
    assert said(DEAF) == "done"


def test_a_thread_may_stop_polling_while_it_is_woken() -> None:
    """Failed after a thousand closes: the waking thread read an attribute twice that the other cleared in between."""
    waiter = ThreadWaiter()
    over = threading.Event()

    def nothing() -> None:
        pass

    def poll() -> None:
        while not over.is_set():
            waiter.wake_poll = nothing
            threading.get_ident()  # a call, after which the other thread may run
            waiter.wake_poll = None

    with many_switches():
        polling = Background(poll)
        try:
            for _ in range(100_000):
                waiter.wake()
        finally:
            over.set()
    polling.result()
