"""Messages that version 0.1 wrote: every later version reads them, and writes the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from nngkit.calls import messages as calls
from nngkit.discovery import messages as survey
from nngkit.discovery import queries, watch
from nngkit.discovery.questions import messages as questions
from nngkit.fanout.durable import messages as durable
from nngkit.fanout.numbered import messages as numbered
from nngkit.fanout.outbox import entries as outbox
from nngkit.journal import ingest
from nngkit.mesh import wire as mesh

Again = Callable[[bytes], bytes]
"""Read a message and return what is written for it."""

FAMILIES: Final[dict[str, Again]] = {
    "calls request cbor": lambda data: calls.parse_request(data, "cbor", limit=len(data)).encode("cbor"),
    "calls reply cbor": lambda data: calls.parse_reply(data, "cbor", limit=len(data)).encode("cbor"),
    "calls request json": lambda data: calls.parse_request(data, "json", limit=len(data)).encode("json"),
    "calls reply json": lambda data: calls.parse_reply(data, "json", limit=len(data)).encode("json"),
    "discovery query": lambda data: survey.QUERIES.encode(survey.QUERIES.decode(data)),
    "discovery reply": lambda data: survey.parse_survey_reply(data).encode(),
    "discovery text reply": lambda data: survey.parse_survey_reply(data).encode(),
    "daemon query": lambda data: queries.parse_daemon_query(data).encode(),
    "daemon reply": lambda data: queries.parse_daemon_reply(data, 100.0).encode(100.0),
    "watch query": lambda data: watch.QUERIES.encode(watch.QUERIES.decode(data)),
    "watch reply": lambda data: watch.parse_watch_reply(data, 100.0).encode(100.0),
    "ask query": lambda data: questions.ASKS.encode(questions.ASKS.decode(data)),
    "question": lambda data: questions.QUESTIONS.encode(questions.QUESTIONS.decode(data)),
    "answer": lambda data: questions.parse_survey_answer(data).encode(),
    "ask reply": lambda data: questions.REPLIES.encode(questions.REPLIES.decode(data)),
    "consumer request": lambda data: durable.REQUESTS.encode(durable.parse_request(data)),
    "consumer failure": lambda data: durable.REPLIES[durable.Done].encode(durable.REPLIES[durable.Done].decode(data)),
    "consumer reply": lambda data: durable.encode_reply(durable.parse_reply(data, durable.Settled)),
    "consumer done": lambda data: durable.encode_reply(durable.parse_reply(data, durable.Done)),
    "consumer opened": lambda data: durable.encode_reply(durable.parse_reply(data, durable.Opened)),
    "consumer infos": lambda data: durable.encode_reply(durable.parse_reply(data, durable.Infos)),
    "consumer fetched": lambda data: durable.encode_reply(
        durable.Fetched(
            3, tuple(durable.Columns.of(each).batch() for each in durable.parse_reply(data, durable.Fetched).batches)
        )
    ),
    "ingest request": lambda data: ingest.REQUESTS.encode(ingest.parse_request(data)),
    "ingest reply": lambda data: ingest.encode_stored(ingest.parse_reply(data)),
    "ingest refusal": lambda data: ingest.REPLIES.encode(ingest.REPLIES.decode(data)),
    "outbox message": lambda data: outbox.ENTRIES.encode(outbox.parse_entries(data)),
    "mesh frame": lambda data: mesh.CONTROL.encode(mesh.CONTROL.decode(data)),
    "publisher heartbeat": lambda data: numbered.HEARTBEATS.encode(numbered.HEARTBEATS.decode(data)),
    "subscriber request": lambda data: numbered.REQUESTS.encode(numbered.REQUESTS.decode(data)),
    "publisher reply": lambda data: numbered.REPLIES.encode(numbered.REPLIES.decode(data)),
}
RECORDED: Final[dict[str, list[str]]] = json.loads(Path(__file__).with_suffix(".json").read_text())
MESSAGES: Final = [(family, text) for family in FAMILIES for text in RECORDED[family]]


def test_every_recorded_family_is_read() -> None:
    assert FAMILIES.keys() == RECORDED.keys()


@pytest.mark.parametrize(("family", "text"), MESSAGES)
def test_recorded_messages_are_read_and_written_again(family: str, text: str) -> None:
    assert FAMILIES[family](bytes.fromhex(text)).hex() == text
