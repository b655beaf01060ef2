"""The gateway's OpenAPI document: its routes, methods with types, and answers as it tells them; and its metrics."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from nngkit import Server
from nngkit.cluster import Host
from nngkit.journal import Recorder
from nngkit.telemetry import Metrics
from nngkit.trust import OPEN
from nngkit.web.gateway import Gateway
from nngkit.web.gateway.description import OPERATIONS
from tests.trust.one_realm import OneRealm
from tests.web.conformance import STREAMED, conforming
from tests.web.gateways import Home, calculating, served
from tests.web.test_gateway_trust import EDGE, bearer, farm  # noqa: F401

pytestmark = pytest.mark.timeout(120)


class Order(msgspec.Struct):
    """An item, and further orders."""

    item: str
    more: list[Order] = []


async def order(body: Order) -> list[Order]:
    """Order something."""
    return [body]


async def several(body: int) -> AsyncIterator[Order]:
    for number in range(body):
        yield Order(str(number))


@contextlib.asynccontextmanager
async def shopping(**options: Any) -> AsyncGenerator[Home]:
    """Serve a gateway with a service that has methods with types, besides those of `calculating`."""
    async with calculating(**options) as (home, calc):
        shop = Server("shop", discovery=calc.daemon.addresses, codec="cbor")
        shop.method(order)
        shop.method(several)
        async with shop:
            await home.knows("shop")
            yield home


@contextlib.asynccontextmanager
async def whole(folder: Path) -> AsyncGenerator[Home]:
    """Serve a gateway with all of its routes."""
    metrics = Metrics()
    async with Recorder(folder / "journal") as recorder:
        recorder.put(b"4", topic="weather", protocol="test")
        await recorder.flush()
    async with Host("farm", listen="tcp://127.0.0.1:0", trust=OPEN) as host:
        options: dict[str, Any] = {"journal": folder / "journal", "streams": folder / "streams", "long_poll": 0.1}
        async with shopping(publish="tcp://127.0.0.1:0", node=host, metrics=metrics.text, **options) as home:
            for each in (home.gateway, home.http):
                metrics.watch(each)
            yield home


def samples(text: bytes, family: str, **labels: str) -> dict[str, float]:
    """Return the values of a metric whose samples have these labels, by the name of the sample."""
    (found,) = [one for one in text_string_to_metric_families(text.decode()) if one.name == family]
    return {each.name: each.value for each in found.samples if labels.items() <= each.labels.items()}


async def test_the_description_has_each_route_and_metrics_are_told(tmp_path: Path) -> None:
    async with whole(tmp_path) as home:
        described = (await home.ask("GET", "/openapi.json")).value
        told = {(method.upper(), path) for path, each in described["paths"].items() for method in each}
        assert told == set(OPERATIONS)
        for path in ("/services", "/openapi.json"):
            schema = described["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            jsonschema.validate((await home.ask("GET", path)).value, schema | {"components": described["components"]})
        assert (await home.ask("GET", "/readyz")).value == {"status": "ready"}
        assert (await home.call("calc/double", {"n": 2})).value == 4
        assert (await home.call("calc/none")).status == 404
        reply = await home.ask("GET", "/metrics")
        assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        text, route = reply.body, "POST /call/{name}/{method}"
        assert samples(text, "nngkit_calls_client_requests", service="calc") == {
            "nngkit_calls_client_requests_total": 2
        }
        for status in ("200", "404"):
            found = samples(text, "nngkit_web_route_responses", route=route, status=status)
            assert found == {"nngkit_web_route_responses_total": 1}
        times = samples(text, "nngkit_web_route_times_seconds", route=route)
        assert times["nngkit_web_route_times_seconds_count"] == 2
        assert 0 < times["nngkit_web_route_times_seconds_sum"] < 10
        assert samples(text, "nngkit_web_gateway_problems", code="not-found")
        for name in ("nngkit_web_hub_open", "nngkit_web_hub_slow", "nngkit_web_server_streams"):
            assert list(samples(text, name).values()) == [0]


async def test_methods_with_types_have_paths_of_their_own() -> None:
    async with shopping() as home:
        described = (await home.ask("GET", "/openapi.json")).value
        none = {"/call/{name}", "/call/{name}/{method}", "/services", "/v1/events", "/openapi.json"}
        none |= {"/healthz", "/readyz"}
        assert described["paths"].keys() == none
        described = (await home.ask("GET", "/openapi.json?service=shop&service=calc")).value
        assert {"/call/calc/double", "/call/shop/order", "/call/shop/several"} <= described["paths"].keys() - none
        post = described["paths"]["/call/shop/order"]["post"]
        assert post["summary"] == "Order something."
        schema = post["requestBody"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/shop.order.body.Order"}
        good: dict[str, Any] = {"item": "tea", "more": [{"item": "milk"}]}
        own = schema | {"components": described["components"]}
        jsonschema.validate(good, own)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"item": "tea", "more": [{}]}, own)
        assert (await home.call("shop/order", good)).status == 200
        stream = described["paths"]["/call/shop/several"]["post"]["responses"]["200"]["content"]
        assert stream.keys() == {"text/event-stream", "application/x-ndjson"}
        part = described["components"]["schemas"]["shop.several.part"] | {"components": described["components"]}
        parts = await home.call("shop/several", 2, Accept="application/x-ndjson")
        for line in parts.body.splitlines():
            jsonschema.validate(json.loads(line), part)
        assert (await home.ask("GET", "/metrics")).status == 404
        assert (await home.ask("GET", "/openapi.json?service=none")).status == 404
        assert (await home.ask("GET", "/openapi.json?" + "service=calc&" * 17)).status == 400


async def test_metrics_need_the_right_to_view(farm: OneRealm) -> None:  # noqa: F811
    metrics = Metrics()
    gateway = Gateway(daemons="tls+tcp://127.0.0.1:1", trust=farm.trust("gateway.edge"), metrics=metrics.text)
    async with served(gateway) as home:
        assert (await home.ask("GET", "/metrics")).status == 401
        assert (await home.ask("GET", "/openapi.json")).status == 401
        assert (await home.ask("GET", "/healthz")).value == {"status": "ok"}
        ready = await home.ask("GET", "/readyz")
        assert (ready.status, ready.value["why"]) == (503, "no discovery daemon answers")
        assert (await home.ask("HEAD", "/readyz")).status == 503
        assert (await home.ask("GET", "/metrics", **bearer(farm))).status == 403
        assert (await home.ask("GET", "/openapi.json", **bearer(farm))).status == 200
        farm.policy(EDGE, 'guest.ada | view = ["gateway"]')
        assert (await home.ask("GET", "/metrics", **bearer(farm))).status == 200


NAMES = {"call": ["calc", "shout", "none"], "streams": ["a", "b"], "topics": ["weather", "none"]}
"""Names that are there, by the first segment of the path."""
OTHERS = {"method": ["double", "echo", "fail", "decline", "count"], "partition": ["0", "1"], "id": ["1"], "kind": ["k"]}


def narrowed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a description by which requests are about what is there: others are refused by the first look."""
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    known = OTHERS.get(parameter["name"]) or NAMES[path.split("/")[1]]
                    parameter["schema"] = {"enum": known}
    return document


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # the gateway does, in another thread
async def test_schemathesis_finds_no_answer_that_the_description_does_not_tell(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import schemathesis  # a second to import
    from schemathesis.specs.openapi import checks

    @schemathesis.serializer("application/cbor")
    def cbor(_: Any, value: Any) -> Any:
        return value if isinstance(value, bytes) else str(value).encode()

    def end(case: Any) -> None:
        if (case.query or {}).get("live") == "sse":
            case.query["live"] = "long-poll"  # the other does not end

    # no others: many requests that fit are refused for what a schema cannot tell, as a deadline of a nanosecond
    conform = (checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance)
    async with whole(tmp_path) as home:
        document = narrowed((await home.ask("GET", "/openapi.json?service=shop")).value)
        asking = partial(conforming, home.http.url.rstrip("/"), document, examples=20, checks=conform, change=end)
        methods = {("POST", f"/call/shop/{name}") for name in ("order", "several")}
        asked = await trio.to_thread.run_sync(asking)
        assert asked == methods | {each for each in OPERATIONS if each[1] not in STREAMED}
        assert home.http.stats.answers.keys() >= {200, 201, 202, 204, 400, 404, 422}
        assert not [each for each in caplog.records if each.name == "nngkit.web"], "a bug of the gateway"
