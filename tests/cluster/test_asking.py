"""Calls that wait for the host's answers, at a node without a cluster: each answer is given by hand."""

from __future__ import annotations

import random

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from nngkit.cluster.node.node import Node
from nngkit.cluster.node.questions import Answered, Questions
from nngkit.cluster.node.values import NodeConfig
from nngkit.cluster.shell.asking import Asking
from nngkit.errors import Broken, Closed, TimedOut


class Bench:
    """Questions of one node, and the calls that wait for their answers; `closed` once the endpoint is."""

    def __init__(self) -> None:
        config = NodeConfig(cluster="c", id="a")
        self.questions: Questions = Node(
            config, epoch=7, now=trio.current_time(), wall=1.0, rng=random.Random(0), entropy=random.Random(0).randbytes
        ).questions
        self.acts = 0
        self.closed = self.way = False
        self.asking = Asking("<a>", self.questions, self._act, self._check)

    def _act(self) -> None:
        self.acts += 1

    def _check(self) -> None:
        if self.closed:
            raise Closed("closed")


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_each_call_gets_the_answer_of_its_question(bench: Bench) -> None:
    found: dict[str, object] = {}

    async def ask(what: str) -> None:
        found[what] = (await bench.asking.ask(what, timeout=1.0)).content

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "status")
        await wait_all_tasks_blocked()
        nursery.start_soon(ask, "tree")
        await wait_all_tasks_blocked()
        for number, content in ((2, "second"), (9, "of no call"), (1, "first")):
            bench.asking.answered(Answered(number, content, "host"))
    assert found == {"status": "first", "tree": "second"}
    assert bench.acts == 2


async def test_a_refusal_is_an_error_but_of_a_drain(bench: Bench) -> None:
    async with trio.open_nursery() as nursery:

        async def refuse(number: int) -> None:
            await wait_all_tasks_blocked()
            bench.asking.answered(Answered(number, None, "h", "no such node"))

        nursery.start_soon(refuse, 1)
        with pytest.raises(Broken, match="'h' refuses 'status': no such node"):
            await bench.asking.ask("status")
        nursery.start_soon(refuse, 2)
        assert (await bench.asking.ask("drain", "b")).why == "no such node"


async def test_without_an_answer_a_call_ends_in_time_and_its_question_is_asked_no_more(
    bench: Bench, autojump_clock: MockClock
) -> None:
    with pytest.raises(TimedOut, match=r"<a>: the host has not answered 'tree' in 2\.0 s"):
        await bench.asking.ask("tree", timeout=2.0)
    bench.questions.tick(trio.current_time())
    assert bench.questions.wake_at == float("inf")
    bench.asking.answered(Answered(1, "late", "host"))  # for no call


async def test_all_calls_end_with_the_endpoint(bench: Bench) -> None:
    async with trio.open_nursery() as nursery:

        async def close() -> None:
            await wait_all_tasks_blocked()
            bench.closed = True
            bench.asking.wake()

        nursery.start_soon(close)
        with pytest.raises(Closed):
            await bench.asking.ask("status")
        with pytest.raises(Closed):
            await bench.asking.ask("status")


@pytest.mark.parametrize(
    ("answer", "confirmed"),
    [(Answered(1, "7", "host"), True), (Answered(1, "6", "host"), False), (Answered(1, None, "host", "what?"), True)],
)
async def test_a_run_is_confirmed_by_its_epoch_and_by_a_version_without_the_question(
    bench: Bench, answer: Answered, confirmed: bool, autojump_clock: MockClock
) -> None:
    bench.way = True

    async def answers() -> None:
        await trio.sleep(1.0)
        bench.asking.answered(answer)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answers)
        assert await bench.asking.confirmed(7, lambda: bench.way) is confirmed
    assert bench.acts == 5  # at once, and after 0.05, 0.15, 0.35 and 0.75 s


async def test_without_a_way_to_the_host_a_run_is_not_confirmed(bench: Bench, autojump_clock: MockClock) -> None:
    began = trio.current_time()

    async def lose() -> None:
        await trio.sleep(0.2)
        bench.way = False

    bench.way = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lose)
        assert not await bench.asking.confirmed(7, lambda: bench.way)
    assert trio.current_time() < began + 0.5
