"""Long and large jobs: memory does not grow, descriptors are freed, 1 GiB at once, a thousand respondents."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit.protocols import Rep, Surveyor
from tests.protocols.raw_peer import REQ, WORD, RawPeer
from tests.protocols.wires import WAIT, available_memory

SOAKING = Path(__file__).with_name("soaking.py")
MIB = 1 << 20


def soak(job: str, *arguments: str, seconds: float) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, str(SOAKING), job, *arguments], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert run.returncode == 0, run.stderr[-4000:]
    result: dict[str, Any] = json.loads(run.stdout)
    sys.stdout.write(f"{result}\n")  # for `pytest -rP`, which shows the figures
    return result


def test_a_hundred_thousand_messages_leak_no_memory() -> None:
    assert soak("messages", "100000", seconds=50)["grown_bytes"] <= 5 * MIB


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_million_messages_leak_no_memory() -> None:
    assert soak("messages", "10000000", seconds=590)["grown_bytes"] <= 5 * MIB


@pytest.mark.slow
def test_two_thousand_sockets_leak_no_descriptors() -> None:
    assert soak("sockets", "2000", seconds=55)["descriptors_left"] == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_message_of_1_gib_passes_in_each_direction() -> None:
    """Both ends are in one process: besides the sent body, memory holds the received one."""
    available = available_memory()
    if available < 6 << 30:
        pytest.skip(f"needs 6 GiB of free memory, there are {available >> 20} MiB")
    result = soak("gibibyte", seconds=290)
    assert result["same_there"]
    assert result["same_back"]
    assert max(result["peak_over_body_there"], result["peak_over_body_back"]) < 1.1


@pytest.mark.slow
def test_clients_of_one_rep_get_equal_shares() -> None:
    """Four clients whose next request is there before the next `recv`: none is overtaken thrice by one other.

    Twice is possible, as requests that are there together may be served in any order.
    """
    with ExitStack() as stack:
        rep = stack.enter_context(Rep(listen="tcp://127.0.0.1:0", linger=0.0))
        clients = [stack.enter_context(RawPeer(rep.address, REQ)) for _ in range(4)]
        for number, client in enumerate(clients):
            client.send(WORD.pack(1 << 31) + b"%d" % number)
        served = []
        for _ in range(20_000):
            request = rep.recv(timeout=WAIT)
            number = int(request.body)
            served.append(number)
            request.reply(b"")
            clients[number].recv()
            clients[number].send(WORD.pack(1 << 31) + b"%d" % number)
    shares = Counter(served)
    assert all(abs(share - 5000) <= 500 for share in shares.values()), shares
    for number in range(4):
        turns = [at for at, each in enumerate(served) if each == number]
        for last, turn in pairwise(turns):
            overtaken = Counter(served[last + 1 : turn])
            assert max(overtaken.values(), default=0) <= 2, overtaken


@contextmanager
def thousand_respondents(surveyor: Surveyor) -> Iterator[None]:
    """Run five hundred in each of two processes."""
    processes = [
        subprocess.Popen([sys.executable, str(SOAKING), "respondents", surveyor.address, "500"], stdin=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        surveyor.wait_for_peers(1000, timeout=50)
        yield
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
                raise


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("busy", [0.0, 0.3], ids=["at once", "with the loop blocked for 300 ms"])
def test_all_replies_of_a_thousand_respondents_are_received(busy: float) -> None:
    """1,000 of 1,000 within a deadline of 1 s, repeatedly, awaited and blocking."""
    with Surveyor(listen="tcp://127.0.0.1:0") as surveyor, thousand_respondents(surveyor):
        surveyor.survey(b"warm", timeout=5, early=True)

        async def awaited() -> list[int]:
            heard = []
            for round_ in range(5):
                async with trio.open_nursery() as nursery:

                    async def block() -> None:
                        await trio.sleep(0.005)
                        time.sleep(busy)  # noqa: ASYNC251 - a loop blocked during a survey is the point of the test

                    nursery.start_soon(block)
                    result = await surveyor.asurvey(b"%d" % round_, timeout=1.0)
                    assert result.expected == 1000
                    heard.append(len({reply.pipe for reply in result.replies}))
            return heard

        ask: Callable[[], list[int]] = lambda: trio.run(awaited)  # noqa: E731
        assert ask() == [1000] * 5
        assert surveyor.survey(b"blocking", timeout=1.0).answered == 1000
