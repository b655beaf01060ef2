"""Typed methods: annotations of handlers are checked, described, and called through an interface."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import msgspec
import pytest
from jsonschema import Draft202012Validator

import nngkit.aio
import nngkit.blocking
from nngkit import Client, Server
from nngkit.calls import Calling
from nngkit.calls.messages import Codec
from nngkit.errors import BadMessage, ConfigError, RemoteError
from tests.calls.providers import WAIT
from tests.calls.servers import direct


@dataclass
class Point:
    x: int
    y: int = 0


class Shape(msgspec.Struct):
    name: str
    points: list[Point]
    seal: bytes | None = None


class Shapes(Protocol):
    async def largest(self, body: list[Shape]) -> Shape | None: ...
    def points(self, shape: Shape) -> AsyncIterator[Point]: ...
    async def version(self) -> str: ...


class PlainShapes(Protocol):
    def largest(self, body: list[Shape]) -> Shape | None: ...
    def points(self, shape: Shape) -> Iterator[Point]: ...
    def names(self, body: list[Shape]) -> list[str]: ...


async def largest(body: list[Shape]) -> Shape | None:
    """Return the shape with the most points."""
    assert all(isinstance(each, Shape) for each in body)
    return max(body, key=lambda each: len(each.points), default=None)


async def points(shape: Shape, calling: Calling) -> AsyncIterator[Point]:
    for point in shape.points:
        yield point


def plain_points(shape: Shape) -> Iterator[Point]:
    yield from shape.points


async def version(body: None) -> str:
    return "1"


def served(codec: Codec = "cbor", kind: Any = Server) -> Any:
    server = kind("answer", discovery=(), codec=codec)
    for handler in (largest, points, version) if kind is not nngkit.blocking.Server else ():
        server.method(handler)
    return server


SMALL, LARGE = Shape("small", [Point(1)]), Shape("large", [Point(1), Point(2, 3)], b"\0\1")


@pytest.mark.parametrize("codec", ["cbor", "json"])
async def test_a_call_through_an_interface_has_the_types_of_both_ends(codec: Codec) -> None:
    async with served(codec) as server, direct(server, codec=codec) as client:
        shapes = client.typed(Shapes)
        assert await shapes.largest([SMALL, LARGE]) == LARGE
        assert await shapes.largest(body=[]) is None
        assert [point async for point in shapes.points(LARGE)] == LARGE.points
        assert await shapes.version() == "1"


async def test_a_body_that_does_not_fit_is_one_answer_with_the_place_and_no_handler_runs() -> None:
    async with served() as server, direct(server, codec="cbor", idempotent=True) as client:
        for body, words in (
            (
                [{"name": "a", "points": [{"x": 1}, {"x": "1"}]}],
                "largest: field [0].points[1].x: expected int, got str",
            ),
            ([{"points": []}], "largest: field [0]: object missing required field name"),
            ("all", "largest: expected array, got str"),
        ):
            with pytest.raises(RemoteError) as told:
                await client.request(body, method="largest")
            assert (told.value.kind, told.value.message, told.value.ran) == ("bad request", words, False)
        assert server.stats.requests == 3
        assert server.stats.errors == {"bad request": 3}
        wrong: Any = [Shape("a", [Point("1")])]  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"field \[0\].points\[0\].x: expected int, got str"):
            await client.typed(Shapes).largest(wrong)
        with pytest.raises(RemoteError, match="points: expected object, got int"):
            await anext(client.stream(1, method="points"))
        assert server.stats.requests == 4


@dataclass
class Share:
    part: int

    def __post_init__(self) -> None:
        assert self.part <= 100, "over 100 %"


async def test_a_class_that_refuses_a_body_in_its_own_way_refuses_that_call_and_no_other() -> None:
    async def part(body: Share) -> int:
        return body.part

    async def shared(body: None) -> dict[str, int]:
        return {"part": 101}

    class Shares(Protocol):
        async def shared(self) -> Share: ...

    server = Server("answer", part, discovery=(), codec="cbor")
    server.method(shared)
    async with server, direct(server, codec="cbor") as client:
        with pytest.raises(RemoteError, match="AssertionError: over 100 %") as told:
            await client.request({"part": 101})
        assert (told.value.kind, told.value.ran) == ("bad request", False)
        with pytest.raises(BadMessage, match="AssertionError: over 100 %"):
            await client.typed(Shares).shared()
        assert await client.request({"part": 100}) == 100


async def test_a_reply_that_no_encoder_can_end_is_an_error_of_that_call_alone() -> None:
    async def cycle(body: None) -> list[Any]:
        found: list[Any] = []
        found.append(found)
        return found

    async with Server("answer", cycle, discovery=(), codec="cbor") as server, direct(server, codec="cbor") as client:
        for _ in range(2):
            with pytest.raises(RemoteError, match="the reply cannot be encoded: maximum recursion depth"):
                await client.request(None)


class Limits(msgspec.Struct):
    most: float = math.inf
    names: Annotated[list[str], msgspec.Meta(description="x" * 2000)] = []


@pytest.mark.parametrize("codec", ["cbor", "json"])
async def test_a_description_has_no_numbers_that_json_lacks_and_one_over_the_limit_is_an_error(codec: Codec) -> None:
    async def limit(body: Limits) -> None: ...

    async with Server("answer", limit, discovery=(), codec=codec) as server, direct(server, codec=codec) as client:
        schema = (await client.info())["schemas"][""]["body"]["$defs"]["Limits"]
        assert schema["properties"]["most"] == {"type": "number"}
    server = Server("answer", limit, discovery=(), codec=codec, recv_max_size=1024)
    async with server, direct(server, codec=codec) as client:
        with pytest.raises(RemoteError, match="over the limit of 1024") as told:
            await client.info()
        assert told.value.kind == "too large"


async def test_keys_that_are_numbers_are_numbers_again() -> None:
    class Names(Protocol):
        async def swapped(self, body: dict[int, str] = {1: "a"}) -> dict[float, int]: ...  # noqa: B006

    async def swapped(body: dict[int, str]) -> dict[float, int]:
        return {key + 0.5: key for key in body}

    server = Server("answer", discovery=(), codec="json")
    server.method(swapped)
    async with server, direct(server, codec="json") as client:
        assert await client.typed(Names).swapped({7: "b"}) == {7.5: 7}
        assert await client.typed(Names).swapped() == {1.5: 1}  # the interface's default
        with pytest.raises(RemoteError, match="swapped: key: expected int, got str"):
            await client.request({"a": "b"}, method="swapped")


async def test_a_reply_that_does_not_fit_is_a_bad_message() -> None:
    class Lies(Protocol):
        async def version(self) -> int: ...

    async with served() as server, direct(server, codec="cbor") as client:
        with pytest.raises(BadMessage, match="expected int, got str"):
            await client.typed(Lies).version()


async def test_a_provider_describes_its_methods_as_json_schema() -> None:
    async with served() as server, direct(server, codec="cbor") as client:
        info = await client.info()
        schemas = info["schemas"]
        assert (info["methods"], sorted(schemas)) == (["largest", "points", "version"],) * 2
        assert schemas["largest"]["doc"] == "Return the shape with the most points."
        assert schemas["points"]["stream"] is True
        for part in ("body", "reply"):
            Draft202012Validator.check_schema(schemas["largest"][part])
        check = Draft202012Validator(schemas["largest"]["body"])
        assert check.is_valid([{"name": "a", "points": [{"x": 1}]}])
        assert not check.is_valid([{"name": "a", "points": [{"x": "1"}]}])


async def test_what_cannot_be_checked_is_not() -> None:
    class Own: ...

    async def own(body: Own) -> Own:
        return body

    async def either(body: str | bytes) -> Any:
        return body

    async with Server("answer", own, discovery=(), codec="cbor") as server, direct(server, codec="cbor") as client:
        assert await client.request({"a": 1}) == {"a": 1}
    async with Server("answer", either, discovery=(), codec="cbor") as server, direct(server, codec="cbor") as client:
        assert await client.request(1) == 1
    async with Server("answer", lambda body: body, discovery=()) as server, direct(server) as client:
        with pytest.raises(ConfigError, match="needs a codec"):
            client.typed(Shapes)


def test_an_annotation_that_cannot_be_resolved_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(body: Missing, calling: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    Server("answer", handler, discovery=(), codec="cbor")
    [line] = caplog.messages
    assert line.endswith("'body' is not checked, as it cannot be resolved: name 'Missing' is not defined")


def test_a_field_that_cannot_be_resolved_leaves_its_class_unchecked(caplog: pytest.LogCaptureFixture) -> None:
    @dataclass
    class Hidden:
        at: Missing  # type: ignore[name-defined]  # noqa: F821

    async def handler(body): ...  # type: ignore[no-untyped-def]

    handler.__annotations__["body"] = Hidden
    Server("answer", handler, discovery=(), codec="cbor")
    [line] = caplog.messages
    assert line.endswith("is not checked, as a field cannot be resolved: name 'Missing' is not defined")


def test_an_unusable_interface_is_refused() -> None:
    class Two(Protocol):
        async def add(self, a: int, b: int) -> int: ...

    client = Client("answer", addresses="tcp://127.0.0.1:1", codec="cbor")
    with pytest.raises(ConfigError, match=r"Two.add: a method has one argument, the body, or none"):
        client.typed(Two)
    with pytest.raises(ConfigError, match="has no methods"):
        client.typed(object)
    with pytest.raises(TypeError, match=r"largest\(\) takes body"):
        client.typed(Shapes).largest()  # type: ignore[call-arg,unused-coroutine]


def test_typed_methods_under_asyncio() -> None:
    class Doubles:
        async def __call__(self, body: int) -> int:
            return body * 2

    async def main() -> None:
        server = served(kind=nngkit.aio.Server)
        server.method("double")(Doubles())
        async with (
            server,
            nngkit.aio.Client("answer", addresses=server.address, codec="cbor", timeout=WAIT) as client,
        ):
            shapes = client.typed(Shapes)
            assert await shapes.largest([SMALL, LARGE]) == LARGE
            assert [point async for point in shapes.points(LARGE)] == LARGE.points
            with pytest.raises(RemoteError, match=r"field \[0\]: object missing required field name"):
                await client.request([{"points": []}], method="largest")
            assert await client.request(2, method="double") == 4
            with pytest.raises(RemoteError, match="double: expected int, got str"):
                await client.request("2", method="double")
            assert sorted((await client.info())["schemas"]) == ["double", "largest", "points", "version"]

    asyncio.run(main())


def test_typed_methods_without_a_loop() -> None:
    def plain_largest(body: list[Shape]) -> Shape | None:
        return max(body, key=lambda each: len(each.points), default=None)

    def names(body: list[Shape]) -> list[str]:
        return [shape.name for shape in body]

    server = served(kind=nngkit.blocking.Server)
    server.method("largest")(plain_largest)
    server.method("points")(plain_points)
    server.method("names")(names)
    with (
        server,
        nngkit.blocking.Client("answer", addresses=server.address, codec="cbor", timeout=WAIT) as client,
    ):
        shapes = client.typed(PlainShapes)
        assert shapes.largest([SMALL, LARGE]) == LARGE
        assert list(shapes.points(LARGE)) == LARGE.points
        assert shapes.names([SMALL, LARGE]) == ["small", "large"]
        assert client.info()["methods"] == ["largest", "names", "points"]
