"""Messages of discovery: encoding, decoding, and refusal of invalid input."""

from __future__ import annotations

import random
import string
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from nngkit.discovery import Daemon, DaemonSettings, messages, queries
from nngkit.discovery.lanes import Preference
from nngkit.discovery.messages import SurveyQuery, SurveyReply, TextReply, parse_survey_query, parse_survey_reply
from nngkit.discovery.provider import Provider, Reason, RoundFigures, State, Status, StatusRecord
from nngkit.discovery.queries import (
    DaemonQuery,
    RefusedReply,
    ResolveQuery,
    ResolveReply,
    RoundsQuery,
    RoundsReply,
    SnapshotQuery,
    SnapshotReply,
    parse_daemon_query,
    parse_daemon_reply,
)
from nngkit.discovery.questions.messages import AskQuery, SurveyAnswer, SurveyQuestion
from nngkit.discovery.registry.registry import Registry
from nngkit.discovery.watch import WatchQuery
from nngkit.errors import BadMessage, Broken, ServiceNotFound, TooLarge
from nngkit.protocols import Req

WIRE = Path(__file__).parents[2] / "docs" / "wire.md"

printable = st.characters(exclude_categories=["C", "Z"], exclude_characters="|")
names = st.text(printable, min_size=1, max_size=32)
ids = st.text(string.ascii_letters + string.digits + "._:@-", min_size=1, max_size=64)
addresses = st.builds(
    "{}://{}".format, st.sampled_from(["tcp", "ipc", "tls+tcp", "WS"]), st.text(printable, min_size=1)
)
words = st.text(printable, max_size=16)
epochs = st.integers(0, 2**63 - 1)


@st.composite
def providers(draw: st.DrawFn) -> Provider:
    return Provider(
        name=draw(names),
        address=draw(addresses.filter(lambda text: len(text.encode()) <= 256)),
        id=draw(ids),
        epoch=draw(epochs),
        version=draw(words),
        zone=draw(words),
        priority=draw(st.integers(1, 16)),
        weight=draw(st.integers(0, 65535)),
        tags=frozenset(draw(st.sets(st.text(printable, min_size=1, max_size=16), max_size=16))),
        load=draw(st.floats(0, 1e9)),
        draining=draw(st.booleans()),
    )


replies = st.builds(
    SurveyReply,
    sender=ids,
    providers=st.lists(providers(), max_size=8, unique_by=lambda p: p.key).map(tuple),
    relay=st.booleans(),
    bye=st.booleans(),
)


def largest(index: int = 0) -> Provider:
    """Return a provider with every field at its limit."""
    return Provider(
        name=f"{index:0128}",
        address=f"tcp://{index:0250}",
        id=f"{index:064}",
        epoch=2**63 - 1,
        version="v" * 64,
        zone="z" * 64,
        priority=16,
        weight=65535,
        tags=frozenset(f"{n:064}" for n in range(16)),
        load=0.1,
        draining=True,
    )


# The survey


@given(replies)
def test_reply_survives_encoding(reply: SurveyReply) -> None:
    again = parse_survey_reply(reply.encode())
    assert again == reply
    assert isinstance(again, SurveyReply)
    assert [p.load for p in again.providers] == [p.load for p in reply.providers]  # not part of equality


@given(st.builds(SurveyQuery, daemon=ids, round=epochs, flags=st.frozensets(words, max_size=16)))
def test_query_survives_encoding(query: SurveyQuery) -> None:
    assert parse_survey_query(query.encode()) == query


@given(names.filter(lambda name: name == name.strip()), addresses.filter(lambda text: len(text.encode()) <= 256))
def test_text_reply_survives_encoding(name: str, address: str) -> None:
    reply = TextReply(name, address)
    assert parse_survey_reply(reply.encode()) == reply
    assert reply.provider == Provider(name, address, id="", epoch=0)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_a_message_or_raise_bad_message(data: bytes) -> None:
    for parse in (
        parse_survey_query,
        parse_survey_reply,
        parse_daemon_query,
        lambda body: parse_daemon_reply(body, 0.0),
    ):
        with suppress(BadMessage):
            parse(data)


@given(replies, st.integers(0, 255), st.integers(0, 10_000))
def test_one_changed_byte_is_a_message_or_raises_bad_message(reply: SurveyReply, byte: int, where: int) -> None:
    data = bytearray(reply.encode())
    data[where % len(data)] = byte
    with suppress(BadMessage, TooLarge):  # TooLarge: it may now be text, which has a lower limit
        parse_survey_reply(bytes(data))


def test_reply_of_64_ordinary_providers_fits_and_of_64_largest_is_too_large() -> None:
    ordinary = tuple(
        Provider(f"service-{n}", f"tcp://10.0.0.1:{9000 + n}", id="a" * 32, epoch=2**41) for n in range(64)
    )
    assert len(SurveyReply("s", ordinary).encode()) < 8 * 1024
    with pytest.raises(TooLarge):
        SurveyReply("s", tuple(largest(n) for n in range(64))).encode()
    with pytest.raises(ValueError, match="65 providers"):
        SurveyReply("s", (*ordinary, replace(ordinary[0], name="more"))).encode()


def test_largest_record_is_under_two_kib() -> None:
    assert len(cbor2.dumps(largest().as_map())) < 2048


def test_first_byte_determines_the_form() -> None:
    assert messages.is_cbor(SurveyQuery("d", 1).encode())
    assert messages.is_cbor(SurveyReply("s").encode())
    assert not messages.is_cbor(messages.TEXT_QUERY)
    assert not messages.is_cbor(b"")
    for byte in range(0xA0, 0xC0):
        with pytest.raises(UnicodeDecodeError):
            bytes([byte]).decode()


@pytest.mark.parametrize("tail", [b"", b"\0", b"\n", b"\r\n", b" \0\0"])
def test_text_query_may_have_trailing_padding(tail: bytes) -> None:
    assert parse_survey_query(b"service query" + tail) is None


@pytest.mark.parametrize(
    "body", [b"", b"service", b"Service Query", b"service query!", b"service query" + b"\0" * 10_000]
)
def test_other_text_is_not_a_query(body: bytes) -> None:
    with pytest.raises(BadMessage):
        parse_survey_query(body)


@pytest.mark.parametrize(
    ("body", "name", "address"),
    [
        (b"answer|tcp://127.0.0.1:9000", "answer", "tcp://127.0.0.1:9000"),
        (b"the answer|http://host:80/a|b", "the answer", "http://host:80/a|b"),
        (b" answer | ipc:///tmp/a b \r\n\0", "answer", "ipc:///tmp/a b"),
        ("größe|tcp://[::1]:1".encode(), "größe", "tcp://[::1]:1"),
    ],
)
def test_text_reply_is_split_at_the_first_bar_and_stripped(body: bytes, name: str, address: str) -> None:
    assert parse_survey_reply(body) == TextReply(name, address)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"|",
        b"answer",
        b"answer|",
        b"|tcp://127.0.0.1:9000",
        b"answer|127.0.0.1:9000",
        b"answer|tcp://",
        b"answer|://host",
        b"answer|tcp:/host",
        b"an\x1b[2Jswer|tcp://host:1",
        b"answer|tcp://a host:1",
        b"answer|ws://host:1/a path",
        b"an\nswer|tcp://host:1",
        b"answer|tcp://host\x00:1",
        "an\u202eswer|tcp://host:1".encode(),
        b"a" * 129 + b"|tcp://host:1",
        b"answer|tcp://" + b"h" * 251,
        b"\xff\xfe|tcp://host:1",
        b"\x83\x01\x02\x03",
    ],
)
def test_text_without_a_provider_is_a_bad_message(body: bytes) -> None:
    with pytest.raises(BadMessage):
        parse_survey_reply(body)


def test_text_of_ten_megabytes_is_too_large() -> None:
    with pytest.raises(TooLarge):
        parse_survey_reply(b"answer|tcp://" + b"h" * 10_000_000)


def record(**changes: object) -> dict[str, object]:
    return {"name": "answer", "addr": "tcp://host:1", "id": "i", "epoch": 1} | changes


def reply_with(**changes: object) -> bytes:
    return cbor2.dumps({"v": 2, "type": "reply", "sender": "s", "providers": [record()]} | changes)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (reply_with(v=3), "version 3 is newer than the supported version 2"),
        (reply_with(v=0), "out of range"),
        (reply_with(v="1"), "must be int"),
        (reply_with(type="query"), "unknown type 'query'"),
        (reply_with(sender=""), "'sender': .* of length >= 1"),
        (reply_with(sender="a b"), "'sender': .* matching"),
        (reply_with(sender="s" * 65), "'sender': .* of length <= 64"),
        (reply_with(providers=None), "'providers': .* got `null`"),
        (reply_with(providers=[record(name=str(n)) for n in range(65)]), "'providers': .* of length <= 64"),
        (reply_with(providers=[1]), r"'providers\[0\]': Expected `object`"),
        (reply_with(providers=[record(), record()]), "twice"),
        (reply_with(providers=[record(id="")]), "epoch without an id"),
        (reply_with(providers=[record(id="", epoch=0)]), "no id"),
        (reply_with(relay=1), "'relay': Expected `bool`"),
        (reply_with(bye="yes"), "'bye': Expected `bool`"),
        (cbor2.dumps({"v": 1, "type": "reply", "sender": "s"}), "missing required field `providers`"),
        (cbor2.dumps({}), "'v' is missing"),
    ],
)
def test_invalid_reply_is_refused_with_the_reason(body: bytes, why: str) -> None:
    with pytest.raises(BadMessage, match=why):
        parse_survey_reply(body, "tcp://192.0.2.1:1")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "a|b"),
        ("name", " a"),
        ("name", "a\tb"),
        ("name", "a\x85b"),
        ("name", "é" * 65),
        ("name", 5),
        ("name", None),
        ("addr", "host:1"),
        ("addr", "tcp://"),
        ("addr", "1tcp://host"),
        ("addr", "tcp://host\r\nInjected: yes"),
        ("addr", "tcp://" + "h" * 251),
        ("addr", ["tcp://host"]),
        ("id", "a/b"),
        ("id", "x" * 65),
        ("id", None),
        ("id", []),
        ("epoch", -1),
        ("epoch", 2**63),
        ("epoch", 1.0),
        ("epoch", True),
        ("version", "v" * 65),
        ("version", "\x00"),
        ("zone", "z" * 65),
        ("zone", 1),
        ("priority", 0),
        ("priority", 17),
        ("priority", False),
        ("priority", 8.0),
        ("weight", -1),
        ("weight", 65536),
        ("tags", "abc"),
        ("tags", [""]),
        ("tags", ["t" * 65]),
        ("tags", [1]),
        ("tags", [[]]),
        ("tags", [str(n) for n in range(17)]),
        ("load", -0.1),
        ("load", 1e10),
        ("load", float("nan")),
        ("load", float("inf")),
        ("load", True),
        ("draining", 1),
    ],
)
def test_record_over_any_limit_is_refused(field: str, value: object) -> None:
    with pytest.raises(BadMessage):
        parse_survey_reply(reply_with(providers=[record(**{field: value})]))


def test_unknown_fields_and_flags_are_ignored() -> None:
    reply = parse_survey_reply(reply_with(later=[1, {"x": None}], providers=[record(shiny=True)]))
    assert reply == SurveyReply("s", (Provider("answer", "tcp://host:1", "i", 1),))
    query = parse_survey_query(
        cbor2.dumps({"v": 1, "type": "query", "daemon": "d", "round": 3, "flags": ["new"], "x": 1})
    )
    assert query == SurveyQuery("d", 3, frozenset({"new"}), speaks=1)


@pytest.mark.parametrize("priority", [1, 5, 16, -32768, 32767, "first"])
def test_version_1_priority_is_read_as_8(priority: object) -> None:
    reply = parse_survey_reply(reply_with(v=1, providers=[record(priority=priority, zone="ny")]))
    assert reply == SurveyReply("s", (Provider("answer", "tcp://host:1", "i", 1, zone="ny", priority=8),))
    assert isinstance(reply, SurveyReply)
    assert reply.version == 1
    status = to_builtins(StatusRecord.of(STATUS, 0.0)) | {"provider": record(priority=priority)}
    for answer in (
        {"type": "resolved", "provider": record(priority=priority)},
        {"type": "snapshot", "rows": [status]},
    ):
        found = parse_daemon_reply(cbor2.dumps({"v": 1, "daemon": "d", **answer}), 0.0)
        assert isinstance(found, (ResolveReply, SnapshotReply))
        assert found.version == 1
        providers = [found.provider] if isinstance(found, ResolveReply) else [row.provider for row in found.rows]
        assert [provider.priority for provider in providers] == [8]


def test_priority_is_not_sent_to_version_1_readers() -> None:
    first = Provider("answer", "tcp://host:1", "i", 1, priority=1)
    for body in (
        SurveyReply("s", (first,), version=1).encode(),
        ResolveReply("d", first, version=1).encode(),
        SnapshotReply("d", (replace(STATUS, provider=first),), version=1).encode(0.0),
    ):
        assert cbor2.loads(body)["v"] == 1
        assert b"priority" not in body
    assert cbor2.loads(SurveyReply("s", (first,)).encode())["providers"][0]["priority"] == 1
    assert b"priority" not in SurveyReply("s", (replace(first, priority=8),)).encode()  # the default


def test_queries_are_of_version_1_and_announce_the_senders_version() -> None:
    for body in (
        SurveyQuery("d", 1).encode(),
        SnapshotQuery().encode(),
        ResolveQuery("a").encode(),
        RoundsQuery().encode(),
        WatchQuery().encode(),
    ):
        assert cbor2.loads(body)["v"] == 1
    for parse, fields in (
        (parse_survey_query, {"type": "query", "daemon": "d", "round": 1}),
        (parse_daemon_query, {"type": "ask-snapshot"}),
        (parse_daemon_query, {"type": "ask-resolve", "name": "a"}),
    ):
        for versions, speaks in (({"v": 1}, 1), ({"v": 1, "speaks": 2}, 2), ({"v": 2}, 2), ({"v": 1, "speaks": 9}, 2)):
            asked = parse(cbor2.dumps(fields | versions))
            assert isinstance(asked, (SurveyQuery, SnapshotQuery, ResolveQuery))
            assert asked.speaks == speaks
        with pytest.raises(BadMessage):
            parse(cbor2.dumps(fields | {"v": 1, "speaks": "2"}))


@pytest.mark.parametrize("speaks", [1, 2])
def test_reply_is_of_the_version_that_its_reader_speaks(speaks: int) -> None:
    registry = Registry()
    registry.reply(1, registry.start_round(0.0), reply_with(providers=[record(priority=3)]), 0.1)
    for question in (ResolveQuery("answer", speaks=speaks), SnapshotQuery(speaks=speaks)):
        body = queries.answer_query(registry, question, "d", random.Random(1), 0.2).encode(0.2)
        assert cbor2.loads(body)["v"] == speaks
        found = parse_daemon_reply(body, 0.2)
        assert isinstance(found, (ResolveReply, SnapshotReply))
        (provider,) = [found.provider] if isinstance(found, ResolveReply) else [row.provider for row in found.rows]
        assert provider.priority == (3 if speaks == 2 else 8)


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 7},
        {"type": "reply"},
        {"daemon": ""},
        {"daemon": "\x07"},
        {"round": -1},
        {"round": 2**63},
        {"flags": "text"},
        {"flags": [1]},
        {"flags": ["x"] * 17},
    ],
)
def test_invalid_query_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadMessage):
        parse_survey_query(cbor2.dumps({"v": 1, "type": "query", "daemon": "d", "round": 3} | changes))


@pytest.mark.parametrize(
    "make",
    [
        lambda: SurveyQuery("", 1).encode(),
        lambda: SurveyReply("a b").encode(),
        lambda: SurveyReply("s", (Provider("a", "tcp://h"),)).encode(),
        lambda: SurveyReply("s", (Provider("a", "tcp://h", "i"),) * 2).encode(),
        lambda: TextReply("a|b", "tcp://h").encode(),
        lambda: TextReply("a", "h").encode(),
        lambda: Provider("a", "tcp://h", load=10**400),
        lambda: Provider("a", "tcp://h", epoch=3),
        lambda: Provider("a\ud800", "tcp://h"),
    ],
)
def test_messages_that_would_be_refused_are_not_encoded(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=r"\w"):
        make()


def test_providers_that_differ_only_in_load_are_equal() -> None:
    one, other = Provider("a", "tcp://h", load=1.0), Provider("a", "tcp://h", load=2.0)
    assert one == other
    assert {one} == {other}
    assert one != Provider("a", "tcp://h", weight=1)


# The daemon's REQ/REP

KEY = ("answer", "tcp://host:1", "i", 1)
PROVIDER = Provider(*KEY, zone="eu", tags=frozenset({"b", "a"}), load=0.5)
STATUS = Status(PROVIDER, State.SUSPECT, Reason.MISSED, 90.0, 3, 80.0, 0.25, True, (4, 5), 17)
FIGURES = RoundFigures(17, True, 95.0, 97.5, 5, 4, 3, 2, 1)


@pytest.mark.parametrize("status", [STATUS, Status(PROVIDER, State.UP, Reason.ANSWERED, 90.0, 0, 90.0, 0.0)])
def test_a_status_survives_encoding_on_another_clock(status: Status) -> None:
    found = StatusRecord.of(status, 90.0).status(5.0)
    assert found.last_reply is not None
    assert replace(found, since=found.since + 85.0, last_reply=found.last_reply + 85.0) == status


@pytest.mark.parametrize(
    "ask",
    [
        SnapshotQuery(),
        SnapshotQuery("answer", everything=True, after=KEY),
        ResolveQuery("answer"),
        ResolveQuery("answer", Preference(("eu",))),
        ResolveQuery("answer", Preference(("ny", "eu"), frozenset({"gpu"}), "2", "near")),
        RoundsQuery(),
        RoundsQuery(64),
    ],
    ids=repr,
)
def test_daemon_query_survives_encoding(ask: DaemonQuery) -> None:
    assert parse_daemon_query(ask.encode()) == ask


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "ask-nothing"},
        {"type": "ask-resolve"},
        {"type": "ask-resolve", "name": "a|b"},
        {"type": "ask-resolve", "name": 1},
        {"type": "ask-resolve", "name": "a", "zone": "z" * 65},
        {"type": "ask-resolve", "name": "a", "prefer": "ny"},
        {"type": "ask-resolve", "name": "a", "prefer": ["ny"] * 17},
        {"type": "ask-resolve", "name": "a", "prefer": [1]},
        {"type": "ask-resolve", "name": "a", "tags": ["x" * 65]},
        {"type": "ask-resolve", "name": "a", "version": 2},
        {"type": "ask-rounds", "last": 0},
        {"type": "ask-rounds", "last": 65},
        {"type": "ask-snapshot", "name": ""},
        {"type": "ask-snapshot", "everything": 1},
        {"type": "ask-snapshot", "after": ["a", "b", "c"]},
        {"type": "ask-snapshot", "after": ["a", "b", "c", True]},
        {"type": "ask-snapshot", "after": ["a", "b", "c", -1]},
        {"type": "ask-snapshot", "v": 9},
        {"type": 1},
    ],
    ids=repr,
)
async def test_invalid_daemon_query_is_refused_by_the_parser_and_in_a_reply(fields: dict[str, object]) -> None:
    body = cbor2.dumps({"v": 1} | fields)
    with pytest.raises(BadMessage):
        parse_daemon_query(body)
    reply = await reply_of_a_daemon(body)
    assert isinstance(reply, RefusedReply)
    assert reply.kind == "bad message"
    assert isinstance(reply.error(), BadMessage)


def test_times_in_replies_are_on_the_readers_clock() -> None:
    snapshot = SnapshotReply("d", (STATUS, replace(STATUS, last_reply=None, rtt=None)), KEY)
    again = parse_daemon_reply(snapshot.encode(now=100.0), now=1000.0)
    moved = replace(STATUS, since=990.0, last_reply=980.0)
    assert again == SnapshotReply("d", (moved, replace(moved, last_reply=None, rtt=None)), KEY)
    rounds = parse_daemon_reply(RoundsReply("d", (FIGURES,), {"late": 3}, 2).encode(now=100.0), now=1000.0)
    assert rounds == RoundsReply("d", (replace(FIGURES, started=995.0, ended=997.5),), {"late": 3}, 2)


def test_reply_carries_the_provider_and_a_refusal_its_error() -> None:
    resolved = parse_daemon_reply(ResolveReply("d", PROVIDER).encode(), 0.0)
    assert resolved == ResolveReply("d", PROVIDER)
    assert isinstance(resolved, ResolveReply)
    assert resolved.provider.load == 0.5
    refused = parse_daemon_reply(RefusedReply("d", "not found", "service not found: x").encode(), 0.0)
    assert isinstance(refused, RefusedReply)
    error = refused.error("x")
    assert isinstance(error, ServiceNotFound)
    assert error.name == "x"
    assert isinstance(RefusedReply("d", "unavailable", "stopping").error(), Broken)


def status_with(**changes: object) -> dict[str, object]:
    return {"v": 1, "type": "snapshot", "daemon": "d", "rows": [to_builtins(StatusRecord.of(STATUS, 100.0)) | changes]}


@pytest.mark.parametrize(
    "fields",
    [
        {"v": 1, "type": "snapshot", "daemon": "d"},
        {"v": 1, "type": "snapshot", "daemon": "d" * 65, "rows": []},
        {"v": 1, "type": "snapshot", "daemon": "d", "rows": [0] * 257},
        {"v": 1, "type": "something", "daemon": "d"},
        {"v": 1, "type": "refused", "daemon": "d", "kind": "because", "message": ""},
        {"v": 1, "type": "rounds", "daemon": "d", "rounds": [], "counts": {"x": "y"}, "silent": 0},
        {"v": 1, "type": "rounds", "daemon": "d", "rounds": [{}], "counts": {}, "silent": 0},
        {"v": 1, "type": "resolved", "daemon": "d", "provider": None},
        status_with(state="resting"),
        status_with(reason="bored"),
        status_with(age=-1),
        status_with(age=float("inf")),
        status_with(silent="long"),
        status_with(pipes=["a"]),
        status_with(pipes=[1] * 9),
        status_with(misses=-1),
        status_with(provider={}),
    ],
    ids=repr,
)
def test_invalid_daemon_reply_is_a_bad_message(fields: dict[str, object]) -> None:
    with pytest.raises(BadMessage):
        parse_daemon_reply(cbor2.dumps(fields), 0.0)


def test_full_page_of_the_largest_statuses_fits_a_reply() -> None:
    rows = tuple(
        replace(STATUS, provider=largest(n), pipes=tuple(range(2**31 - 100, 2**31))) for n in range(queries.PAGE)
    )
    assert len(SnapshotReply("d" * 64, rows, rows[-1].provider.key).encode(1e9)) <= queries.REPLY_LIMIT // 2 + 65536


def filled(count: int) -> Registry:
    registry = Registry()
    this = registry.start_round(0.0)
    for n in range(count):
        name, state = ("odd", n % 4 == 3) if n % 2 else ("even", False)
        provider = Provider(name, f"tcp://host:{n}", f"i{n}", 1, draining=state)
        registry.reply(n + 1, this, SurveyReply(f"s{n}", (provider,)).encode(), 0.1)
    registry.end_round(this, 0.5)
    return registry


def ask(registry: Registry, question: DaemonQuery) -> queries.DaemonReply:
    known = parse_daemon_query(question.encode())
    assert not isinstance(known, queries.HistoryQuery)
    reply = queries.answer_query(registry, known, "daemon-1", random.Random(1), 1.0)
    return parse_daemon_reply(reply.encode(1.0), 1.0)


def test_paging_returns_all_rows_while_they_change() -> None:
    registry = filled(600)
    seen: list[str] = []
    after = None
    pages = 0
    while pages < 10:
        pages += 1
        found = ask(registry, SnapshotQuery(everything=True, after=after))
        assert isinstance(found, SnapshotReply)
        assert found.daemon == "daemon-1"
        seen += [row.provider.address for row in found.rows]
        after = found.after
        if after is None:
            break
        registry.pipe_left(pages, 1.0)
    assert pages == 3
    assert len(seen) == len(set(seen)) == 600


def test_exactly_full_page_is_the_last() -> None:
    found = ask(filled(queries.PAGE), SnapshotQuery(everything=True))
    assert isinstance(found, SnapshotReply)
    assert (len(found.rows), found.after) == (queries.PAGE, None)


def test_snapshot_is_of_resolvable_or_all_providers_of_one_name_or_all() -> None:
    registry = filled(40)

    def told(question: SnapshotQuery) -> dict[tuple[str, State], int]:
        found = ask(registry, question)
        assert isinstance(found, SnapshotReply)
        kinds = [(row.provider.name, row.state) for row in found.rows]
        return {kind: kinds.count(kind) for kind in kinds}

    assert told(SnapshotQuery()) == {("even", State.UP): 20, ("odd", State.UP): 10}
    assert told(SnapshotQuery("odd")) == {("odd", State.UP): 10}
    assert told(SnapshotQuery("odd", everything=True)) == {("odd", State.UP): 10, ("odd", State.DRAINING): 10}
    assert told(SnapshotQuery("unknown")) == {}


def test_daemon_resolves_a_name_or_replies_not_found() -> None:
    registry = filled(8)
    found = ask(registry, ResolveQuery("even"))
    assert isinstance(found, ResolveReply)
    assert found.provider.name == "even"
    assert ask(registry, ResolveQuery("absent")) == RefusedReply("daemon-1", "not found", "service not found: absent")


def test_daemon_replies_with_its_rounds() -> None:
    registry = filled(8)
    registry.pipe_joined(1000, 0.6)
    registry.end_round(registry.start_round(0.7), 0.9)
    found = ask(registry, RoundsQuery(last=1))
    assert isinstance(found, RoundsReply)
    assert [r.number for r in found.rounds] == [2]
    assert found.rounds[0].asked == 9
    assert found.counters["replies"] == 8
    assert found.silent == 1


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_query_or_raise_only_declared_errors(body: bytes) -> None:
    with suppress(BadMessage, TooLarge):
        parse_daemon_query(body)


async def reply_of_a_daemon(body: bytes) -> queries.DaemonReply:
    settings = DaemonSettings(listen=("tcp://127.0.0.1:0",), query=("tcp://127.0.0.1:0",))
    async with Daemon(settings) as daemon, Req(dial=daemon.query_addresses) as req:
        return parse_daemon_reply(await req.arequest(body, timeout=15.0), 0.0)


def test_sixteen_thousand_hostile_replies_are_refused_in_two_seconds() -> None:
    started = time.process_time()
    for n in range(16_000):
        with pytest.raises(BadMessage):
            parse_survey_reply(reply_with_junk(n))
    assert time.process_time() - started < 2.0 or sys.gettrace() is not None  # coverage slows it down


def reply_with_junk(n: int) -> bytes:
    return b"\xa1\x62v" + bytes([n % 256]) + b"\x81" * (n % 100)


# docs/wire.md

EXAMPLES = {
    "query": SurveyQuery("d1", 17, frozenset({"text"})).encode(),
    "reply": SurveyReply("p7", (Provider("answer", "tcp://10.0.0.7:9000", "p7", 1767225600123),)).encode(),
    "bye": SurveyReply("p7", bye=True).encode(),
    "question": SurveyQuestion.of(AskQuery("q1", b"?", name="answer"), "d1").encode(),
    "answered": SurveyAnswer(("answer", "tcp://10.0.0.7:9000", "p7", 1767225600123), b"42", 1.5).encode(),
    "text query": messages.TEXT_QUERY,
    "text reply": TextReply("answer", "tcp://10.0.0.7:9000").encode(),
    "ask": ResolveQuery("answer").encode(),
    "resolved": ResolveReply("d1", Provider("answer", "tcp://10.0.0.7:9000", "p7", 1767225600123)).encode(),
    "refused": RefusedReply("d1", "not found", "service not found: x").encode(),
}


def test_examples_in_the_docs_are_the_encoded_bytes() -> None:
    text = WIRE.read_text(encoding="utf-8").partition("\n## Documents\n")[0]
    lines = [line.partition("=") for line in text.splitlines()]
    shown = {name.strip(): data.strip() for name, equals, data in lines if equals and name.strip() in EXAMPLES}
    assert {name: bytes.fromhex(data) for name, data in shown.items()} == EXAMPLES
