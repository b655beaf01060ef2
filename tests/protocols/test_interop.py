"""The six protocols against other implementations: nngcat and nanocat.

Every test runs over tcp, ipc and ws, with either side listening. Messages that a program repeats (``--interval``)
arrive in any start-up order; ours are sent once the peer is connected.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nngkit.errors import TimedOut
from nngkit.protocols import (
    Bus,
    Pair0,
    Pair1,
    Pub,
    Pull,
    Push,
    Rep,
    Req,
    Respondent,
    Socket,
    Sub,
    Surveyor,
)
from tests.protocols.programs import BETWEEN_SURVEYS, INTERVAL, Program, needed, own_place, place
from tests.protocols.wires import WAIT

S = TypeVar("S", bound=Socket)

WE, IT = "we listen", "it listens"


class Meeting:
    """Connects a socket of ours and a program, one listening and the other dialing."""

    def __init__(self, program: str, transport: str, listens: str, folder: Path, stack: ExitStack) -> None:
        self.name = program
        self._transport = transport
        self._listens = listens
        self._folder = folder
        self._stack = stack

    def __call__(self, kind: Callable[..., S], *arguments: str, **options: Any) -> tuple[S, Program]:
        options.setdefault("linger", 0.0)  # the program is killed first, so there is no peer left to send to
        if self._listens == WE:
            here = own_place(self._transport, self._folder)
            socket = kind(listen=here, **options)
            self._stack.enter_context(socket)
            program = self._stack.enter_context(Program(self.name, "--connect", socket.address, *arguments))
        else:
            there = self._stack.enter_context(place(self._transport, self._folder))
            program = self._stack.enter_context(Program(self.name, "--bind", there, *arguments))
            socket = kind(dial=there, **options)
            self._stack.enter_context(socket)
        socket.wait_for_peers(1, WAIT)
        return socket, program

    def repeating(self, text: str, intervals: dict[str, str] = INTERVAL) -> tuple[str, ...]:
        """Return the arguments with which the program sends ``text`` repeatedly."""
        return ("--data", text, "--interval", intervals[self.name])


@pytest.fixture(params=[pytest.param(name, marks=needed(name)) for name in ("nngcat", "nanocat")])
def program(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=["tcp", "ipc", "ws"])
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=[WE, IT])
def listens(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def meet(program: str, transport: str, listens: str, sockets: Path) -> Iterator[Meeting]:
    with ExitStack() as stack:
        yield Meeting(program, transport, listens, sockets, stack)


# ---- PIPELINE --------------------------------------------------------------------------------------------------------


def test_the_program_prints_any_bytes_that_we_push(meet: Meeting) -> None:
    push, program = meet(Push, "--pull", "--quoted")
    assert push.send_many([b"work", b"", b'a "b"\\\n', b"\0\x7f"]) == 4
    assert [program.line() for _ in range(4)] == ['"work"', '""', r'"a \"b\"\\\n"', r'"\x00\x7f"']


def test_we_pull_messages_of_the_program(meet: Meeting) -> None:
    pull, _ = meet(Pull, "--push", *meet.repeating("work"))
    assert pull.recv(timeout=WAIT) == b"work"


# ---- PAIR and BUS: both directions on one socket ---------------------------------------------------------------------


def test_pair0_works_in_both_directions(meet: Meeting) -> None:
    pair, program = meet(Pair0, "--pair0" if meet.name == "nngcat" else "--pair", "--quoted", "--data", "theirs")
    assert pair.recv(timeout=WAIT) == b"theirs"
    pair.send(b"ours")
    assert program.line() == '"ours"'


@pytest.mark.parametrize("program", [pytest.param("nngcat", marks=needed("nngcat"))], indirect=True)
def test_pair1_works_in_both_directions_with_nngcat(meet: Meeting) -> None:
    pair, program = meet(Pair1, "--pair1", "--quoted", "--data", "theirs")
    assert pair.recv(timeout=WAIT) == b"theirs"
    pair.send(b"ours")
    assert program.line() == '"ours"'


@pytest.mark.slow
def test_bus_works_in_both_directions(meet: Meeting) -> None:
    bus, program = meet(Bus, "--bus", "--quoted", *meet.repeating("theirs"))
    assert bus.recv(timeout=WAIT) == b"theirs"
    bus.send(b"ours")
    assert program.line() == '"ours"'


# ---- PUBSUB ----------------------------------------------------------------------------------------------------------


def test_the_program_prints_only_messages_of_its_topic(meet: Meeting) -> None:
    pub, program = meet(Pub, "--sub", "--subscribe", "weather.", "--quoted")
    for message in (b"news", b"weather.oslo 3", b"weather", b"weather.rome 19"):
        pub.send(message)
    assert [program.line(), program.line()] == ['"weather.oslo 3"', '"weather.rome 19"']


@pytest.mark.slow
def test_we_receive_only_messages_of_our_topic(meet: Meeting) -> None:
    sub, _ = meet(Sub, "--pub", *meet.repeating("weather.oslo 3"), topics="weather.")
    assert sub.recv(timeout=WAIT) == b"weather.oslo 3"


@pytest.mark.slow
@pytest.mark.parametrize("program", [pytest.param("nanocat", marks=needed("nanocat"))], indirect=True)
def test_messages_of_other_topics_are_not_received(meet: Meeting) -> None:
    quiet = 3 * float(INTERVAL["nanocat"])
    sub, _ = meet(Sub, "--pub", *meet.repeating("weather.oslo 3"), topics="weather.", recv_timeout=quiet)
    assert sub.recv(timeout=WAIT) == b"weather.oslo 3"
    sub.subscribe("news")
    sub.unsubscribe("weather.")
    with pytest.raises(TimedOut):
        list(sub)  # at first messages read ahead under the old topic


# ---- REQREP ----------------------------------------------------------------------------------------------------------


def test_the_program_answers_our_requests(meet: Meeting) -> None:
    req, program = meet(Req, "--rep", "--data", "42", "--quoted")
    for number in range(3):
        assert req.request(b"question %d" % number, timeout=WAIT) == b"42"
        assert program.line() == f'"question {number}"'


def test_we_answer_the_programs_requests(meet: Meeting) -> None:
    rep, program = meet(Rep, "--req", "--data", "question", "--quoted")
    request = rep.recv(timeout=WAIT)
    assert request.body == b"question"
    request.reply(b"42")
    assert program.line() == '"42"'
    assert program.ended() == 0


# ---- SURVEY ----------------------------------------------------------------------------------------------------------


def test_the_program_responds_to_our_surveys(meet: Meeting) -> None:
    surveyor, program = meet(Surveyor, "--respondent", "--data", "here", "--quoted")
    result = surveyor.survey(b"who?", timeout=WAIT, early=True)
    assert [reply.body for reply in result.replies] == [b"here"]
    assert (result.expected, result.answered) == (1, 1)
    assert program.line() == '"who?"'


@pytest.mark.slow
def test_we_respond_to_the_programs_surveys(meet: Meeting) -> None:
    respondent, program = meet(Respondent, "--surveyor", "--quoted", *meet.repeating("who?", BETWEEN_SURVEYS))
    bodies = set()

    def respond() -> None:
        for query in respondent:
            bodies.add(query.body)
            query.reply(b"here")

    # a busy machine's reply may come after the survey's end, so each repetition is answered
    thread = threading.Thread(target=respond)
    thread.start()
    try:
        assert program.line() == '"here"'
    finally:
        respondent.close()
        thread.join()
    assert bodies == {b"who?"}


# ---- WebSocket paths -------------------------------------------------------------------------------------------------

PATHS = [("", ""), ("", "/"), ("/x", "/x"), ("/x", ""), ("", "/x"), ("/x", "/x/y")]
NOT_AT_ALL = 0.7  # seconds: connecting takes 10 ms


def connects(program: str, listens: str, ours: str, its: str, sockets: Path, patience: float) -> bool:
    """Return True if the two connect, with our URL ending in ``ours`` and the program's in ``its``."""
    with ExitStack() as stack:
        if listens == WE:
            push = stack.enter_context(Push(listen=f"ws://127.0.0.1:0{ours}"))
            there = push.address.removesuffix(ours) + its
            stack.enter_context(Program(program, "--pull", "--connect", there))
        else:
            there = stack.enter_context(place("ws", sockets))
            stack.enter_context(Program(program, "--pull", "--bind", there + its))
            push = stack.enter_context(Push(dial=there + ours))
        try:
            push.wait_for_peers(1, patience)
        except TimedOut:
            return False
        return True


@pytest.mark.slow
@pytest.mark.parametrize(("ours", "its"), PATHS)
def test_ws_paths_must_be_equal_except_with_a_listening_nanocat(
    program: str, listens: str, ours: str, its: str, sockets: Path
) -> None:
    expected = its == "" if (program, listens) == ("nanocat", IT) else (its or "/") == (ours or "/")
    patience = WAIT if expected else NOT_AT_ALL
    assert connects(program, listens, ours, its, sockets, patience) == expected
