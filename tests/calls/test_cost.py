"""Cost of calls by name over bare sockets, in calls of Python functions: the load of a machine does not change them."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from statistics import median
from types import FrameType
from typing import Any

import pytest
import trio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import DEFAULT_OFF, DEFAULT_ON, ParentBasedTraceIdRatio, Sampler
from opentelemetry.trace import SpanKind

from nngkit import Client, Server
from nngkit.calls.messages import Codec
from nngkit.protocols import Rep, Req
from nngkit.telemetry import instrument, uninstrument
from tests.protocols.wires import WAIT

REQUESTS = 100


async def _counted(ask: Callable[[bytes], Awaitable[Any]]) -> float:
    """Return the function calls of one request in this thread, where both ends are.

    The median: beside much else, more of the timers of a second fall into a few of the requests.
    """
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    for _ in range(20):
        await ask(b"x" * 16)
    counts = []
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for _ in range(REQUESTS):
            begun = count
            await ask(b"x" * 16)
            counts.append(count - begun)
    finally:
        sys.setprofile(before)
    return median(counts)


async def _of_sockets() -> float:
    async with Rep(listen="tcp://127.0.0.1:0") as rep, Req(dial=rep.address) as req, trio.open_nursery() as nursery:

        async def reply() -> None:
            async for request in rep:
                await request.areply(request.body)

        nursery.start_soon(reply)
        found = await _counted(lambda body: req.arequest(body, timeout=WAIT))
        nursery.cancel_scope.cancel()
    return found


async def _of_spans(provider: TracerProvider) -> float:
    """Return the function calls of a call's two spans at OpenTelemetry's SDK."""
    tracer = provider.get_tracer("cost")

    async def make(body: bytes) -> None:
        for kind in (SpanKind.CLIENT, SpanKind.SERVER):
            tracer.start_span("cost", kind=kind, attributes={"rpc.system.name": "nngkit", "rpc.method": "cost"}).end()

    return await _counted(make)


async def _of_calls(codec: Codec | None) -> float:
    async def echo(body: Any) -> Any:
        return body

    async with (
        Server("cost", echo, discovery=(), codec=codec) as server,
        Client("cost", addresses=server.address, codec=codec) as client,
    ):
        await client.wait_for_providers(timeout=WAIT)
        async with trio.open_nursery() as nursery:  # many workers: those that are idle are not woken by later requests
            for _ in range(64):
                nursery.start_soon(client.request, b"x")
        return await _counted(client.request)


@pytest.mark.parametrize(("codec", "most"), [(None, 8), ("cbor", 40)])
def test_a_call_by_name_adds_few_function_calls_to_a_request(codec: Codec | None, most: int) -> None:
    async def main() -> tuple[float, float]:
        with trio.fail_after(WAIT):
            return await _of_sockets(), await _of_calls(codec)

    bare, named = trio.run(main)
    assert named - bare <= most


@pytest.mark.parametrize(
    ("sampler", "made", "most"),
    [(DEFAULT_OFF, False, 24), (ParentBasedTraceIdRatio(1e-9), False, 24), (DEFAULT_ON, True, 58)],
)
def test_a_call_with_spans_adds_few_function_calls_to_those_of_the_sdk(sampler: Sampler, made: bool, most: int) -> None:
    async def main() -> tuple[float, float, float]:
        provider = TracerProvider(sampler=sampler)
        with trio.fail_after(WAIT):
            spans, plain = await _of_spans(provider), await _of_calls("cbor")
            instrument(provider)
            try:
                return spans, plain, await _of_calls("cbor")
            finally:
                uninstrument()

    spans, plain, traced = trio.run(main)
    assert traced - plain - made * spans <= most
