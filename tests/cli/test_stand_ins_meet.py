"""The stand-ins as peers of the originals: six protocols, tcp, ipc and ws, either side listening, both originals."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme

from tests.protocols.programs import BETWEEN_SURVEYS, INTERVAL, Program, needed, place

pytestmark = pytest.mark.slow

PATTERNS = {  # protocols of the repeated sender of `said`, and of the receiver
    "pipeline": ("--push", "--pull"),
    "pubsub": ("--pub", "--sub"),
    "reqrep": ("--req", "--rep"),
    "survey": ("--surveyor", "--respondent"),
    "bus": ("--bus", "--bus"),
    "pair": ("--pair", "--pair"),
}


class Ours(Program):
    """A stand-in, bounded and ended as a Program is."""

    def __init__(self, name: str, *arguments: str) -> None:
        super().__init__(sys.executable, "-m", "nngkit", name, *arguments)


@pytest.fixture
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


@pytest.mark.parametrize("we", ["speak", "hear"])
@pytest.mark.parametrize("who_listens", ["we", "it"])
@pytest.mark.parametrize("transport", ["tcp", "ipc", "ws"])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", [pytest.param(each, marks=needed(each)) for each in ("nngcat", "nanocat")])
def test_the_stand_in_exchanges_messages_with_the_original(
    name: str, pattern: str, transport: str, who_listens: str, we: str, sockets: Path
) -> None:
    speaks, hears = PATTERNS[pattern]
    if pattern == "pair" and name == "nngcat":
        speaks = hears = "--pair1"  # its --pair finds no protocol
    speaking = [speaks, "--data", "said"]
    if (name, pattern) != ("nngcat", "reqrep"):
        # a request waits for a peer; if it is repeated, nngcat gives up ("Cannot set recv timeout") without a peer
        # within the interval, which on a busy machine is less than the start of a stand-in
        intervals = BETWEEN_SURVEYS if (pattern, we) == ("survey", "hear") else INTERVAL
        speaking += ["--interval", intervals[name]]
    if pattern not in ("pipeline", "pubsub"):  # nngcat has no format for senders
        speaking.append("--quoted")
    hearing = [hears, "--quoted"]
    if pattern in ("reqrep", "survey"):
        hearing += ["--data", "answered"]
    ours, its = (speaking, hearing) if we == "speak" else (hearing, speaking)
    with ExitStack() as stack:
        there = stack.enter_context(place(transport, sockets))
        first = [Ours(name, *ours, "--bind", there)] if who_listens == "we" else [Program(name, *its, "--bind", there)]
        stack.enter_context(first[0])
        # nngcat gives up at once without a listener, unless --async is given
        patient = ["--async"] if name == "nngcat" else []
        if who_listens == "we":
            other: Program = Program(name, *its, *patient, "--connect", there)
        else:
            other = Ours(name, *ours, *patient, "--connect", there)
        stack.enter_context(other)
        hearer, speaker = (first[0], other) if (who_listens == "we") == (we == "hear") else (other, first[0])
        assert hearer.line() == '"said"'
        if pattern in ("reqrep", "survey"):
            assert speaker.line() == '"answered"'


@pytest.mark.needs_program("nngcat", package="nng-utils")
@pytest.mark.parametrize("who_listens", ["we", "it"])
def test_nngcat_and_its_stand_in_use_tls(who_listens: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    ca, own = tmp_path / "ca.pem", tmp_path / "own.pem"
    authority.cert_pem.write_to_path(str(ca))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(own))
    with place("tcp", tmp_path) as address:
        port = address.rpartition(":")[2]
        serving = ["--push", "--data", "said", "--interval", "1", "--listen", f"tls+tcp://127.0.0.1:{port}", f"-E{own}"]
        asking = ["--pull", "-Q", "--async", "--dial", f"tls+tcp://localhost:{port}", "--cacert", str(ca)]
        with (
            Ours("nngcat", *serving) if who_listens == "we" else Program("nngcat", *serving),
            Program("nngcat", *asking) if who_listens == "we" else Ours("nngcat", *asking) as puller,
        ):
            assert puller.line() == '"said"'
