"""Objects that one of their own functions closes: it runs to its end, and then they close."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import trio

from nngkit import Server, Service, ServiceDiscovery, aio, blocking
from nngkit.calls import Proceed, Reply
from nngkit.cluster import Host, Member
from nngkit.discovery import deadline
from nngkit.testing import aeventually, eventually
from tests.under_asyncio import under_asyncio

WAIT = 15.0
ANY = "tcp://127.0.0.1:0"
PLACE = "tcp://10.0.0.1:9000"


class Gate:
    """A function of the program that closes `of`, and goes on later; in a task or a thread."""

    of: Any

    def __init__(self) -> None:
        self._returned, self._goes_on = trio.Event(), trio.Event()
        self.ended = 0

    async def in_task(self, _: Any = None) -> bytes:
        await self.of.aclose()
        self._returned.set()
        await self._goes_on.wait()
        self.ended += 1
        return b"done"

    def in_thread(self, given: Any = None) -> bytes:
        return trio.from_thread.run(self.in_task, given)

    async def passes(self) -> None:
        """Wait until the close has returned; the function then goes on."""
        await self._returned.wait()
        for _ in range(50):  # turns in which a close that does not wait would cancel the function
            await trio.lowlevel.checkpoint()
        self._goes_on.set()


async def answer_of(discovery: ServiceDiscovery, gate: Gate) -> bytes:
    """Ask the service `answer` once it is up; return its answer."""
    await aeventually(lambda: "answer" in discovery.snapshot())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gate.passes)
        [answer] = (await discovery.ask(b"x", "answer", until=deadline(WAIT))).answers
    return answer.body


@pytest.mark.parametrize("how", ["in_task", "in_thread"])
@pytest.mark.parametrize("of", [Service, Server])
async def test_a_question_closes_its_service(of: type[Service] | type[Server], how: str) -> None:
    gate = Gate()
    asked = getattr(gate, how)
    with trio.fail_after(WAIT):
        async with ServiceDiscovery(listen=ANY, deadline=WAIT, interval=0.05) as discovery:
            at = discovery.address
            gate.of = service = (
                Service("answer", PLACE, discovery=at, on_question=asked)
                if of is Service
                else Server("answer", lambda body: body, discovery=at, on_question=asked)
            )
            async with service:
                assert await answer_of(discovery, gate) == b"done"
                await aeventually(lambda: service.closed)
    assert gate.ended == 1


@pytest.mark.parametrize("how", ["in_task", "in_thread"])
async def test_a_check_of_its_health_closes_a_server(how: str) -> None:
    gate = Gate()
    with trio.fail_after(WAIT):
        gate.of = server = Server("answer", lambda body: body, healthy=getattr(gate, how), health_interval=WAIT)
        async with server:
            await gate.passes()
            await aeventually(lambda: server.closed)
    assert gate.ended == 1


@pytest.mark.parametrize("how", ["in_task", "in_thread"])
@pytest.mark.parametrize("by", ["job", "message", "middleware"])
async def test_a_function_closes_its_member(by: str, how: str) -> None:
    gate = Gate()
    around = []

    async def first(call: Any, proceed: Proceed) -> Reply:
        await gate.in_task(call)
        return await proceed(call)

    if by == "middleware":
        around.append(first)
    with trio.fail_after(WAIT):
        async with Host("c", listen=ANY) as host, trio.open_nursery() as nursery:
            gate.of = member = Member("c", dial=host.address, middleware=around)
            async with member:
                member.work("job")(getattr(gate, how) if by == "job" else lambda job: b"done")
                member.on("message")(getattr(gate, how))
                await member.joined(WAIT)
                nursery.start_soon(gate.passes)
                if by == "message":
                    await host.send("message", b"x")
                else:
                    assert await (await host.submit("job", b"x")).result(WAIT) == b"done"
                await aeventually(lambda: member.closed)
    assert gate.ended == 1


@under_asyncio
async def test_functions_under_asyncio_close_their_objects() -> None:
    ended, closed = [], asyncio.Event()

    async def closes(own: Any, given: Any) -> bytes:
        await own.aclose()
        closed.set()
        await asyncio.sleep(0.05)  # longer than the object needs to close
        ended.append(type(own).__name__)
        return b"done"

    async with aio.ServiceDiscovery(listen=ANY, deadline=WAIT, interval=0.05) as discovery:

        async def asked(question: Any) -> bytes:
            return await closes(service, question)

        for service in (
            aio.Service("answer", PLACE, discovery=discovery.address, on_question=asked),
            aio.Server("answer", lambda body: body, discovery=discovery.address, on_question=asked),
        ):
            async with service:
                await asyncio.to_thread(eventually, lambda: "answer" in discovery.snapshot())
                [answer] = (await discovery.ask(b"x", "answer", until=deadline(WAIT))).answers
                assert answer.body == b"done"
            await asyncio.to_thread(eventually, lambda: "answer" not in discovery.snapshot())
    async with aio.Host("c", listen=ANY) as host:
        for by in ("job", "message"):
            closed.clear()
            async with aio.Member("c", dial=host.address) as member:

                async def called(given: Any, member: Any = member) -> bytes:
                    return await closes(member, given)

                member.work("job")(called)
                member.on("message")(called)
                await member.joined(WAIT)
                if by == "job":
                    assert await (await host.submit("job", b"x")).result(WAIT) == b"done"
                else:
                    await host.send("message", b"x")
                    await closed.wait()
                    await asyncio.to_thread(eventually, lambda: len(ended) == 4)
    assert ended == ["Service", "Server", "Member", "Member"]


def test_functions_of_a_program_without_a_loop_close_their_objects() -> None:
    ended: list[str] = []

    def closes(own: Any) -> bytes:
        own.close()
        threading.Event().wait(0.05)  # longer than the object needs to close
        ended.append(type(own).__name__)
        return b"done"

    with blocking.ServiceDiscovery(listen=ANY, deadline=WAIT, interval=0.05) as discovery:
        service = blocking.Service(
            "answer", PLACE, discovery=discovery.address, on_question=lambda question: closes(service)
        )
        with service:
            eventually(lambda: "answer" in discovery.snapshot())
            [answer] = discovery.ask(b"x", "answer", until=deadline(WAIT)).answers
            assert answer.body == b"done"
    with blocking.Host("c", listen=ANY) as host, blocking.Member("c", dial=host.address) as member:
        member.work("job")(lambda job: closes(member))
        member.joined(WAIT)
        assert host.submit("job", b"x").result(WAIT) == b"done"
    with blocking.Host("c", listen=ANY) as host:
        host.on("message")(lambda message: closes(host))
        host.send("message", b"x", to=host.id)
        eventually(lambda: ended[-1] == "Host")
    assert ended == ["Service", "Member", "Host"]
