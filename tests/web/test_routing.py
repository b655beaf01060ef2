"""Routes, media types, deadlines, rates and errors of the HTTP interface: pure parts, by examples and by chance."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit import errors
from nngkit.errors import ConfigError, NngkitError, RemoteError
from nngkit.fanout.numbered.lag import Gap, Published
from nngkit.web.exchange import REASONS
from nngkit.web.gateway import bodies
from nngkit.web.gateway.feed import Entry, Feed, FeedLimits, of_gap, of_message
from nngkit.web.gateway.limits import MOST, Rates
from nngkit.web.gateway.problems import Problem, problem_of, shown
from nngkit.web.routing import Found, Router, Wrong

NAMES = st.text(min_size=1).filter(str.isprintable)


def router() -> Router[str]:
    made: Router[str] = Router()
    made.add("POST", "/call/{name}", "call")
    made.add("POST", "/call/{name}/{method}", "method")
    made.add("GET", "/jobs/{id}", "job")
    made.add("DELETE", "/jobs/{id}", "cancel")
    made.add("GET", "/jobs/all", "all")
    return made


@given(NAMES, NAMES)
def test_any_name_in_a_path_is_found_again(name: str, method: str) -> None:
    path = f"/call/{quote(name, safe='')}/{quote(method, safe='')}"
    assert router().find("POST", path) == Found("method", {"name": name, "method": method})


@given(st.text())
def test_no_path_matches_a_route_by_chance(path: str) -> None:
    assert router().find("POST", path) is None


@pytest.mark.parametrize("before", ["x", "*", ".", "http:"])
def test_a_target_that_is_no_path_is_no_route(before: str) -> None:
    assert router().find("GET", f"{before}/jobs/7") is None


@given(st.text(alphabet="/ab%2Fcl.c0{}", max_size=30))
def test_a_parameter_is_one_segment(path: str) -> None:
    found = router().find("POST", f"/call/{path}")
    assert found is None or (isinstance(found, Found) and len(found.params) == path.count("/") + 1)


def test_literal_segments_win_and_other_methods_are_named() -> None:
    assert router().find("GET", "/jobs/all") == Found("all", {})
    assert router().find("GET", "/jobs/7") == Found("job", {"id": "7"})
    assert router().find("POST", "/jobs/7") == Wrong(("GET", "DELETE"))
    for path in ("/call/", "/call//", "/call/%ff", "/call/a%00", "/call/a/b/c", "", "call/a", "*"):
        assert router().find("POST", path) is None
    with pytest.raises(ConfigError, match="twice"):
        router().add("GET", "/jobs/all", "again")


@given(st.integers(0, 99_999_999), st.sampled_from("HMSmun"))
def test_deadlines_are_those_of_grpc(number: int, unit: str) -> None:
    seconds = number * {"H": 3600, "M": 60, "S": 1, "m": 1e-3, "u": 1e-6, "n": 1e-9}[unit]
    assert bodies.timeout_of({"grpc-timeout": f"{number}{unit}"}, 5.0, 60.0) == min(seconds, 60.0)


@given(st.text())
def test_no_other_text_is_a_deadline(text: str) -> None:
    try:
        seconds = bodies.timeout_of({"grpc-timeout": text}, 5.0, 60.0)
    except Problem as refused:
        problem = refused
    else:
        assert 0 <= seconds <= 60.0
        return
    assert (problem.status, problem.code) == (400, "bad-request")


def test_a_call_without_a_deadline_has_the_usual_one() -> None:
    assert bodies.timeout_of({}, 5.0, 60.0) == 5.0


@pytest.mark.parametrize(
    ("accept", "kind", "wanted"),
    [
        (None, bodies.JSON, bodies.JSON),
        (None, bodies.BYTES, bodies.BYTES),
        ("*/*", bodies.CBOR, bodies.CBOR),
        ("application/*", bodies.JSON, bodies.JSON),
        ("application/cbor", bodies.JSON, bodies.CBOR),
        ("text/event-stream", bodies.JSON, bodies.EVENTS),
        ("application/x-ndjson;q=0.5, application/cbor;q=0.4", bodies.JSON, bodies.LINES),
        ("text/html, application/json;q=0.9, */*;q=0.8", bodies.JSON, bodies.JSON),
        ("text/html", bodies.JSON, None),
        ("application/json;q=0", bodies.JSON, None),
        ("application/json", bodies.BYTES, None),
        ("", bodies.JSON, None),
    ],
)
def test_the_reply_is_what_the_client_accepts(accept: str | None, kind: str, wanted: str | None) -> None:
    headers = {} if accept is None else {"accept": accept}
    if wanted is not None:
        assert bodies.accepted(headers, kind) == wanted
        return
    with pytest.raises(Problem) as refused:
        bodies.accepted(headers, kind)
    assert refused.value.status == 406


@given(st.binary())
def test_bad_bodies_are_problems_and_nothing_else(body: bytes) -> None:
    for kind in (bodies.JSON, bodies.CBOR):
        try:
            value = bodies.value_of(kind, body)
        except Problem as refused:
            problem = refused
        else:
            json.loads(shown(value))
            continue
        assert (problem.status, problem.more) == (400, {"ran": False})


def test_deep_and_long_bodies_are_problems() -> None:
    for body in (b"[" * 100_000, b"NaN", b'"\\ud800"', b"{}{}", b"[1,]"):
        with pytest.raises(Problem, match="not JSON"):
            bodies.value_of(bodies.JSON, body)


def every(kind: type[NngkitError]) -> list[type[NngkitError]]:
    return [kind, *(deeper for each in kind.__subclasses__() for deeper in every(each))]


def test_every_error_is_a_problem_with_a_status_that_the_server_knows() -> None:
    """Those of each module that is imported: not parameters, which must not depend on the order of imports."""
    for kind in every(NngkitError):
        error = kind.__new__(kind, "why")
        Exception.__init__(error, "why")
        error.__dict__ |= {"kind": "failed", "message": "why", "error": "", "data": None, "ran": True}
        error.__dict__ |= {"sent": True, "outcome": "dead", "job": 0, "provider": ""}
        problem = problem_of(error)
        assert problem.status in REASONS, kind
        fields = json.loads(problem.response().body)
        assert (fields["status"], fields["title"]) == (problem.status, REASONS[problem.status]), kind
        assert fields["detail"], kind


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.ServiceNotFound("pay"), 503),
        (errors.TimedOut("late", 1.0), 504),
        (errors.TooLarge(2, 1), 413),
        (errors.Lost("gone", sent=False), 503),
        (errors.Lost("gone", sent=True), 502),
        (errors.AccessDenied("right: no"), 403),
        (errors.BadMessage("reply", "what"), 502),
        (RemoteError("raised"), 500),
        (RemoteError("full", kind="busy", ran=False), 503),
        (RemoteError("what", kind="no method", ran=False), 404),
        (RemoteError("what", kind="bad request", ran=False), 400),
        (RemoteError("late", kind="deadline"), 504),
        (RemoteError("not for you", kind="declined", data={"limit": 5}), 422),
    ],
)
def test_errors_of_calls_have_their_status(error: NngkitError, status: int) -> None:
    response = problem_of(error).response()
    assert response.status == status
    assert ("Retry-After" in dict(response.headers)) == (status == 503)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 10)), max_size=200), st.floats(0.5, 20))
def test_no_client_gets_more_than_its_rate(asked: list[tuple[str, float]], rate: float) -> None:
    rates, now, taken = Rates(rate), 0.0, dict.fromkeys("abc", 0)
    for client, pause in asked:
        now += pause
        wait = rates.take(client, now)
        taken[client] += wait == 0
        assert 0 <= wait <= 1 / rate + 1e-9
    assert all(each <= max(1.0, rate) + rate * now + 1e-6 for each in taken.values())


def test_the_table_of_rates_is_capped() -> None:
    rates = Rates(1.0)
    for number in range(2 * MOST):
        rates.take(str(number), 0.0)
    assert len(rates) == MOST


PUBLISHER = bytes(range(8))


def message(number: int, topic: str = "t", body: bytes = b"x", epoch: int = 5) -> Entry:
    data = topic.encode() + body
    return of_message(Published(data, PUBLISHER, epoch, number, 0, False, len(topic)))


@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 80))
def test_what_follows_an_id_is_what_came_after_it_or_a_gap(most: int, sent: int, got: int) -> None:
    feed = Feed(FeedLimits(messages=most))
    for number in range(1, sent + 1):
        feed.add(message(number))
    assert len(feed) == min(most, sent)
    after = feed.after(f"{PUBLISHER.hex()}.5.{got}")
    missing = max(0, sent - most - got)
    told = [int(entry.id.rpartition(".")[2]) for entry in after if not entry.event]
    assert told == list(range(max(got, sent - most) + 1, sent + 1))
    gaps = [json.loads(entry.sse.partition(b"data: ")[2]) for entry in after if entry.event == "gap"]
    assert [gap["count"] for gap in gaps] == ([missing] if missing else [])


def test_an_unknown_id_is_a_gap_of_unknown_length() -> None:
    feed = Feed(FeedLimits())
    feed.add(message(1))
    run = f"{PUBLISHER.hex()}.5"
    for unknown in ("", "x", f"{PUBLISHER.hex()}.6.1", "a.b.c", "." * 50, "9" * 50, f"{run}.-1", f"{run}.²"):
        first, second = feed.after(unknown)
        assert (first.event, second.event) == ("gap", "")
        assert "count" not in json.loads(first.sse.partition(b"data: ")[2])


def test_the_feed_is_capped_by_bytes_and_keeps_the_last_of_each_topic() -> None:
    feed = Feed(FeedLimits(bytes=100_000, topics=2))
    for number in range(100):
        feed.add(message(number, f"t{number % 3}", bytes(1000)))
    assert feed.bytes <= 100_000
    assert [entry.id.rpartition(".")[2] for entry in feed.last()] == ["98", "99"]


def test_events_have_one_line_of_data_and_gaps_their_numbers() -> None:
    entry = message(7, "a\nb", "line\r\nline: é".encode())
    head, data = entry.sse.decode().removesuffix("\n\n").split("\n")
    assert head == f"id: {PUBLISHER.hex()}.5.7"
    assert json.loads(data.removeprefix("data: ")) == {"topic": "a\nb", "body": "line\r\nline: é"}
    binary = json.loads(message(8, body=b"\xff").sse.partition(b"data: ")[2])
    assert (binary["body"], binary["encoding"]) == ("/w==", "base64")
    gap = of_gap(Gap(PUBLISHER, 5, 3, 4, 2))
    assert gap.sse.startswith(f"id: {PUBLISHER.hex()}.5.4\nevent: gap\ndata: ".encode())
    assert json.loads(gap.frame[2:])["event"] == "gap"
