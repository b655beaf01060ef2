"""`--http` of the daemons: their health, metrics and state, as other programs read them."""

import contextlib
import json
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families

from nngkit.cli.cluster.node_door import Answers
from nngkit.errors import TimedOut
from tests.cli.commands import ROOT, assert_fails, command, environment, nngkit, valid
from tests.preloaded import Popen
from tests.web.conformance import STREAMED, conforming

ANY = "tcp://127.0.0.1:0"


def fetch(url: str, **headers: str) -> tuple[int, bytes]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=20) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def eventually_ready(url: str) -> None:
    until = time.monotonic() + 20
    while (answer := fetch(f"{url}readyz"))[0] != 200:
        assert time.monotonic() < until, answer
        time.sleep(0.02)


@contextlib.contextmanager
def daemon(*arguments: str, **variables: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a daemon with `--http 0`; yield the URL of its door."""
    with Popen(
        command(*arguments, "--http", "0"),
        cwd=ROOT,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            while not (found := re.search(r"answers HTTP at (http://\S+?/)", line := process.stderr.readline())):
                assert line, "it has ended"
            yield found[1], process
        finally:
            process.kill()


def assert_holds(url: str, described: dict[str, Any]) -> None:
    """Assert that each JSON value of a door is as its OpenAPI tells."""
    for path, operations in described["paths"].items():
        content = operations["get"]["responses"]["200"]["content"]
        if "application/json" in content:
            status, found = fetch(url.rstrip("/") + path)
            assert status == 200, (path, found)
            schema = {**content["application/json"]["schema"], "components": described["components"]}
            jsonschema.validate(json.loads(found), schema)


DISCOVERD = ("discoverd", "--listen", ANY, "--query", ANY, "--deadline", "0.1", "--interval", "0.1", "--no-history")


def cases(folder: Path) -> dict[str, tuple[tuple[str, ...], str, str]]:
    """Return for each daemon its arguments, a path with its state, and a metric."""
    return {
        "discoverd": (DISCOVERD, "v1/services", "nngkit_discovery_providers"),
        "host": (("host", "render", "--listen", ANY, "--token", "t"), "v1/node", "nngkit_cluster_endpoint_leading"),
        "record": (
            ("record", str(folder / "journal"), "--stream", f"jobs=pull listen={ANY}"),
            "v1/recorder",
            "nngkit_journal_recorder_end",
        ),
        "serve": (
            ("serve", "shout", "--exec", "tr a-z A-Z", "--listen", ANY, "--discovery", "tcp://127.0.0.1:9"),
            "v1/service",
            "nngkit_calls_server_requests",
        ),
        "device": (
            ("device", "streamer", "--front-listen", ANY, "--back-listen", ANY),
            "v1/device",
            "nngkit_devices_device_in_flight",
        ),
        "doc": (
            ("doc", "serve", str(folder / "docs"), "--listen", "ws://127.0.0.1:0", "--no-page"),
            "v1/documents",
            "nngkit_documents_peer_edits",
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(Path()))
def test_a_daemon_tells_its_health_metrics_and_state(name: str, tmp_path: Path) -> None:
    arguments, state, metric = cases(tmp_path)[name]
    with daemon(*arguments) as (url, process):
        assert fetch(f"{url}healthz")[0] == 200
        eventually_ready(url)
        status, text = fetch(f"{url}metrics")
        assert status == 200
        names = {family.name for family in text_string_to_metric_families(text.decode())}
        assert {metric, "nngkit_protocols_pool_members", "nngkit_web_server_open", "process_open_fds"} <= names
        described: dict[str, Any] = json.loads(fetch(f"{url}openapi.json")[1])
        assert f"/{state}" in described["paths"]
        asked = conforming(url.rstrip("/"), described, examples=5)
        assert asked == {("GET", path) for path in described["paths"]} - {("GET", path) for path in STREAMED}
        for path in (each for each in described["paths"].keys() - STREAMED if each.startswith("/v1/")):
            answer = described["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            row = answer["properties"].get("rows", {}).get("items", answer)
            assert row["additionalProperties"] is False, "each field is described"
        assert fetch(f"{url}other")[0] == 404
        assert_holds(url, described)
        with urllib.request.urlopen(f"{url}v1/events", timeout=20) as events:  # as by a page
            assert events.readline()
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 143
            assert events.read()[-2:] in (b"", b"\n\n"), "whole events, and the last chunk"
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def told(events: Any, table: str, check: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Read events until the rows of a table are as `check` wants them; return them."""
    rows: dict[str, Any] = {}
    until = time.monotonic() + 20
    while not check(rows):
        assert time.monotonic() < until, rows
        line = events.readline()
        assert line, "the stream has ended"
        part = json.loads(line[6:]).get(table, {}) if line.startswith(b"data: ") else {}
        rows |= part.get("set", {})
        for key in part.get("gone", ()):
            del rows[key]
    return rows


def rows_of(url: str, path: str) -> list[dict[str, Any]]:
    status, found = fetch(f"{url}v1/{path}")
    assert status == 200, found
    rows: list[dict[str, Any]] = json.loads(found)["rows"]
    return rows


async def test_the_host_of_a_cluster_is_asked_once_for_all_clients_and_a_failure_is_an_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked: list[float] = []
    fails = False

    async def ask() -> int:
        asked.append(trio.current_time())
        await trio.sleep(0.5)
        if fails:
            raise TimedOut("no host")
        return len(asked)

    async def want(expected: int | None) -> None:
        if expected is None:
            with pytest.raises(TimedOut):
                await answers.refresh()
        else:
            assert await answers.refresh() == expected

    answers = Answers(ask, 1.0)
    for expected, times in ((1, 1), (None, 2), (3, 3)):
        fails = expected is None
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(want, expected)
        await want(expected)
        assert len(asked) == times
        await trio.sleep(1.0)


@pytest.mark.slow
def test_any_node_of_a_cluster_tells_its_tree_voters_term_and_jobs(tmp_path: Path) -> None:
    host_arguments = ("host", "render", "--listen", f"ipc://{tmp_path}/host", "--token", "t", "--id", "a")
    joined = ("join", "render", "--dial", f"ipc://{tmp_path}/host", "--token", "t", "--id", "b", "--slots", "1")
    work = ("--kind", "wait", "--exec", "cat > /dev/null; sleep 30", "--drain-timeout", "0.1")
    submitted = command("submit", "render", "--dial", f"ipc://{tmp_path}/host", "--token", "t", "--kind", "wait")
    with contextlib.ExitStack() as opened:
        url, host = opened.enter_context(daemon(*host_arguments))
        member, _ = opened.enter_context(daemon(*joined, *work))
        eventually_ready(member)
        jobs = [
            opened.enter_context(Popen([*submitted, payload], cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL))
            for payload in ("one", "two")
        ]
        try:
            with urllib.request.urlopen(f"{member}v1/events", timeout=20) as events:
                queued = told(events, "jobs", lambda rows: rows.get("wait", {}).get("waiting") == 1)
                assert (queued["wait"]["running"], queued["all kinds"]["running"]) == (1, 1)
            for door in (url, member):
                assert_holds(door, json.loads(fetch(f"{door}openapi.json")[1]))
                tree = {row["id"]: row["parent"] for row in rows_of(door, "members")}
                assert (tree["a"], tree["b"]) == ("", "a")
                assert [row["id"] for row in rows_of(door, "voters")] == ["a"]
                waits = {row["kind"]: (row["waiting"], row["running"]) for row in rows_of(door, "jobs")}
                assert waits == {"": (1, 1), "wait": (1, 1)}
                cluster = json.loads(fetch(f"{door}v1/cluster")[1])
                assert (cluster["host"], cluster["grants"]) == ("a", True)
                assert cluster["term"] == json.loads(fetch(f"{door}v1/node")[1])["term"] > 0
            host.kill()
            host.wait(20)
            until = time.monotonic() + 20
            while (answer := fetch(f"{member}v1/cluster"))[0] != 503:
                assert time.monotonic() < until, answer
            assert b"TimedOut: " in answer[1]
        finally:
            for job in jobs:
                job.kill()


@pytest.mark.slow
def test_documents_that_are_opened_edits_and_peers_that_come_and_go_are_events(tmp_path: Path) -> None:
    served = ("doc", "serve", str(tmp_path / "docs"), "--listen", "ws://127.0.0.1:0", "--no-token", "--no-page")
    with daemon(*served) as (url, process):
        assert process.stdout is not None
        join = process.stdout.readline().split("'")[1]
        (tmp_path / "minutes.txt").write_text("one")
        with urllib.request.urlopen(f"{url}v1/events", timeout=20) as events:
            done = nngkit("doc", "import", str(tmp_path / "minutes.txt"), "--join", join)
            assert done.returncode == 0, done.stderr
            opened = told(events, "documents", lambda rows: rows.get("minutes", {}).get("edits", 0) > 0)
            follow = command("doc", "cat", "minutes", "--follow", "--name", "Ada", "--join", join)
            with Popen(follow, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL) as reader:
                try:
                    came = told(events, "peers", lambda rows: "Ada" in [row["name"] for row in rows.values()])
                    (tmp_path / "minutes.txt").write_text("one and two")
                    nngkit("doc", "import", str(tmp_path / "minutes.txt"), "--join", join)
                    told(events, "documents", lambda rows: rows.get("minutes", {}).get("edits_per_second", 0) > 0)
                    assert_holds(url, json.loads(fetch(f"{url}openapi.json")[1]))
                    (found,) = rows_of(url, "documents")
                    assert found["document"] == "minutes"
                    assert found["edits"] > opened["minutes"]["edits"]
                    assert "Ada" in [row["name"] for row in rows_of(url, "peers")]
                finally:
                    reader.kill()
            gone = {key for key, row in came.items() if row["name"] == "Ada"}
            told(events, "peers", lambda rows: not gone & rows.keys())


@pytest.mark.slow
def test_a_server_of_consumers_tells_their_positions(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal")
    with daemon("record", journal, "--stream", f"jobs=pull listen={ANY}"):
        pass
    with daemon("consume", "--serve", "--journal", journal, "--listen", ANY) as (url, _):
        assert json.loads(fetch(f"{url}v1/consumers")[1]) == {"total": 0, "offset": 0, "rows": []}


def test_a_door_is_asked_by_the_names_that_it_was_given() -> None:
    with daemon(*DISCOVERD, NNGKIT_DISCOVERD_HTTP_NAME="Door.example. other.example") as (url, _):
        names = {"door.example": 200, "other.example:80": 200, "third.example": 421, "localhost": 200}
        assert {name: fetch(f"{url}healthz", Host=name)[0] for name in names} == names
    assert_fails(nngkit(*DISCOVERD, "--http-name", "door.example"), 2, "--http-name: requires --http")
    assert_fails(nngkit(*DISCOVERD, "--http-name", "door:80"), 2, "'door:80' is not a host name")


@pytest.mark.slow
def test_a_gateway_tells_its_metrics_and_whether_it_is_ready() -> None:
    arguments = ("gateway", "--http", "0", "--daemon", "tcp://127.0.0.1:1", "--http-name", "gateway.example")
    with Popen(
        command(*arguments),
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            names = {family.name for family in text_string_to_metric_families(fetch(f"{url}metrics")[1].decode())}
            own = {"nngkit_web_gateway_jobs", "nngkit_web_server_open", "nngkit_protocols_pool_members"}
            assert own | {"process_open_fds"} <= names
            assert [fetch(f"{url}{path}")[0] for path in ("healthz", "readyz")] == [200, 503]
            asked = [fetch(f"{url}healthz", Host=name)[0] for name in ("gateway.example", "evil.example")]
            assert asked == [200, 421]
        finally:
            process.kill()


def test_an_address_that_other_machines_can_reach_is_refused() -> None:
    done = nngkit(*DISCOVERD, "--http", "0.0.0.0:0")
    assert done.returncode == 2
    assert "--http: 0.0.0.0:0: other machines can reach it" in done.stderr
    assert_fails(nngkit("discoverd", "--http", ":80"), 2, "':80' is not [HOST:]PORT")


def test_lines_of_the_log_are_json_if_asked_for() -> None:
    done = nngkit(*DISCOVERD, "--http", "0.0.0.0:0", "--log-format", "json")
    lines = [valid(line, "log.json") for line in done.stderr.splitlines()]
    assert {line["command"] for line in lines} == {"nngkit discoverd"}
    assert "--http: 0.0.0.0:0: other machines can reach it" in lines[0]["message"]
