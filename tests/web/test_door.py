"""The door of a daemon: what it answers, refuses and keeps; by its OpenAPI, and over a real socket."""

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import trio

from nngkit.errors import NotFound
from nngkit.web.door import AGE, KEPT, Door, Rows, Value
from nngkit.web.exchange import Response
from nngkit.web.server import Server, serve
from nngkit.web.site import Site
from tests.web.conformance import conforming


def get(door: Site, target: str, method: str = "GET", host: str | None = "127.0.0.1:80") -> Response:
    return door.answer(method, target, host=host, etag=None)


def body(door: Site, target: str) -> Any:
    response = get(door, target)
    assert response.status == 200, response.body
    return json.loads(response.body)


ROW = {"type": "object", "required": ["number"]}


def make(**given: Any) -> Door:
    rows = Rows("Numbers.", lambda: range(2500), lambda number: {"number": number}, ROW)
    return Door("nngkit test", {"v1/numbers": rows, "v1/one": Value("One.", lambda: {"one": 1})}, **given)


def test_health_and_readiness() -> None:
    why: str | None = "no survey has ended yet"
    door = make(ready=lambda: why)
    assert body(door, "/healthz") == {"status": "ok"}
    response = get(door, "/readyz")
    assert (response.status, json.loads(response.body)["why"]) == (503, why)
    why = None
    assert body(door, "/readyz") == {"status": "ready"}


def test_a_list_comes_in_pages() -> None:
    door = make()
    whole = body(door, "/v1/numbers")
    assert (whole["total"], whole["offset"], len(whole["rows"])) == (2500, 0, 1000)
    page = body(door, "/v1/numbers?offset=2498&limit=100&other=x")
    assert page == {"total": 2500, "offset": 2498, "rows": [{"number": 2498}, {"number": 2499}]}
    assert body(door, "/v1/numbers?limit=0")["rows"] == []


@pytest.mark.parametrize("query", ["limit=1001", "limit=-1", "limit=", "limit=1e3", "offset=9999999999", "limit=٣"])
def test_a_bad_page_is_refused(query: str) -> None:
    assert get(make(), f"/v1/numbers?{query}").status == 400


def test_more_parameters_than_any_client_needs_are_refused() -> None:
    assert get(make(), "/v1/numbers?" + "a=1&" * 30).status == 400


def test_other_methods_paths_and_hosts() -> None:
    door = make()
    assert get(door, "/healthz", "POST").status == 405
    assert get(door, "/v1/one", host="a b").status == 400
    assert get(door, "/v1/one", host=None).status == 400
    for target in ("/", "/v1", "/v1/one/", "/metrics", "healthz", "//healthz", "/%68ealthz"):
        assert get(door, target).status == 404, target
    head = get(door, "/v1/one", "HEAD")
    assert (head.status, head.body, head.size) == (200, b"", len(get(door, "/v1/one").body))


def test_an_error_of_a_route_is_an_answer() -> None:
    def fail() -> object:
        raise NotFound("no consumer of this name")

    response = get(Door("d", {"v1/bad": Value("Bad.", fail)}), "/v1/bad")
    assert (response.status, response.body) == (503, b"NotFound: no consumer of this name\n")


async def test_a_route_is_refreshed_before_it_is_read() -> None:
    state: list[int] = []

    async def refresh() -> None:
        await trio.lowlevel.checkpoint()
        if state:
            raise NotFound("no host")
        state.append(1)

    door = Door("d", {"v1/state": Rows("State.", lambda: state, lambda row: {"row": row}, refresh=refresh)})
    async with trio.open_nursery() as nursery:
        server: Server = await nursery.start(partial(serve, door))

        def talk() -> None:
            with asking(server.port) as ask:
                assert ask("/v1/state", "POST")[0] == 405
                assert ask("/v1/state?limit=1") == (200, b'{"total": 1, "offset": 0, "rows": [{"row": 1}]}')
                assert ask("/v1/state") == (503, b"NotFound: no host\n")

        await trio.to_thread.run_sync(talk)
        nursery.cancel_scope.cancel()


def test_an_answer_is_made_once_a_second_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made, now = [], 100.0
    monkeypatch.setattr("nngkit.web.door.time.monotonic", lambda: now)

    def text() -> bytes:
        made.append(now)
        return b"up 1\n"

    door = make(metrics=text)
    for _ in range(100):
        assert get(door, "/metrics").body == b"up 1\n"
        assert get(door, "/metrics?again").body == b"up 1\n"
    assert len(made) == 1
    now += AGE
    get(door, "/metrics")
    assert len(made) == 2
    for offset in range(10 * KEPT):
        get(door, f"/v1/numbers?offset={offset}&limit=1")
        assert len(door._made) <= KEPT


def test_a_page_is_beyond_the_door(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("hello")
    door = make(beyond=Site.load(tmp_path))
    assert get(door, "/").body == b"hello"
    assert body(door, "/healthz") == {"status": "ok"}
    assert get(door, "/v1/other").status == 404


def test_the_description_names_each_path_and_its_schemas_hold() -> None:
    door = make(metrics=lambda: b"up 1\n")
    described = body(door, "/openapi.json")
    paths = {"/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/numbers", "/v1/one"}
    assert set(described["paths"]) == paths
    for path in paths - {"/metrics"}:
        schema = described["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(body(door, path), schema)


@contextlib.contextmanager
def asking(port: int) -> Iterator[Callable[..., tuple[int, bytes]]]:
    def ask(path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
        client.request(method, path, headers=headers)
        response = client.getresponse()
        return response.status, response.read()

    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as client:
        yield ask


async def test_a_client_reads_it_by_http_and_a_forged_host_is_refused() -> None:
    def talk(port: int) -> None:
        with asking(port) as ask:
            assert ask("/healthz") == (200, b'{"status": "ok"}')
            assert ask("/healthz", Host="evil.example")[0] == 421
            assert ask("/healthz", Origin="http://evil.example")[0] == 403
            assert ask("/v1/one", "POST")[0] == 405

    async with trio.open_nursery() as nursery:
        server: Server = await nursery.start(partial(serve, make()))
        await trio.to_thread.run_sync(talk, server.port)
        nursery.cancel_scope.cancel()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # the server's loop does, in another thread
async def test_schemathesis_finds_no_answer_that_the_description_does_not_tell() -> None:
    door = make(metrics=lambda: b"up 1\n")
    document = body(door, "/openapi.json")
    async with trio.open_nursery() as nursery:
        server: Server = await nursery.start(partial(serve, door))
        asked = await trio.to_thread.run_sync(conforming, server.url.rstrip("/"), document)
        nursery.cancel_scope.cancel()
    paths = "/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/numbers", "/v1/one"
    assert asked == {("GET", path) for path in paths}
