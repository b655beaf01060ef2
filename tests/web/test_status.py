"""The events of a status page: tables and their parts, clients that come, go and do not read, and real daemons."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from nngkit import Service
from nngkit.discovery import Daemon, DaemonSettings
from nngkit.discovery.history import Change, History
from nngkit.histogram import BOUNDS, Distribution
from nngkit.testing import aeventually
from nngkit.web.door import Door, Value, section
from nngkit.web.gateway.status import quantile
from nngkit.web.server import Server, serve
from nngkit.web.status import Feed, Section, page_site
from nngkit.web.status import feed as feed_module
from nngkit.web.status.services import services
from nngkit.web.status.table import PART, Part, Table
from tests.web.gateways import calculating

PATIENCE = 10.0


def applied(rows: dict[str, object], parts: list[Part]) -> dict[str, object]:
    """Apply parts as a page does."""
    for part in parts:
        for key in part.get("gone", ()):
            rows.pop(key, None)
        assert len(part.get("set", ())) <= PART
        rows.update(part.get("set", {}))
    return rows


KEYS = st.sampled_from("abcd")


@given(st.lists(st.one_of(st.tuples(KEYS, st.integers(0, 2)), st.tuples(KEYS), st.just(()))))
def test_a_reader_of_the_parts_has_the_rows(steps: list[tuple[Any, ...]]) -> None:
    table, followed = Table(most=3), dict[str, object]()
    for step in steps:
        if len(step) == 2:
            table.set(*step)
        elif step:
            table.drop(*step)
        else:
            applied(followed, table.take())
            assert followed == table.rows
            assert table.take() == []
        assert len(table.rows) <= 3
        assert applied({}, table.all()) == table.rows


def test_many_rows_come_in_parts_and_too_many_are_said() -> None:
    table = Table(most=2 * PART)
    table.replace({str(number): number for number in range(2 * PART + 1)})
    assert [len(part.get("set", ())) for part in table.take()] == [PART, PART, 0]
    assert table.all()[-1] == {"about": {"cut": True}}
    table.replace({})
    assert table.take()[-1] == {"about": {}}


def test_a_quantile_lies_within_its_bucket() -> None:
    counts = tuple(0 if bound < 0.01 else 100 for bound in BOUNDS)
    assert quantile(Distribution(counts, 100, 1.0), 0.5) == pytest.approx(0.0075)
    assert quantile(Distribution(), 0.5) is None


@contextlib.asynccontextmanager
async def serving(feed: Feed, **given: Any) -> AsyncGenerator[Server]:
    """Serve a door with these events."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed.run)
        door = Door("nngkit test", {"v1/one": Value("One.", lambda: {"one": 1})}, events=feed, **given)
        yield await nursery.start(partial(serve, door))
        nursery.cancel_scope.cancel()


class Reader:
    """A client of the events, which applies them as a page does."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self.begin: dict[str, Any] = {}
        self._stream = stream

    async def has(self, table: str, check: Any) -> Any:
        """Read until the table's rows are as `check` wants them; return them."""
        heard = b""
        with trio.fail_after(PATIENCE):
            while not check(self.tables.get(table, {})):
                more = await self._stream.receive_some(65536)
                assert more, "the stream has ended"
                *events, heard = (heard + more).split(b"\n\n\r\n")
                for event in events:
                    self._take(event)
        return self.tables[table]

    def _take(self, event: bytes) -> None:
        for line in event.split(b"\n"):
            if line.startswith(b"data: "):
                value = json.loads(line[6:])
                if b"event: begin" in event:
                    self.begin, self.tables = value, {}
                else:
                    for table, part in value.items():
                        applied(self.tables.setdefault(table, {}), [part])


@contextlib.asynccontextmanager
async def reading(port: int, path: str = "/v1/events") -> AsyncGenerator[Reader]:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        yield Reader(stream)


async def test_services_choices_and_changes_of_a_daemon(tmp_path: Path) -> None:
    with contextlib.closing(History(tmp_path / "history.sqlite")) as history:
        history.add([Change(1e9, "old", "tcp://10.0.0.1:1", "1", "up", "down", "bye")])
        async with Daemon(DaemonSettings(listen=("tcp://127.0.0.1:0",), deadline=0.2, interval=0.1)) as daemon:
            source = daemon.discovery
            feed = Feed("nngkit test", [services(source, view=source.view, history=history)])
            first = Service("pay", "tcp://127.0.0.1:9001", discovery=daemon.addresses, zone="ny", priority=1)
            second = Service("pay", "tcp://127.0.0.1:9002", discovery=daemon.addresses)
            async with serving(feed) as server, reading(server.port) as reader, first:
                async with second:
                    rows = await reader.has("services", lambda rows: len(rows) == 2)
                    assert {(row["zone"], row["priority"], row["state"]) for row in rows.values()} == {
                        ("ny", 1, "up"),
                        ("", 8, "up"),
                    }
                    picks = await reader.has("picks", lambda rows: "pay" in rows)
                    assert picks["pay"]["address"] == "tcp://127.0.0.1:9001"
                rows = await reader.has("services", lambda rows: {"down"} <= {row["state"] for row in rows.values()})
                changes = await reader.has(
                    "changes", lambda rows: "down" in {row["state"] for row in rows.values() if row["name"] == "pay"}
                )
                told = [(row["name"], row["state"], row["reason"]) for row in changes.values()]
                assert told[0] == ("old", "down", "bye"), "from the history"
                assert told[-1] == ("pay", "down", "bye")
                assert reader.begin["tables"].keys() == {"services", "picks", "changes"}


async def test_a_second_page_has_all_rows_and_a_route_is_a_table_with_its_error() -> None:
    wrong = False

    def value() -> object:
        if wrong:
            raise OSError("the disk fails")
        return {"one": 1}

    feed = Feed("nngkit test", [section("v1/one", Value("One.", value))])
    async with serving(feed) as server, reading(server.port) as one:
        assert await one.has("one", lambda rows: rows) == {"": {"one": 1}}
        async with reading(server.port) as two:
            assert await two.has("one", lambda rows: rows) == {"": {"one": 1}}
            assert feed.stats.open == 2
        await aeventually(lambda: feed.stats.open == 1, PATIENCE)


async def test_a_client_that_does_not_read_is_cut_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "QUEUE", 1 << 16)
    monkeypatch.setattr(feed_module, "CLIENTS", 1)

    async def fill(table: Table) -> None:
        number = 0
        while True:
            number += 1
            table.set("row", f"{number} " * 200_000)  # more than the kernel's buffers take
            await trio.sleep(0.02)

    feed = Feed("nngkit test", [Section({"large": "A row."}, fill)])
    async with serving(feed) as server, reading(server.port):
        await aeventually(lambda: feed.stats.open == 1, PATIENCE)
        async with await trio.open_tcp_stream("127.0.0.1", server.port) as other:
            await other.send_all(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert (await other.receive_some(100)).startswith(b"HTTP/1.1 503")
        await aeventually(lambda: feed.stats.open == 0, PATIENCE)
        assert (feed.stats.slow, feed.stats.refused) == (1, 1)


async def test_the_door_describes_and_refuses() -> None:
    feed = Feed("nngkit test", [])
    door = Door("nngkit test", {}, events=feed, beyond=page_site())
    described = json.loads(door.answer("GET", "/openapi.json", host="127.0.0.1", etag=None).body)
    assert "text/event-stream" in described["paths"]["/v1/events"]["get"]["responses"]["200"]["content"]
    page = door.answer("GET", "/", host="127.0.0.1", etag=None)
    policy = dict(page.headers)["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    async with serving(feed) as server, await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
        await stream.send_all(b"POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n")
        assert (await stream.receive_some(100)).startswith(b"HTTP/1.1 405")


def test_the_page_is_small_and_loads_nothing_from_elsewhere() -> None:
    folder = Path(feed_module.__file__).with_name("page")
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    assert sum(map(len, texts.values())) < 100_000
    for name, text in texts.items():
        assert "innerHTML" not in text, name
        assert "://" not in text.replace("http://www.w3.org/2000/svg", ""), name


async def test_a_gateway_tells_of_calls_topics_and_daemons() -> None:
    async with (
        calculating(publish="tcp://127.0.0.1:0") as (home, calc),
        reading(home.http.port) as reader,
    ):
        assert (await home.call("calc/double", {"n": 2})).value == 4
        await home.ask("POST", "/pub?topic=weather.ny", b"4")
        calls = await reader.has("calls", lambda rows: rows.get("calc", {}).get("calls"))
        assert (calls["calc"]["calls"], calls["calc"]["failed"]) == (1, 0)
        assert 0 < calls["calc"]["p50"] <= calls["calc"]["p99"]
        topics = await reader.has("topics", lambda rows: "weather.ny" in rows)
        assert (topics["weather.ny"]["messages"], topics["weather.ny"]["streams"]) == (1, 0)
        daemons = await reader.has("daemons", lambda rows: rows)
        assert [(row["answers"], row["providers"]) for row in daemons.values()] == [(True, 2)]
        assert (await home.ask("GET", "/")).status == 200
        assert (await home.ask("GET", "/main.js")).headers["content-type"].startswith("text/javascript")
        assert home.gateway.stats.page.open == 1
        assert calc.ran == 1
