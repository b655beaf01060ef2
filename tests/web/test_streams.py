"""Durable Streams at the gateway: topics of a journal, streams of its own, and rights; the offsets and forks alone."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from nngkit.journal import Recorder, read
from nngkit.testing import aeventually
from nngkit.web.gateway import Gateway
from nngkit.web.gateway.streams import offsets
from nngkit.web.gateway.streams.ledger import Change, Ledger, decoded, encoded
from tests.trust.one_realm import OneRealm
from tests.web.gateways import PATIENCE, Home, Reply, served
from tests.web.test_gateway_topics import Events
from tests.web.test_gateway_trust import bearer

pytestmark = pytest.mark.timeout(60)

TEXT = {"Content_Type": "text/plain"}


def gateway(**options: Any) -> Gateway:
    return Gateway(daemons="tcp://127.0.0.1:1", **options)


def at(reply: Reply) -> str:
    return reply.headers["stream-next-offset"]


# ---- pure ------------------------------------------------------------------------------------------------------------


@given(st.integers(0, offsets.MOST), st.integers(0, offsets.MOST))
def test_offsets_sort_as_their_positions_do(one: int, other: int) -> None:
    assert (offsets.token(one) < offsets.token(other)) == (one < other)
    assert offsets.position(offsets.token(one)) == one


@given(st.text() | st.from_regex(r"[0-9_-]{30,36}", fullmatch=True))
def test_what_is_no_offset_is_taken_for_none(text: str) -> None:
    found = offsets.position(text)
    assert found is None or offsets.token(found) == text


@given(st.floats(0, 4e9), st.text() | st.integers(0, 10**15 - 1).map(str), st.integers(1, offsets.MOST_JITTER))
def test_a_cursor_never_goes_back_and_never_stays(now: float, given_cursor: str, jitter: int) -> None:
    found = int(offsets.cursor(now, given_cursor, jitter))
    assert found >= int(offsets.cursor(now, None, jitter))
    if given_cursor.isascii() and given_cursor.isdigit() and len(given_cursor) <= 15:
        assert found > int(given_cursor) or found == int(offsets.cursor(now, None, jitter)) > int(given_cursor)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40), st.binary(max_size=6)), max_size=30), st.data())
def test_a_fork_reads_what_its_source_had_and_then_its_own(steps: list[tuple[int, int, bytes]], data: Any) -> None:
    ledger, values, model = Ledger(), dict[int, bytes](), dict[str, bytes]()

    def change(name: str, what: Change, value: bytes = b"") -> None:
        values[len(values)] = value
        assert decoded(encoded(what)) == what
        ledger.apply(name, len(values) - 1, what, 0.0)

    change("0", Change("create", type="text/plain"))
    model["0"] = b""
    for which, where, value in steps:
        name = str(which % len(model))
        if which < 4:
            change(name, Change("append", size=len(value), weight=len(value)), value)
            model[name] += value
        else:
            base, fork = where % (len(model[name]) + 1), str(len(model))
            change(fork, Change("create", type="text/plain", source=name, base=base))
            model[fork] = model[name][:base]
    for name, content in model.items():
        stream = ledger.streams[name]
        assert stream.tail == len(content)
        start = data.draw(st.integers(0, len(content)))
        stop = data.draw(st.integers(start, len(content)))
        pieces = stream.pieces(start, stop)
        assert b"".join(values[each.record][each.start : each.stop] for each in pieces) == content[start:stop]
    for name in sorted(model):  # a source goes once no stream branches from it
        change(name, Change("delete"))
    assert ledger.streams == {}


# ---- streams of its own ----------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_streams_are_the_same_after_a_restart(tmp_path: Path) -> None:
    numbered = {**TEXT, "Producer_Id": "p", "Producer_Epoch": "0", "Producer_Seq": "0"}
    async with served(gateway(streams=tmp_path / "own")) as home:
        assert (await home.ask("PUT", "/streams/log/a", b"one ", **TEXT)).status == 201
        assert (await home.ask("POST", "/streams/log/a", b"two ", **numbered)).status == 200
        tail = at(await home.ask("POST", "/streams/log/a", b"two ", **numbered))  # a duplicate
        fork = {"Stream_Forked_From": "/streams/log/a", "Stream_Fork_Offset": offsets.token(4)}
        assert (await home.ask("PUT", "/streams/fork", b"2", **fork)).status == 201
        json_body = json.dumps([1, {"n": 2}, [3]]).encode()
        assert (await home.ask("PUT", "/streams/json", json_body, Content_Type="application/json")).status == 201
        for name, last in (("log/a", b"end"), ("gone", b"")):
            await home.ask("PUT", f"/streams/{name}", **TEXT)
            assert (await home.ask("POST", f"/streams/{name}", last, Stream_Closed="true", **TEXT)).status == 204
        assert (await home.ask("DELETE", "/streams/gone")).status == 204
    async with served(gateway(streams=tmp_path / "own")) as home:
        reply = await home.ask("GET", f"/streams/log/a?offset={tail}")
        assert (reply.body, reply.headers["stream-closed"]) == (b"end", "true")
        assert (await home.ask("GET", "/streams/log/a")).body == b"one two end"
        assert (await home.ask("GET", "/streams/fork")).body == b"one 2"
        assert (await home.ask("GET", f"/streams/json?offset={offsets.token(1)}")).body == b'[{"n": 2},[3]]'
        assert (await home.ask("GET", "/streams/gone")).status == 404
        assert (await home.ask("POST", "/streams/log/a", b"two ", **numbered)).status == 409
        assert home.gateway.stats.streams is not None
        assert home.gateway.stats.streams.streams == 3
    values = {record.topic: record.value for record in read(tmp_path / "own") if record.topic == "json"}
    assert values == {"json": b'[1,{"n": 2},[3]]'}


async def test_a_name_is_refused_that_the_protocol_or_the_gateway_does_not_take(tmp_path: Path) -> None:
    async with served(gateway(streams=tmp_path / "own")) as home:
        for path, status in [
            ("/streams/__ds/subscriptions/1", 501),
            ("/streams/__ds/subscriptions/1/streams/events%2Fa", 501),
            ("/streams/%5F_ds", 501),
            ("/streams/a%2Fb", 400),
            ("/streams/" + "/".join("abcdefghi"), 404),
            ("/topics/weather", 404),
        ]:
            assert (await home.ask("PUT", path, **TEXT)).status == status, path
        for method in ("GET", "HEAD", "POST", "DELETE"):
            assert (await home.ask(method, "/streams/__ds/jwks.json")).status == 501, method
        fork = {"Stream_Forked_From": "/streams/__ds/wake"}
        assert (await home.ask("PUT", "/streams/fork", **fork)).status == 501
        reply = await home.ask("PATCH", "/streams/a")
        assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD, PUT, POST, DELETE")


async def test_a_stream_is_read_and_written_by_the_names_that_the_policy_grants_it(tmp_path: Path) -> None:
    farm = OneRealm(tmp_path)
    farm.policy('guest.ada | publish = ["chat"] | subscribe = ["chat"]', 'guest.bob | subscribe = ["chat"]')
    own = Gateway(daemons="tls+tcp://127.0.0.1:1", streams=tmp_path / "own", trust=farm.trust("gateway.edge"))
    async with served(own) as home:
        ada, bob = bearer(farm), bearer(farm, "guest.bob")
        for method, path, who, status in [
            ("PUT", "/streams/chat", {}, 401),
            ("PUT", "/streams/chat", bob, 403),
            ("PUT", "/streams/chat", ada, 201),
            ("POST", "/streams/chat", bob, 403),
            ("POST", "/streams/chat", ada, 204),
            ("PUT", "/streams/other", ada, 403),
            ("GET", "/streams/chat", bob, 200),
            ("GET", "/streams/other", bob, 403),
            ("DELETE", "/streams/chat", bob, 403),
            ("DELETE", "/streams/chat", ada, 204),
        ]:
            reply = await home.ask(method, path, b"x" if method == "POST" else b"", **TEXT, **who)
            assert reply.status == status, (method, path, reply.body)
            if status == 200:
                assert reply.headers["cache-control"].startswith("private")
                again = await home.ask(method, path, If_None_Match=reply.headers["etag"], **who)
                assert (again.status, again.body) == (304, b"")


# ---- topics of a journal ---------------------------------------------------------------------------------------------


async def test_a_topic_is_read_from_its_start_and_as_it_is_recorded(tmp_path: Path) -> None:
    async with Recorder(tmp_path / "journal") as recorder:
        put = partial(recorder.put, protocol="test")
        put(b"4", topic="weather", key=b"weather.ny")
        put(b"-", topic="news")
        put(b"\xff", topic="weather")
        await recorder.flush()
        async with served(gateway(journal=tmp_path / "journal", long_poll=PATIENCE)) as home:
            reply = await home.ask("GET", "/topics/weather")
            assert [{**each, "timestamp": 0} for each in reply.value] == [
                {"offset": 0, "timestamp": 0, "key": "weather.ny", "body": "4"},
                {"offset": 2, "timestamp": 0, "body": "/w==", "encoding": "base64"},
            ]
            assert (reply.headers["stream-up-to-date"], at(reply)) == ("true", offsets.token(3))
            assert (await home.ask("GET", "/topics/weather", If_None_Match=reply.headers["etag"])).status == 304
            head = await home.ask("HEAD", "/topics/weather/0")
            assert (head.status, head.body, at(head)) == (200, b"", offsets.token(3))
            for path, status in [
                ("/topics/weather/1", 404),
                ("/topics/storms", 404),
                ("/topics/weather?offset=5", 400),
                (f"/topics/weather?offset={offsets.token(9)}", 400),
                ("/topics/weather?live=sse", 400),
            ]:
                assert (await home.ask("GET", path)).status == status, path
            assert (await home.ask("POST", "/topics/weather", b"5", **TEXT)).status == 405
            await _is_followed(home, put, recorder, at(reply))
            await _ends_with_its_server(home)


async def _ends_with_its_server(home: Home) -> None:
    async def poll() -> None:
        reply = await home.ask("GET", "/topics/weather?offset=now&live=long-poll")
        assert (reply.status, at(reply)) == (204, offsets.token(5))

    def live() -> int:
        return home.gateway.stats.streams.live  # type: ignore[union-attr]

    await aeventually(lambda: not live(), PATIENCE)
    with trio.fail_after(PATIENCE / 2):  # a long poll waits PATIENCE
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            await aeventually(live, PATIENCE)
            home.http.drain()


async def _is_followed(home: Home, put: Any, recorder: Recorder, tail: str) -> None:
    answers: list[Reply] = []

    async def poll() -> None:
        answers.append(await home.ask("GET", f"/topics/weather?offset={tail}&live=long-poll"))

    async with await trio.open_tcp_stream("127.0.0.1", home.http.port) as stream:
        await stream.send_all(b"GET /topics/weather?offset=now&live=sse HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        events = Events(stream)
        first = await events.next()
        assert (first["event"], first["data"]["upToDate"]) == ("control", True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            with trio.fail_after(PATIENCE):
                while home.gateway.stats.streams.live < 2:  # type: ignore[union-attr]  # noqa: ASYNC110
                    await trio.sleep(0.01)
            put(b"other", topic="news")  # wakes no reader for good
            put(b"5", topic="weather")
            await recorder.flush()
        data, control = await events.next(), await events.next()
        while data["event"] == "control":  # it has looked at the record of another topic first
            data, control = control, await events.next()
        assert [each["body"] for each in data["data"]] == ["5"]
        assert control["data"]["streamNextOffset"] == offsets.token(5)
    (answer,) = answers
    assert (answer.status, [each["body"] for each in answer.value]) == (200, ["5"])
    assert answer.headers["stream-cursor"].isdigit()
