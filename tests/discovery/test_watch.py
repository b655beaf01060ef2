"""WatchQuery and WatchReply: encoding, decoding, and refusal of anything else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit import envelope
from nngkit.discovery.provider import Reason, State, Status
from nngkit.discovery.watch import MAX_WAIT, Changes, WatchQuery, WatchReply, parse_watch_query, parse_watch_reply
from nngkit.errors import BadMessage, NngkitError
from tests.discovery.peers import record

ASK = {"v": 1, "type": "ask-watch", "daemon": "d", "version": 3, "wait": 1.5}


def test_watch_messages_survive_encoding() -> None:
    assert parse_watch_query(WatchQuery("d", 3, 1.5).encode()) == WatchQuery("d", 3, 1.5)
    assert parse_watch_query(WatchQuery().encode()) == WatchQuery("", 0, 0.0)
    assert parse_watch_reply(WatchReply("d", 2**40).encode()) == WatchReply("d", 2**40)


def test_changes_survive_encoding() -> None:
    row = Status(record(priority=2), State.DOWN, Reason.PIPE_LOST, since=4.0)
    reply = WatchReply("d", 7, Changes((row,), (record(number=2).key,)))
    assert parse_watch_reply(reply.encode(now=5.0), 5.0) == reply
    assert parse_watch_query(WatchQuery("d", 3, 1.5, changes=True).encode()) == WatchQuery("d", 3, 1.5, changes=True)


@pytest.mark.parametrize("gone", [1, [1], [["n", "a", "i"]], [["n", "a", "i", -1]], [["n", "a", 2, 1]], [[]] * 257])
def test_invalid_changes_are_refused(gone: object) -> None:
    body = {"v": 2, "type": "changed", "daemon": "d", "version": 3, "rows": [], "gone": gone}
    with pytest.raises(BadMessage):
        parse_watch_reply(envelope.encode(body))


def test_unknown_fields_are_ignored() -> None:
    assert parse_watch_query(envelope.encode({**ASK, "more": [1]})) == WatchQuery("d", 3, 1.5)


@pytest.mark.parametrize(
    "change",
    [
        {"v": 3},
        {"type": "ask-rounds"},
        {"daemon": 3},
        {"daemon": "x" * 65},
        {"version": -1},
        {"version": 1.5},
        {"wait": -1.0},
        {"wait": MAX_WAIT + 1},
        {"wait": True},
    ],
)
def test_invalid_fields_are_no_watch_query(change: dict[str, object]) -> None:
    assert parse_watch_query(envelope.encode({**ASK, **change})) is None
    with pytest.raises(BadMessage):
        parse_watch_reply(envelope.encode({**ASK, **change}))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_our_errors(body: bytes) -> None:
    assert parse_watch_query(body) is None or isinstance(parse_watch_query(body), WatchQuery)
    with suppress(NngkitError):
        parse_watch_reply(body)
