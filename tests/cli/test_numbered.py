"""`nngkit sub --lag`, `--last`, `--snail`: receiving from a Publisher, as processes."""

from __future__ import annotations

import re
import time

import pytest

from nngkit.blocking import Publisher
from nngkit.fanout import Keep
from nngkit.fanout.numbered.lag import pack_trailer
from nngkit.protocols import Pub
from nngkit.testing import eventually
from tests.cli.processes import ended, running

ANY = "tcp://127.0.0.1:0"
WAIT = 20


def test_last_begins_with_the_last_message_of_each_topic() -> None:
    with Publisher(ANY, keep=Keep()) as publisher:
        for number in range(10):
            publisher.publish(f"key{number % 2}=", b"%d" % number)
        with running("sub", publisher.address, "--last", "--subscribe", "key", "--count", "3", "--stats") as process:
            eventually(lambda: publisher.stats.snapshots == 1)
            publisher.publish("other", b"")
            publisher.publish("key0=", b"live")
            out, err, code = ended(process)
    assert (out, code) == (b"key0=8\nkey1=9\nkey0=live\n", 0)
    assert err.startswith("printed 3, received ")


def test_lag_reports_missing_messages_where_they_are_missing() -> None:
    with Pub(listen=ANY) as pub, running("sub", pub.address, "--lag", "--count", "2") as process:
        pub.wait_for_peers(1, WAIT)
        for number in (1, 5):
            pub.send(b"message %d" % number + pack_trailer(b"\1" * 8, 1, number, 0))
        out, err, code = ended(process)
    assert (out, code) == (b"message 1\nmessage 5\n", 0)
    assert err == "nngkit sub: 3 messages of 2 to 4 of 0101010101010101 are missing: they did not arrive\n"


def test_snail_fails_when_too_many_messages_wait_for_the_output() -> None:
    with Publisher(ANY, heartbeat=0.05) as publisher, running("sub", publisher.address, "--snail", "100") as process:
        eventually(publisher.subscribers)
        while process.poll() is None:  # its output is a pipe that is not read
            publisher.publish_many([("a", bytes(10_000))] * 10)
            time.sleep(0.02)
        assert process.returncode == 1
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert re.fullmatch(r"nngkit sub: disconnected: \d+ messages are unread, the oldest for [0-9.]+ s\n", said)


def test_without_a_publisher_it_ends_with_a_connection_error() -> None:
    with running("sub", "tcp://127.0.0.1:1", "--lag", "--recv-timeout", "0.1") as process:
        assert ended(process) == (b"", "nngkit sub: tcp://127.0.0.1:1: no publisher connected\n", 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--listen", ANY, "--lag"), "--lag: needs addresses of publishers to connect to, and does not listen"),
        (("tcp://127.0.0.1:1", "--snail", "0"), "--snail: '0' is not a whole number of at least 1"),
        (("tcp://127.0.0.1:1", "--last", "--wait-peers", "1"), "--wait-peers: conflicts with --last"),
    ],
)
def test_wrong_usage_is_a_one_line_error(arguments: tuple[str, ...], message: str) -> None:
    with running("sub", *arguments) as process:
        assert ended(process) == (b"", f"nngkit sub: {message}\n", 2)


def test_patterns_select_what_is_printed_and_gaps_are_of_all_topics() -> None:
    with (
        Pub(listen=ANY) as pub,
        running("sub", pub.address, "--lag", "--pattern", "px.*.S1", "--count", "2") as process,
    ):
        pub.wait_for_peers(1, WAIT)
        for number, topic in ((1, b"px.eu.S1"), (2, b"px.eu.S2"), (5, b"px.us.S1")):
            pub.send(topic + b" %d" % number + pack_trailer(b"\1" * 8, 1, number, 0))
        out, err, code = ended(process)
    assert (out, code) == (b"px.eu.S1 1\npx.us.S1 5\n", 0)
    assert "2 messages of 3 to 4 of 0101010101010101 are missing" in err
