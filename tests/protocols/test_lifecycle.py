"""Life of a socket: refused options and addresses, closing under waiters, and reconnecting."""

from __future__ import annotations

import inspect
import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from nngkit.errors import Closed, ConfigError, TimedOut, Unreachable
from nngkit.protocols import (
    Bus,
    Message,
    Pair0,
    Pair1,
    Pipe,
    Pub,
    Pull,
    Push,
    Rep,
    Req,
    Request,
    Respondent,
    Sub,
    Surveyor,
)
from nngkit.testing import BLOCKING, CALLERS, Background, Caller, Wire, eventually
from tests.protocols.kinds_of_sockets import TCP, every_kind
from tests.protocols.wires import WAIT

# ---- invalid addresses and options -----------------------------------------------------------------------------------


NO_ADDRESSES = (
    "",
    "127.0.0.1:80",
    "tcp:/127.0.0.1:80",
    "http://127.0.0.1:80",
    "carrier-pigeon://loft",
    "tcp://[::1:80",
    "tcp://127.0.0.1:port",
    "tcp://127.0.0.1:65536",
    "ipc:///" + "x" * 107,
)
NOT_TO_DIAL = ("tcp://127.0.0.1:0", "tcp://127.0.0.1", "ipc://", "inproc://", "abstract://")


@pytest.mark.parametrize("url", NO_ADDRESSES)
@pytest.mark.parametrize("way", ["listen", "dial"])
def test_an_invalid_address_is_a_config_error_that_shows_it(way: str, url: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        Push(**{way: url})  # type: ignore[arg-type]
    assert wrong.value.what == way
    assert wrong.value.value == url
    assert url in str(wrong.value)


@pytest.mark.parametrize("url", NOT_TO_DIAL)
def test_an_address_without_host_or_port_cannot_be_dialed(url: str) -> None:
    with pytest.raises(ConfigError, match="dial needs"):
        Push(dial=url)


def test_an_invalid_url_does_not_affect_an_open_socket(tcp: Wire) -> None:
    with Push(listen=tcp.address()) as push, Pull(dial=push.address) as pull:
        for way in (push.listen, push.dial):
            with pytest.raises(ConfigError):
                way("nonsense")
        push.send(b"still here")
        assert pull.recv(timeout=WAIT) == b"still here"
        assert len(push.addresses) == 1


def test_an_address_in_use_is_unreachable(wire: Wire) -> None:
    with Pull(listen=wire.address(), **wire.options) as pull:
        with pytest.raises(Unreachable, match="in use") as taken:
            Push(listen=pull.address, **wire.options)
        assert taken.value.address == pull.address
        assert taken.value.reason


def test_a_path_that_cannot_be_listened_on_is_unreachable() -> None:
    with pytest.raises(Unreachable) as wrong:
        Push(listen="ipc:///nowhere/at/all")
    assert wrong.value.address == "ipc:///nowhere/at/all"


def test_a_foreign_ip_address_cannot_be_listened_on() -> None:
    with pytest.raises(Unreachable, match=r"192\.0\.2\.1"):  # RFC 5737: for documentation
        Push(listen="tcp://192.0.2.1:0")


def test_a_socket_that_does_not_listen_has_no_address() -> None:
    with Push() as push, pytest.raises(ConfigError, match="does not listen"):
        _ = push.address


def test_a_socket_that_could_not_be_opened_keeps_no_address(tcp: Wire) -> None:
    with tcp.reserved() as address:
        with pytest.raises(ConfigError):
            Pull(listen=[address, "nonsense"])
        with Pull(listen=address) as pull:
            assert pull.address == address


WRONG: tuple[tuple[str, Any], ...] = (
    ("recv_max_size", -1),
    ("recv_max_size", (1 << 30) + 1),
    ("recv_max_size", 1.5),
    ("recv_max_size", True),
    ("recv_timeout", -1),
    ("recv_timeout", "1"),
    ("send_timeout", -0.5),
    ("send_timeout", math.nan),
    ("send_timeout", math.inf),
    ("recv_buffer", 0),
    ("recv_buffer", 8193),
    ("recv_window", 0),
    ("send_buffer", -1),
    ("send_buffer", 8193),
    ("send_window", 0),
    ("send_window", -1),
    ("handshake_timeout", -1),
    ("handshake_timeout", "soon"),
    ("idle_timeout", -0.1),
    ("idle_timeout", math.nan),
    ("peer_timeout", 0),
    ("peer_timeout", 2.9),
    ("peer_timeout", 601),
    ("peer_timeout", math.nan),
    ("peer_timeout", "10"),
    ("max_pipes", -1),
    ("max_pipes", 1.5),
    ("max_pipes_per_host", -1),
    ("max_pipes_per_host", True),
    ("when_full", "perhaps"),
    ("when_full", ""),
    ("reconnect", 0),
    ("reconnect", -1),
    ("linger", -1),
    ("linger", "long"),
    ("name", "x" * 64),
    ("name", "zero\0byte"),
    ("name", 7),
)


def test_a_surveyor_may_keep_a_million_replies_of_each_survey() -> None:
    with Surveyor(recv_buffer=1 << 20):
        pass
    with pytest.raises(ConfigError, match="from 1 to 1048576"):
        Surveyor(recv_buffer=(1 << 20) + 1)


@pytest.mark.parametrize(("option", "value"), WRONG)
def test_an_invalid_option_is_a_config_error_that_names_it(option: str, value: Any) -> None:
    with pytest.raises(ConfigError) as wrong:
        Pair1(**{option: value})
    assert wrong.value.what == option
    assert wrong.value.value is value


@pytest.mark.parametrize(
    ("kind", "policy"),
    [(Pub, "raise"), (Bus, "block"), (Surveyor, "raise"), (Req, "drop"), (Rep, "drop_oldest"), (Pull, "raise")],
)
def test_an_unsupported_policy_is_refused(kind: Callable[..., Any], policy: str) -> None:
    with pytest.raises(ConfigError, match="when_full"):
        kind(when_full=policy)


def test_every_timeout_may_be_zero_or_an_int() -> None:
    with Pull(recv_timeout=0, send_timeout=3, linger=0) as pull, pytest.raises(TimedOut):
        pull.recv()


# ---- after close -----------------------------------------------------------------------------------------------------


A_PEER = Pipe(1, "tcp://127.0.0.1:1", True)
COMMON: dict[str, tuple[Any, ...]] = {
    "listen": (TCP,),
    "dial": ("tcp://127.0.0.1:1",),
    "undial": ("tcp://127.0.0.1:1",),
    "disconnect": (A_PEER,),
    "wait_for_peers": (),
    "await_for_peers": (),
}
SENDS: dict[str, tuple[Any, ...]] = {
    "send": (b"",),
    "asend": (b"",),
    "send_many": ([b""],),
    "asend_many": ([b""],),
    "flush": (),
    "aflush": (),
    "loan": (1,),
}
TAKES: dict[str, tuple[Any, ...]] = {"recv": (), "arecv": (), "recv_many": (), "arecv_many": ()}
NAMES: dict[str, tuple[Any, ...]] = dict.fromkeys(
    ("recv_msg", "arecv_msg", "recv_msgs", "arecv_msgs", "recv_view", "arecv_view"), ()
)
METHODS: dict[Callable[..., Any], dict[str, tuple[Any, ...]]] = {
    Pair0: SENDS | TAKES | NAMES,
    Pair1: SENDS | TAKES | NAMES,
    Bus: SENDS
    | TAKES
    | NAMES
    | {"relay": ([Message(b"", None)],), "send_except": (None, [b""])}
    | {"send_to": (A_PEER, [b""]), "offer_to": (A_PEER, [b""]), "send_to_some": ([], b"")},
    Push: SENDS,
    Pull: TAKES | NAMES,
    Pub: SENDS,
    Sub: TAKES
    | NAMES
    | {"subscribe": (b"a",), "subscribe_many": ([b"a"],), "unsubscribe": (b"",), "unsubscribe_many": ([b""],)},
    Req: dict.fromkeys(("request", "arequest", "request_view", "arequest_view"), (b"",)) | {"loan": (1,)},
    Rep: TAKES | {"reply_many": ([],)},
    Surveyor: dict.fromkeys(("survey", "asurvey", "start", "astart", "survey_iter", "asurvey_iter"), (b"",)),
    Respondent: TAKES | {"reply_many": ([],)},
}
OTHERS = {  # these report the past, or end
    "close",
    "aclose",
    "drain",
    "adrain",
    "on_peer",
    "apeer_events",
    "on",  # the decorator that it returns raises
    "serve",
    "aserve",
    "topic_of",
    "divide",  # these only say how messages are chosen
    "sift",
}


def call_in_full(method: Callable[..., Any], *arguments: Any) -> Any:
    """Call it; await or iterate over the result, if it has to be."""

    async def awaited() -> Any:
        outcome = method(*arguments)
        if inspect.isawaitable(outcome):
            return await outcome
        return [one async for one in outcome]

    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        return trio.run(awaited)
    outcome = method(*arguments)
    if hasattr(outcome, "__aiter__"):
        return trio.run(awaited)
    return list(outcome) if hasattr(outcome, "__next__") else outcome


@every_kind
def test_after_close_every_method_raises_closed(kind: Callable[..., Any]) -> None:
    options = {"topics": b""} if kind is Sub else {}
    sock = kind(listen=TCP, **options)
    address = sock.address
    sock.close()
    methods = COMMON | METHODS[kind]
    for name, arguments in methods.items():
        with pytest.raises(Closed, match=r"is closed"):
            pytest.fail(f"{name} returned {call_in_full(getattr(sock, name), *arguments)!r}")
    public = {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
    assert public - OTHERS == set(methods), "a method that this test does not know"
    # still available on a closed socket
    assert sock.closed
    assert (sock.address, sock.pipes, sock.stats.pipes) == (address, (), 0)
    assert kind.__name__ in repr(sock)
    sock.close()
    trio.run(sock.aclose)
    assert sock.drain() is True
    assert call_in_full(sock.apeer_events) == []


@pytest.mark.parametrize("kind", [Pull, Rep, Respondent, Sub, Bus])
def test_iterating_over_a_closed_socket_ends(kind: Callable[..., Any], caller: Caller) -> None:
    sock = kind()
    sock.close()
    assert caller.every(sock) == []


def test_a_question_cannot_be_answered_after_close(tcp: Wire, caller: Caller) -> None:
    with Rep(listen=tcp.address()) as rep, Req(dial=rep.address) as req:
        asking = Background(req.request, b"?", timeout=WAIT)
        question = rep.recv(timeout=WAIT)
        assert isinstance(question, Request)
        rep.close()
        with pytest.raises(Closed):
            caller.call(question.reply, b"!")
        req.close()
        assert isinstance(asking.error(), Closed)


# ---- close wakes waiters ---------------------------------------------------------------------------------------------


def waiting(sock: Any) -> int:
    """Return the number of waiters on ``sock``, for which there is no public counter."""
    asking = len(sock._asking) if hasattr(sock, "_asking") else 0
    return asking + len(sock._inbox.waiters) + len(sock._outbox.waiters) + len(sock._state.peer_waiters)


WAITS: dict[str, tuple[Callable[..., Any], str, tuple[Any, ...]]] = {
    "recv": (Pull, "recv", ()),
    "recv_many": (Bus, "recv_many", ()),
    "recv_msg": (Pair1, "recv_msg", ()),
    "request received": (Rep, "recv", ()),
    "query received": (Respondent, "recv", ()),
    "send": (partial(Push, send_buffer=0, linger=0.0), "send", (b"x",)),
    "send_many": (partial(Pair0, send_buffer=0, linger=0.0), "send_many", ([b"x"],)),
}


@pytest.mark.parametrize("what", WAITS)
@pytest.mark.parametrize("closer", CALLERS, ids=lambda caller: caller.name)
def test_close_wakes_all_waiters(what: str, closer: Caller) -> None:
    kind, method, arguments = WAITS[what]
    sock = kind(listen=TCP)
    waiters = [caller.start(getattr(sock, method), *arguments) for caller in CALLERS for _ in range(2)]
    eventually(lambda: waiting(sock) == len(waiters))
    if closer is BLOCKING:
        sock.close()
    else:
        closer.call(sock.close)  # is aclose
    for waiter in waiters:
        assert type(waiter.error()) is Closed


def test_close_wakes_callers_that_wait_for_peers() -> None:
    sock = Pull(listen=TCP)
    waiters = [Background(sock.wait_for_peers), Background(trio.run, sock.await_for_peers)]
    waiters.append(Background(trio.run, partial(sock.await_for_peers, 1, WAIT)))
    eventually(lambda: waiting(sock) == 3)
    sock.close()
    assert [type(waiter.error()) for waiter in waiters] == [Closed] * 3


def test_close_ends_the_peer_events(tcp: Wire) -> None:
    async def follow(sock: Any) -> list[str]:
        return [event.kind async for event in sock.apeer_events()]

    with Push(listen=tcp.address()) as push:
        pull = Pull(dial=push.address)
        following = Background(trio.run, follow, push)
        eventually(lambda: waiting(push) == 1)
        push.wait_for_peers(1, WAIT)
        pull.close()
        eventually(lambda: push.stats.left == 1)
        push.close()
        assert following.result() == ["joined", "left"]


def test_close_ends_requests_in_progress(tcp: Wire) -> None:
    with Rep(listen=tcp.address()) as rep:
        req = Req(dial=rep.address)
        requesters = [caller.start(req.request, b"?") for caller in CALLERS for _ in range(2)]
        assert [rep.recv(timeout=WAIT).body for _ in requesters] == [b"?"] * len(requesters)
        req.close()
        assert [type(requester.error()) for requester in requesters] == [Closed] * len(requesters)


def test_close_ends_requests_that_wait_for_a_peer() -> None:
    req = Req(listen=TCP)
    requesters = [caller.start(req.request, b"?") for caller in CALLERS]
    eventually(lambda: waiting(req) == 2 * len(requesters))  # each for a peer, and for its reply
    req.close()
    assert [type(requester.error()) for requester in requesters] == [Closed] * len(requesters)


def test_close_ends_a_survey_in_progress(tcp: Wire) -> None:
    with Respondent(listen=tcp.address()) as respondent:
        surveyor = Surveyor(dial=respondent.address)
        surveyor.wait_for_peers(1, WAIT)
        requesters = [caller.start(surveyor.survey, b"?", timeout=WAIT * 2) for caller in CALLERS]
        assert [respondent.recv(timeout=WAIT).body for _ in requesters] == [b"?"] * len(requesters)
        surveyor.close()
        assert [type(requester.error()) for requester in requesters] == [Closed] * len(requesters)


def test_waiting_iterations_end_with_close() -> None:
    pull = Pull(listen=TCP)
    readers = [Background(caller.every, pull) for caller in CALLERS]
    eventually(lambda: waiting(pull) == len(readers))
    pull.close()
    assert [reader.result() for reader in readers] == [[]] * len(readers)


def test_many_concurrent_closes_all_return() -> None:
    pull = Pull(listen=TCP)
    closers = [caller.start(pull.close) for caller in CALLERS for _ in range(3)]
    for closer in closers:
        assert closer.result() is None
    assert pull.closed


# ---- reconnecting ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_dialer_is_back_within_200_ms_of_its_listeners_return(tcp: Wire) -> None:
    took = []
    with tcp.reserved() as address, Pull(dial=address) as pull:
        for _ in range(5):
            with Push(listen=address) as push:
                start = time.monotonic()
                pull.wait_for_peers(1, WAIT)
                took.append(time.monotonic() - start)
                push.send(b"back")
                assert pull.recv(timeout=WAIT) == b"back"
            eventually(lambda: not pull.pipes)
            time.sleep(0.3)  # long enough for some vain tries: a dialer's pauses grow with them
    assert statistics.median(took) <= 0.2, took
    assert max(took) <= 2.0, took  # for a busy machine


def test_an_address_that_is_dialed_no_more_keeps_its_connection_until_it_ends(tcp: Wire) -> None:
    with tcp.reserved() as address, Pull(dial=address) as pull:
        with Push(listen=address) as push:
            pull.wait_for_peers(1, WAIT)
            pull.undial(address)
            assert pull.dialed == ()
            push.send(b"still here")
            assert pull.recv(timeout=WAIT) == b"still here"
            push.disconnect(push.pipes[0])
            with pytest.raises(TimedOut):
                push.wait_for_peers(1, 0.3)  # a dialer is back within 0.05 s
            pull.dial(address)
            push.wait_for_peers(1, WAIT)
        with pytest.raises(ConfigError, match="is not dialed"):
            pull.undial("tcp://127.0.0.1:9")
    with pytest.raises(Closed):
        pull.undial(address)


@pytest.mark.parametrize("kind", [Req, Surveyor], ids=lambda kind: kind.__name__)
def test_a_request_made_before_the_listener_exists_is_answered_later(kind: Any, tcp: Wire) -> None:
    answering: Any = {Req: Rep, Surveyor: Respondent}[kind]
    asking: Any = None
    with tcp.reserved() as address, kind(dial=address) as requester:
        if kind is Req:
            asking = Background(requester.request, b"early", timeout=WAIT)
            eventually(lambda: waiting(requester))
        with answering(listen=address) as answerer:
            if kind is Surveyor:  # without peers no peer is asked
                requester.wait_for_peers(1, WAIT)
                asking = Background(requester.survey, b"early", timeout=WAIT, early=True)
            answerer.recv(timeout=WAIT).reply(b"answer")
            reply = asking.result()
            assert (reply if kind is Req else reply.replies[0].body) == b"answer"
