"""Files and messages of the version before: this version reads them, and writes the same formats.

tests/upgrading/record.py made the fixtures with that version. tests/upgrading/against.py runs processes of both
versions together; it needs a checkout of the older one and is run by hand.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nngkit.discovery import messages, queries, watch
from nngkit.documents import DocumentPeer
from nngkit.documents.store import Store
from nngkit.documents.sync import wire
from nngkit.journal import Recorder, open_journal, read
from tests.upgrading import against
from tests.upgrading.described import RECORDS, described, record

FIXTURES = Path(__file__).parent / "upgrading"
STORED = json.loads((FIXTURES / "expected.json").read_text())
MESSAGES = json.loads((FIXTURES / "messages.json").read_text())
RECORDED = [
    described({**put, "headers": list((put["headers"] or {}).items()), "partition": 0, "offset": number})
    for number, put in enumerate(map(record, range(RECORDS)))
]
MAGIC = 10  # bytes at the start of a log: its format and version
NOW = 100.0  # seconds, the clock that record.py encodes ages with
DECODERS: dict[str, Callable[[bytes], Any]] = {
    "daemon query": queries.parse_daemon_query,
    "daemon reply": lambda data: queries.parse_daemon_reply(data, NOW),
    "watch query": watch.parse_watch_query,
    "watch reply": watch.parse_watch_reply,
    "bus": wire.decode_bus,
    "request": wire.decode_request,
    "reply": wire.decode_reply,
}
RENAMED = {"rounds reply": {"counts": "counters"}}  # fields of Python, not of the wire


def preference_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a resolve query with its zone as a preference."""
    preference = {"prefer": list(filter(None, [fields["zone"]])), "suspects": "last", "tags": [], "version": ""}
    return {name: value for name, value in fields.items() if name != "zone"} | {"preference": preference}


def with_about(*outside: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that puts the fields of a document's message, but for those `outside`, into `about`."""
    return lambda fields: (
        {name: fields[name] for name in ("sender", *outside)}
        | {"about": {name: value for name, value in fields.items() if name not in ("sender", *outside)}}
    )


RESHAPED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "resolve query": lambda fields: preference_of(fields) | {"headers": None},  # not in the version before
    "heartbeat": lambda fields: with_about("docs")(
        fields
        | {"clients": [{"doc": doc, "client": client} for doc, client in fields["clients"]]}
        | {"refused": []}  # not in the version before
    ),
    "hello": with_about("token"),
    "hello, of one store": with_about("token"),
    "welcome": lambda fields: with_about()(fields | {"mac": None}),
    "nack": lambda fields: (
        fields | {"ranges": [{**one["stream"], "first": one["first"], "last": one["last"]} for one in fields["ranges"]]}
    ),
    "chunks": lambda fields: fields | {"chunks": [{"index": at, "data": data} for at, data in fields["chunks"]]},
    "rounds reply": lambda fields: fields | {"release": "", "clock": None},  # not in the version before
    "watch query": lambda fields: fields | {"changes": False},  # not asked for
    "watch reply": lambda fields: fields | {"changes": None},  # fetched as a snapshot
}


def survey(data: bytes) -> Any:
    first = messages.parse_survey_query(data) if b"equery" in data else None
    return first or messages.parse_survey_reply(data)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "journal", tmp_path / "journal"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return Path(shutil.copy(FIXTURES / "store.sqlite", tmp_path / "store.sqlite"))


# ---- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [pytest.param(each, id=f"{each['kind']}: {each['name']}") for each in MESSAGES])
def test_a_message_of_the_version_before_decodes_to_the_same_fields(message: dict[str, Any]) -> None:
    data = bytes.fromhex(message["hex"])
    decoded = DECODERS.get(message["kind"], survey)(data)
    new_names = RENAMED.get(message["name"], {})
    fields = RESHAPED.get(message["name"], dict)(message["fields"])
    if message["kind"] == "survey" and "text" not in message["name"]:
        fields = {"domain": "", **({"every": None} if message["name"] == "survey query" else {}), **fields}
    assert described(decoded) == {new_names.get(name, name): value for name, value in fields.items()}
    if message["kind"] in ("bus", "request", "reply"):
        assert wire.encode(decoded) == data
    elif message["kind"] in ("watch query", "watch reply"):
        assert decoded.encode() == data
    elif message["kind"] == "daemon reply":
        assert decoded.encode(NOW) == data
    else:
        assert decoded.encode() == data


# ---- journal ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_journal_of_the_version_before_is_read_with_its_unsealed_log(journal: Path) -> None:
    assert list(journal.glob("*/*.log"))
    assert len(list(journal.glob("*/*.parquet"))) > 1
    assert [described(record) for record in read(journal)] == RECORDED
    weather = [each for each in RECORDED if each["topic"] == "weather"]
    assert [described(record) for record in read(journal, topics="weather")] == weather
    when = RECORDED[50]["timestamp"]
    assert open_journal(journal).offset_at(0, when) == 50


async def test_a_recorder_continues_a_journal_of_the_version_before(journal: Path) -> None:
    async with Recorder(journal) as recorder:
        recorder.put(b"continued", topic="weather", protocol="sub")
        await recorder.flush()
    *before, last = read(journal)
    assert [described(record) for record in before] == RECORDED
    assert (last.offset, last.value) == (len(before), b"continued")


async def test_a_journal_is_written_in_the_format_of_the_version_before(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    async with Recorder(tmp_path / "new") as recorder:
        recorder.put(b"value", topic="weather", protocol="sub", headers={"number": b"1"}, peer="tcp://10.0.0.9:51234")
        await recorder.flush()
        log = next((tmp_path / "new").glob("*/*.log")).read_bytes()[:MAGIC]
    old, new = FIXTURES / "journal", tmp_path / "new"
    assert (new / "journal.json").read_bytes() == (old / "journal.json").read_bytes()
    assert log == next(old.glob("*/*.log")).read_bytes()[:MAGIC]
    manifests = [json.loads(next(each.glob("*/manifest.json")).read_text()) for each in (old, new)]
    assert manifests[0].keys() == manifests[1].keys()
    assert manifests[0]["segments"][0].keys() == manifests[1]["segments"][0].keys()
    schemas = [pq.read_schema(next(each.glob("*/*.parquet"))) for each in (old, new)]
    assert schemas[0].equals(schemas[1])
    assert {schema.metadata[b"nngkit.journal"] for schema in schemas} == {b"1"}


# ---- documents -------------------------------------------------------------------------------------------------------


async def test_a_store_of_the_version_before_is_opened_with_its_contents_and_versions(store: Path) -> None:
    async with DocumentPeer(store=store) as peer:
        assert set(peer.documents) <= set(STORED)
        for name, expected in STORED.items():
            doc = peer.open(name)
            assert doc.plain() == expected["plain"]
            assert doc.digest().hex() == expected["digest"]
            assert {each.name: doc.at(each.name).plain() for each in doc.saved_versions()} == expected["saved"]


async def test_a_store_of_the_version_before_has_its_history_and_continues_it(store: Path) -> None:
    async with DocumentPeer(store=store) as peer:
        doc = peer.open("minutes")
        doc.text("body").insert(0, "Continued. ")
        await doc.durable()
    with Store.open(store) as opened:
        for name, expected in STORED.items():
            assert [described(each) for each in opened.versions(name)] == expected["versions"]
        *before, last = [described(entry) for entry in opened.log("minutes")]
        assert before == STORED["minutes"]["log"]
        assert last["seq"] == 1  # of a new epoch
    async with DocumentPeer(store=store) as peer:
        text = str(peer.open("minutes").text("body"))
    assert text == "Continued. " + STORED["minutes"]["plain"]["body"]


async def test_a_store_is_created_in_the_format_of_the_version_before(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    async with DocumentPeer(store=path) as peer:
        doc = peer.open("minutes")
        doc.text("body").insert(0, "hello")
        await doc.durable()

    def markers(of: Path) -> list[Any]:
        connection = sqlite3.connect(f"file:{of}?mode=ro&immutable=1", uri=True)
        try:
            pragmas = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")]
            return [*pragmas, *connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()]
        finally:
            connection.close()

    assert markers(path) == markers(FIXTURES / "store.sqlite")


# ---- processes of two versions ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DocumentPeer with a store", "daemon with Service and Resolver"])
def test_the_programs_for_two_versions_pass_with_this_version_alone(name: str, tmp_path: Path) -> None:
    roles = [(each.split()[0], against.NEW) for each in against.TOGETHER[name]]
    assert against.together(roles, str(tmp_path)) == []
