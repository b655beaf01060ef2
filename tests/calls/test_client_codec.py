"""Client with a codec: values, errors, refusals, cancellation and streams."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

from nngkit.calls import Client
from nngkit.calls.messages import (
    CallRequest,
    CancelRequest,
    DoneReply,
    ErrorReply,
    MoreRequest,
    PartsReply,
    parse_request,
)
from nngkit.errors import BadMessage, Lost, RemoteError
from nngkit.protocols import Request
from nngkit.testing import aeventually
from tests.calls.providers import WAIT, answers, cbor_echo, provider


async def test_values_methods_and_the_deadline_travel_with_a_codec() -> None:
    async with provider(handler=cbor_echo) as there, Client("answer", addresses=there.address, codec="cbor") as answer:
        body = {"text": "hi", "list": [1, b"\0", None]}
        reply: dict[str, Any] = await answer.request(body, method="add", timeout=WAIT)
        assert (reply["body"], reply["method"]) == (body, "add")
        assert WAIT - 5 < reply["timeout"] <= WAIT
        assert (await answer.request(None, timeout=None))["timeout"] is None
        with pytest.raises(TypeError):
            await answer.request(object())
        assert answer.stats.providers[there.address].outstanding == 0


async def test_an_error_of_the_handler_is_raised_and_not_retried() -> None:
    error = ErrorReply("failed", "ValueError: no", error="ValueError", data={"code": 7})
    async with (
        provider(handler=answers(error)) as there,
        Client("answer", addresses=there.address, codec="cbor", timeout=WAIT, idempotent=True) as answer,
    ):
        with pytest.raises(RemoteError, match="ValueError: no") as told:
            await answer.request(1)
        assert (told.value.error, told.value.data, told.value.provider) == ("ValueError", {"code": 7}, there.address)
        assert len(there.seen) == 1
        assert answer.stats.failed == 1


@pytest.mark.parametrize("kind", ["busy", "draining", "unhealthy", "no method"])
async def test_a_call_that_was_refused_goes_elsewhere(kind: str) -> None:
    refused = ErrorReply(kind, "not now", ran=False)
    async with (
        provider(handler=answers(refused)) as first,
        provider(handler=cbor_echo) as second,
        Client(
            "answer", addresses=[first.address, second.address], rng=random.Random(3), codec="cbor", timeout=WAIT
        ) as answer,
    ):
        await answer.wait_for_providers(2, timeout=WAIT)
        for number in range(10):
            assert (await answer.request(number))["body"] == number
        assert answer.stats.refused == len(first.seen) > 0


async def test_a_call_that_every_provider_refuses_ends_with_the_refusal() -> None:
    async with (
        provider(handler=answers(ErrorReply("busy", "64 calls wait", ran=False))) as there,
        Client("answer", addresses=there.address, codec="cbor", timeout=WAIT) as answer,
    ):
        with pytest.raises(RemoteError, match="busy: 64 calls wait") as told:
            await answer.request(1)
        assert told.value.ran is False
        assert len(there.seen) == 12
        there.handler = answers(ErrorReply("bad request", "no", ran=False))
        with pytest.raises(RemoteError, match="bad request"):
            await answer.request(1)
        assert len(there.seen) == 13


async def test_a_method_that_no_provider_has_ends_the_call_once_each_was_asked() -> None:
    unknown = answers(ErrorReply("no method", "'divide'", ran=False))
    async with (
        provider(handler=unknown) as first,
        provider(handler=unknown) as second,
        Client("answer", addresses=[first.address, second.address], codec="cbor", timeout=WAIT) as answer,
    ):
        await answer.wait_for_providers(2, timeout=WAIT)
        with pytest.raises(RemoteError, match="no method: 'divide'"):
            await answer.request(1, method="divide")
        assert (len(first.seen), len(second.seen)) == (1, 1)
        assert answer.stats.retried == 1


@pytest.mark.parametrize("garbage", [b"", b"garbage", DoneReply(), PartsReply((1,), True), bytes(1000)])
async def test_an_unintelligible_reply_raises_bad_message_or_moves_on_if_idempotent(garbage: Any) -> None:
    async with (
        provider(handler=answers(garbage)) as bad,
        Client("answer", addresses=bad.address, codec="cbor", timeout=WAIT) as answer,
    ):
        with pytest.raises(BadMessage, match="bad call reply"):
            await answer.request(1)
        assert answer.stats.providers[bad.address].outcomes["bad"] == 1
        async with (
            provider(handler=cbor_echo) as good,
            Client(
                "answer",
                addresses=[bad.address, good.address],
                rng=random.Random(3),
                codec="cbor",
                timeout=WAIT,
                idempotent=True,
            ) as both,
        ):
            await both.wait_for_providers(2, timeout=WAIT)
            assert [(await both.request(number))["body"] for number in range(8)] == list(range(8))


@pytest.mark.parametrize("how", ["cancelled", "lost race"])
async def test_the_provider_is_told_that_the_caller_gave_up(how: str) -> None:
    async with (
        provider(handler=answers(None)) as there,
        Client("answer", addresses=there.address, codec="cbor", timeout=WAIT) as answer,
    ):
        await answer.wait_for_providers(timeout=WAIT)
        with trio.move_on_after(0.1):
            await (answer.request(1) if how == "cancelled" else answer.request(1, hedge=0.01))
        await aeventually(lambda: any(isinstance(each, CancelRequest) for each in map(parsed, there.seen)))
        calls = [each for each in map(parsed, there.seen) if isinstance(each, CallRequest)]
        told = {each.id for each in map(parsed, there.seen) if isinstance(each, CancelRequest)}
        assert told <= {each.id for each in calls}


def parsed(body: bytes) -> Any:
    return parse_request(body, "cbor", limit=1 << 20)


class Numbers:
    """Handler that streams the numbers from 0 to `count`, in parts of two."""

    def __init__(self, count: int, end: ErrorReply | None = None) -> None:
        self.count = count
        self.end = end
        self.next = 0
        self.cancelled: list[str] = []

    async def __call__(self, request: Request) -> None:
        asked = parsed(request.body)
        if isinstance(asked, CancelRequest):
            self.cancelled.append(asked.id)
            await request.areply(DoneReply().encode("cbor"))
            return
        assert isinstance(asked, (CallRequest, MoreRequest))
        parts = tuple(range(self.next, min(self.next + 2, self.count)))
        self.next += 2
        if self.end is not None and not parts:
            await request.areply(self.end.encode("cbor"))
        else:
            await request.areply(PartsReply(parts, self.end is None and self.next >= self.count).encode("cbor"))


async def test_a_stream_yields_the_parts_and_ends() -> None:
    async with (
        provider(handler=Numbers(7)) as there,
        Client("answer", addresses=there.address, codec="cbor", timeout=WAIT) as answer,
    ):
        assert [part async for part in answer.stream("all")] == list(range(7))
        assert answer.stats.providers[there.address].outstanding == 0
        assert answer.stats.providers[there.address].outcomes["reply"] == 1


async def test_a_stream_that_is_left_early_is_cancelled() -> None:
    handler = Numbers(1000)
    async with (
        provider(handler=handler) as there,
        Client("answer", addresses=there.address, codec="cbor", timeout=WAIT) as answer,
    ):
        async with answer.stream("all") as parts:
            assert await anext(parts) == 0
            assert answer.stats.providers[there.address].outstanding == 1
        await aeventually(lambda: handler.cancelled)
        assert answer.stats.providers[there.address].outstanding == 0
        with pytest.raises(StopAsyncIteration):
            await anext(parts)


async def test_an_error_follows_the_parts_before_it() -> None:
    handler = Numbers(3, ErrorReply("failed", "ValueError: no more"))
    async with (
        provider(handler=handler) as there,
        Client("answer", addresses=there.address, codec="cbor", timeout=WAIT) as answer,
    ):
        stream = answer.stream("all")
        assert [await anext(stream) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(RemoteError, match="no more"):
            await anext(stream)


async def test_a_stream_whose_provider_leaves_raises_lost() -> None:
    async with (
        provider(handler=Numbers(1000)) as there,
        Client("answer", addresses=there.address, codec="cbor", timeout=WAIT, idempotent=True) as answer,
    ):
        stream = answer.stream("all")
        assert await anext(stream) == 0
        there.close()
        assert await anext(stream) == 1
        with pytest.raises(Lost, match="left before its reply ended"):
            await anext(stream)
