"""Calls through the gateway, over real sockets: replies, streams, errors and limits."""

from __future__ import annotations

import json

import pytest
import trio

from nngkit import Server, envelope
from nngkit.errors import ConfigError
from nngkit.web.gateway import Gateway
from nngkit.web.server import ServerLimits
from tests.web.gateways import PATIENCE, Home, calculating

pytestmark = pytest.mark.timeout(60)


async def curl(home: Home, *arguments: str) -> str:
    command = ["curl", "--silent", "--show-error", "--max-time", "10", *arguments]
    ran = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return str(ran.stdout.decode())


async def test_a_call_by_json_cbor_and_bytes() -> None:
    async with calculating() as (home, calc):
        reply = await home.call("calc/double", {"n": 21})
        assert (reply.status, reply.value, reply.headers["content-type"]) == (200, 42, "application/json")
        assert reply.headers["cache-control"] == "no-store"
        url = f"{home.http.url}call/calc/double"
        assert await curl(home, url, "-H", "Content-Type: application/json", "-d", '{"n": 4}') == "8"
        body = envelope.encode({"a": b"\xff", "b": [1, None]})
        reply = await home.ask("POST", "/call/calc/echo", body, Content_Type="application/cbor")
        assert envelope.decode(reply.body, what="reply") == {"a": b"\xff", "b": [1, None]}
        reply = await home.ask(
            "POST", "/call/calc/echo", body, Content_Type="application/cbor", Accept="application/json"
        )
        assert reply.value == {"a": "/w==", "b": [1, None]}
        reply = await home.ask("POST", "/call/shout", b"hi \xff", Content_Type="application/octet-stream")
        assert (reply.body, reply.headers["content-type"]) == (b"HI \xff", "application/octet-stream")
        reply = await home.ask("POST", "/call/calc/echo")
        assert (reply.status, reply.value) == (200, None)
        assert calc.ran == 2
        assert home.gateway.stats.clients["calc"].requests == 5


async def test_the_headers_of_a_trace_go_on_to_the_service_and_no_others() -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with calculating() as (home, _):
        for accept in ("application/json", "application/x-ndjson"):
            reply = await home.call("calc/heard", Traceparent=trace, Tracestate="a=1", Cookie="secret", Accept=accept)
            assert json.loads(reply.body) == {"traceparent": trace, "tracestate": "a=1"}
        assert (await home.call("calc/heard")).value == {}


async def test_errors_have_their_status_and_say_why() -> None:
    async with calculating() as (home, calc):
        for path, status, code in [
            ("calc/slow", 504, "timed-out"),
            ("calc/fail", 500, "failed"),
            ("calc/decline", 422, "declined"),
            ("calc/none", 404, "not-found"),
            ("unknown", 404, "not-found"),
            ("bad%7Cname", 404, "not-found"),
        ]:
            reply = await home.call(path, Grpc_Timeout="3S" if "slow" not in path else "200m")
            assert (reply.status, reply.value["code"]) == (status, code), reply.body
            assert reply.headers["content-type"] == "application/problem+json"
            assert reply.value["status"] == status
        declined = (await home.call("calc/decline")).value
        assert (declined["detail"], declined["data"], declined["ran"]) == ("not for you", {"limit": 5}, True)
        began = trio.current_time()
        assert (await home.call("calc/slow", Grpc_Timeout="50m")).status == 504
        assert trio.current_time() - began < 0.25
        for headers, status in [
            ({"Grpc_Timeout": "soon"}, 400),
            ({"Idempotent": "yes"}, 400),
            ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
            ({"Content_Type": "application/cbor"}, 400),
            ({"Accept": "text/html"}, 406),
        ]:
            assert (await home.call("calc/echo", {"a": 1}, **headers)).status == status
        assert (await home.ask("POST", "/call/calc/echo", b"{", Content_Type="application/json")).status == 400
        assert (await home.ask("GET", "/call/calc/echo")).headers["allow"] == "POST"
        assert (await home.ask("GET", "/nowhere")).value["code"] == "no-route"
        lacks = "no such path: /jobs/1: the gateway has no cluster (--cluster)"
        assert (await home.ask("GET", "/jobs/1")).value["detail"] == lacks
        assert (await home.call("calc/echo", 2**70)).status == 400
        assert home.gateway.stats.problems["timed-out"] == 2
        assert calc.ran == 0


async def test_a_service_that_has_left_is_unavailable_and_not_unknown() -> None:
    async with calculating(timeout=0.2) as (home, calc):
        async with Server("brief", _same, discovery=calc.daemon.addresses, codec="cbor"):
            await home.knows("brief")
            assert (await home.call("brief", 1)).value == 1
        reply = await home.call("brief", 1)
        assert (reply.status, reply.headers["retry-after"], reply.value["ran"]) == (503, "1", False)


async def _same(body: object) -> object:
    return body


async def test_parts_of_a_reply_as_events_and_as_lines() -> None:
    async with calculating() as (home, _):
        reply = await home.call("calc/count", 3, Accept="text/event-stream")
        assert reply.body == b"data: 0\n\ndata: 1\n\ndata: 2\n\nevent: end\ndata: null\n\n"
        assert reply.headers["transfer-encoding"] == "chunked"
        reply = await home.call("calc/count", 200, Accept="application/x-ndjson")
        assert [json.loads(line) for line in reply.body.splitlines()] == list(range(200))
        assert (await home.call("calc/count", 0, Accept="application/x-ndjson")).body == b""
        broken = await home.call("calc/break_off", 2, Accept="text/event-stream")
        *parts, error, _ = broken.body.decode().split("\n\n")
        assert parts == ["data: 0", "data: 1"]
        assert error.startswith("event: error\n")
        assert json.loads(error.partition("data: ")[2])["code"] == "empty"
        early = await home.call("calc/break_off", 0, Accept="text/event-stream")
        assert (early.status, early.value["code"]) == (422, "empty")


SMUGGLED = [
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /services HTTP/1.1\r\nHost: x\r\n\r\n",
    b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}GET",
    b"Content-Length: +2\r\n\r\n{}",
    b"Content-Length: 2, 3\r\n\r\n{}",
    b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
    b"A: b\rGET / HTTP/1.1\r\n\r\n",
    b"A: b\r\n folded: c\x00\r\n\r\n",
    b"Host: y\r\n\r\n",
]


@pytest.mark.parametrize("rest", SMUGGLED)
async def test_a_request_that_two_readers_would_divide_differently_is_refused(rest: bytes) -> None:
    async with calculating() as (home, calc):
        head = b"POST /call/calc/echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        heard = await home.say(head + rest)
        assert heard.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 ")), heard
        assert heard.count(b"HTTP/1.1 ") == 1
        assert calc.ran == 0


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        (b"a_b.evil.example", b"http://a_b.evil.example", 421),
        (b"evil example", b"http://evil example", 400),
        (b"\xff", b"http://\xff", 400),
        (b"127.0.0.1", b"http://\xff", 200),
    ],
)
async def test_a_forged_host_or_origin_is_no_way_in_and_ends_nothing(host: bytes, origin: bytes, status: int) -> None:
    async with calculating(origins=("*",)) as (home, _):
        heard = await home.say(
            b"GET /services HTTP/1.1\r\nHost: %b\r\nOrigin: %b\r\nConnection: close\r\n\r\n" % (host, origin)
        )
        assert heard.startswith(b"HTTP/1.1 %d " % status)
        assert b"Allow-Origin" not in heard
        assert (await home.ask("GET", "/services")).status == 200


async def test_large_slow_and_forged_requests_are_refused_and_counted() -> None:
    limits = ServerLimits(body=1000, bodies=1500, reading=0.3, connections=8, from_one=4, head=4096)
    async with calculating(limits=limits) as (home, _):
        post = b"POST /call/calc/echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        large = await home.say(post + b"Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n")
        assert large.startswith(b"HTTP/1.1 413 ")  # before any of it was sent
        chunks = b"Transfer-Encoding: chunked\r\n\r\n" + b"64\r\n" + b" " * 100 + b"\r\n"
        assert (await home.say(post + chunks + (b"64\r\n" + b" " * 100 + b"\r\n") * 12)).startswith(b"HTTP/1.1 413 ")
        assert (await home.say(post + b"A: " + b"a" * 5000)).startswith(b"HTTP/1.1 431 ")
        assert (await home.say(post + b"Content-Length: 9\r\n\r\n[1, 2")).startswith(b"HTTP/1.1 408 ")
        assert (await home.call("calc/echo", 1, Host="evil.example")).status == 421
        assert (await home.call("calc/echo", 1, Origin="https://evil.example")).status == 403
        assert (await home.say(b"POST /call/calc/echo HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")).startswith(b"HTTP/1.1 505")
        async with await trio.open_tcp_stream("127.0.0.1", home.http.port) as stream:
            await stream.send_all(post + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            with trio.fail_after(5):
                assert await stream.receive_some(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
                await stream.send_all(b"42")
                assert (await stream.receive_some(1000)).endswith(b"\r\n\r\n42")
        streams = [await trio.open_tcp_stream("127.0.0.1", home.http.port) for _ in range(5)]
        with trio.fail_after(5):
            assert (await streams[4].receive_some(100)).startswith(b"HTTP/1.1 503 ")
        for stream in streams:
            await stream.aclose()
        answers = home.http.stats.answers
        assert answers[413] == 2
        assert answers[431] == answers[408] == answers[421] == answers[403] == answers[503] == 1


async def test_a_rate_is_that_of_an_address() -> None:
    async with calculating(rate=5) as (home, _):
        replies = [await home.call("calc/echo", number) for number in range(12)]
        refused = [reply for reply in replies if reply.status == 429]
        assert len(refused) >= 3
        assert refused[0].headers["retry-after"] == "1"
        assert home.gateway.stats.refused["rate"] == len(refused)


async def test_pages_of_other_sites_are_admitted_by_name() -> None:
    async with calculating(origins=("https://app.example",)) as (home, _):
        asked = {"Origin": "https://app.example"}
        preflight = await home.ask(
            "OPTIONS",
            "/call/calc/echo",
            **asked,
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers="authorization,content-type",
        )
        assert (preflight.status, preflight.body) == (204, b"")
        assert preflight.headers["access-control-allow-origin"] == "https://app.example"
        assert preflight.headers["access-control-allow-headers"] == "authorization,content-type"
        assert (await home.call("calc/echo", 1, **asked)).headers["access-control-allow-origin"] == asked["Origin"]
        assert (await home.call("calc/echo", 1, Origin="https://other.example")).status == 403
        assert "access-control-allow-origin" not in (await home.call("calc/echo", 1)).headers


async def test_services_are_listed_without_addresses() -> None:
    async with calculating() as (home, _):
        listed = (await home.ask("GET", "/services")).value
        assert listed["fresh"] is True
        assert sorted(listed["services"]) == ["calc", "shout"]
        (provider,) = listed["services"]["calc"]
        assert provider["priority"] == 8
        assert "address" not in provider


def test_unusable_options() -> None:
    for options in ({"timeout": 0}, {"rate": -1}, {"most_timeout": float("inf")}):
        with pytest.raises(ConfigError):
            Gateway(daemons="tcp://127.0.0.1:1", **options)


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_call_whose_client_leaves_is_cancelled_at_the_service(accept: str) -> None:
    async with calculating() as (home, calc):
        head = f"POST /call/calc/slow HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\n"
        async with await trio.open_tcp_stream("127.0.0.1", home.http.port) as stream:
            await stream.send_all(f"{head}Content-Type: application/json\r\nContent-Length: 4\r\n\r\nnull".encode())
            with trio.fail_after(PATIENCE):
                await calc.slow_began.wait()
        with trio.fail_after(PATIENCE):
            await calc.slow_ended.wait()
        assert home.http.stats.cut == 1


async def test_an_unknown_method_is_told_at_once() -> None:
    async with calculating() as (home, _):
        assert (await home.call("calc/divide", {"n": 1})).status == 404
        (client,) = home.gateway.stats.clients.values()
        assert (client.refused, client.retried) == (1, 0)
