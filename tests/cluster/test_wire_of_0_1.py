"""Bytes that version 0.1 wrote are read as it read them, and written again as they were.

wire_of_0_1.json has one or two messages of each kind: bytes in hexadecimal, and the text of the value.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from nngkit.cluster.admission import issue_ticket, read_ticket
from nngkit.cluster.election import messages as election_messages
from nngkit.cluster.frames import greeting_frame, parse_greeting, parse_local
from nngkit.cluster.node import letters, questions
from nngkit.cluster.records import parse_ends, parse_host_change, parse_message
from nngkit.cluster.status import ClusterStatus, ClusterTree
from nngkit.cluster.tree import messages as place_messages
from nngkit.envelope import decode, encode

WIRE: Final[dict[str, list[Any]]] = json.loads((Path(__file__).parent / "wire_of_0_1.json").read_text(encoding="utf-8"))
CONTENTS: Final[dict[str, Any]] = {"letter": letters.KINDS, "question": questions.KINDS}
ROWS: Final[dict[str, Any]] = {"election": election_messages.KINDS, "place": place_messages.KINDS}


@pytest.mark.parametrize("part", ROWS)
def test_messages_between_neighbours(part: str) -> None:
    kinds = ROWS[part]
    for written, value in WIRE[part]:
        row = decode(bytes.fromhex(written), what=part)
        message = kinds.parse(row, "b")
        assert repr(message) == value
        assert encode(kinds.pack(message)).hex() == written


@pytest.mark.parametrize("part", CONTENTS)
def test_contents_of_routed_frames(part: str) -> None:
    kinds = CONTENTS[part]
    for written in WIRE[part]:
        row = decode(bytes.fromhex(written), what=part)
        message = kinds.parse([*row, "of a later version"], "b")
        assert message is not None
        assert encode(kinds.pack(message)).hex() == written


def test_greetings() -> None:
    for written, value in WIRE["greeting"]:
        row = parse_local(bytes.fromhex(written), limit=1000)
        greeting = parse_greeting([*row, "of a later version"], "b")
        assert repr(greeting) == value
        assert greeting_frame(greeting).hex() == written


def test_answers_of_the_host() -> None:
    (status, status_value), (tree, tree_value) = WIRE["status"]
    read = ClusterStatus.parse(decode(bytes.fromhex(status), what="status"), "b")
    assert repr(read).replace(", refused={}", "") == status_value
    assert encode(read.fields()).hex() == status
    later = decode(bytes.fromhex(status), what="status") | {"new": 1}
    for name in ("voters", "jobs"):
        later[name] = [[*row, "of a later version"] for row in later[name]]
    assert ClusterStatus.parse(later, "b") == read
    members = ClusterTree.parse(decode(bytes.fromhex(tree), what="tree"), "b")
    assert repr(members) == tree_value
    assert encode(members.fields()).hex() == tree


def test_records() -> None:
    readers: dict[str, Any] = {
        "cluster.jobs": parse_ends,
        "cluster.hosts": parse_host_change,
        "cluster.messages": parse_message,
    }
    for topic, written, value in WIRE["record"]:
        assert repr(readers[topic](bytes.fromhex(written))) == value


def test_tickets() -> None:
    [(text, value)] = WIRE["ticket"]
    ticket = read_ticket("s3cret", text)
    assert repr(ticket) == value
    assert issue_ticket("s3cret", ticket.cluster, until=ticket.until, id=ticket.id) == text
