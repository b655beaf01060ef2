"""Accounting of numbers: whatever is lost, doubled, reordered or restarted, each number is delivered or reported."""

import random
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nngkit.fanout.numbered.lag import (
    HEARTBEAT,
    MAGIC_HEADERS,
    MOST_PUBLISHERS,
    MOST_RANGES,
    MOST_RUNS,
    WITHHELD,
    Accounts,
    Event,
    Gap,
    Heartbeat,
    Published,
    Restarted,
    pack_trailer,
    pack_withheld,
    read_trailer,
    sized_headers,
    stamp,
)

ME, OTHER = b"publish1", b"publish2"


def message(number: int, publisher: bytes = ME, epoch: int = 1, data: bytes = b"data") -> bytes:
    return data + pack_trailer(publisher, epoch, number, 5)


def heartbeat(number: int, publisher: bytes = ME, epoch: int = 1) -> bytes:
    return message(number, publisher, epoch, HEARTBEAT + b"body")


def numbers(events: list[Event]) -> list[int]:
    return [event.number for event in events if isinstance(event, Published)]


def test_a_trailer_is_read_as_it_was_written() -> None:
    assert read_trailer(message(7)) == (ME, 1, 7, 5)
    assert read_trailer(b"data") is None
    assert read_trailer(b"x" * 100) is None


def test_a_hole_is_reported_in_its_place() -> None:
    events = Accounts().receive([message(5), message(6), message(9)])
    assert events == [
        Published(b"data", ME, 1, 5, 5),
        Published(b"data", ME, 1, 6, 5),
        Gap(ME, 1, 7, 8, 2),
        Published(b"data", ME, 1, 9, 5),
    ]


def test_a_heartbeat_shows_a_missing_tail_and_is_not_counted_on() -> None:
    accounts = Accounts()
    accounts.receive([message(1)])
    events = accounts.receive([heartbeat(3), message(4)])
    assert events == [Gap(ME, 1, 2, 3, 2), Heartbeat(ME, 1, 3, 5, b"body"), Published(b"data", ME, 1, 4, 5)]


def test_withheld_numbers_are_no_gap_and_what_precedes_them_is() -> None:
    accounts = Accounts()
    first = accounts.receive([message(1), pack_withheld(ME, 1, 2, 4), message(5), pack_withheld(ME, 1, 8, 9)])
    assert numbers(first) == [1, 5]
    assert first[-1] == Gap(ME, 1, 6, 7, 2)
    assert numbers(accounts.receive([message(10), pack_withheld(ME, 1, 2, 9), message(11)])) == [10, 11]  # told again
    account = accounts.get(ME)
    assert account is not None
    assert (account.withheld, account.missed, account.delivered) == (5, 2, 4)
    again = accounts.receive([pack_withheld(ME, 2, 1, 3), message(4, epoch=2)])
    assert numbers(again) == [4]
    assert not any(isinstance(each, Gap) for each in again)
    assert numbers(accounts.receive([pack_withheld(OTHER, 1, 3, 7), message(8, OTHER)])) == [8]


def test_a_message_about_withheld_numbers_is_held_to_its_form() -> None:
    accounts = Accounts()
    accounts.receive([message(1)])
    bad = [pack_withheld(ME, 1, *each) for each in ((0, 5), (6, 5), (1, 2**63))]
    assert accounts.receive([*bad, WITHHELD + pack_trailer(ME, 1, 5, 0), message(2)])[-1:] != []
    account = accounts.get(ME)
    assert account is not None
    assert accounts.refused["bad number"] == 4
    assert (account.next, account.missed) == (3, 0)


def test_a_publisher_begins_where_it_is_heard_first() -> None:
    accounts = Accounts()
    assert [type(event) for event in accounts.receive([heartbeat(10), message(11)])] == [Heartbeat, Published]
    assert [type(event) for event in accounts.receive([message(500, OTHER), message(12)])] == [Published, Published]


def test_a_late_message_is_delivered_once() -> None:
    accounts = Accounts()
    accounts.receive([message(1), message(5)])
    events = accounts.receive([message(3), message(3), message(1), message(2), message(4)])
    assert [(event.number, event.late) for event in events if isinstance(event, Published)] == [
        (3, True),
        (2, True),
        (4, True),
    ]
    assert accounts.refused["duplicate"] == 2
    account = accounts.get(ME)
    assert account is not None
    assert (account.delivered, account.missed, account.late) == (5, 3, 3)


def test_a_new_run_begins_with_one_and_an_earlier_one_is_refused() -> None:
    accounts = Accounts()
    accounts.receive([message(1), message(2)])
    assert accounts.receive([message(3, epoch=2), message(3), message(4, epoch=2)]) == [
        Restarted(ME, 2, 1, 2),
        Gap(ME, 2, 1, 2, 2),
        Published(b"data", ME, 2, 3, 5),
        Published(b"data", ME, 2, 4, 5),
    ]
    assert accounts.refused["earlier run"] == 1


def test_a_run_that_was_never_heard_is_a_restart_whatever_its_epoch() -> None:
    """A publisher's clock may have gone back between its runs."""
    accounts = Accounts()
    accounts.receive([message(1, epoch=9)])
    assert accounts.receive([message(1, epoch=4), message(2, epoch=4), message(2, epoch=9)]) == [
        Restarted(ME, 4, 9, 1),
        Published(b"data", ME, 4, 1, 5),
        Published(b"data", ME, 4, 2, 5),
    ]
    assert accounts.refused["earlier run"] == 1
    assert accounts.receive([message(2, epoch=6)])[:2] == [Restarted(ME, 6, 4, 2), Gap(ME, 6, 1, 1, 1)]


def test_a_run_returns_if_the_one_that_followed_it_is_silent() -> None:
    """Messages of an old run that come late do not silence the publisher for good."""
    accounts = Accounts()
    accounts.receive([message(1, epoch=9), message(2, epoch=9)])
    assert numbers(accounts.receive([message(7, epoch=4)])) == [7]  # it came late
    assert accounts.receive([message(3, epoch=9), heartbeat(3, epoch=9), message(4, epoch=9)]) == []
    assert accounts.receive([heartbeat(4, epoch=9), message(5, epoch=9)]) == [
        Restarted(ME, 9, 4, 7),
        Gap(ME, 9, 3, 4, 2),
        Heartbeat(ME, 9, 4, 5, b"body"),
        Published(b"data", ME, 9, 5, 5),
    ]


def test_two_publishers_with_one_id_do_not_alternate() -> None:
    accounts = Accounts()
    accounts.receive([message(1, epoch=1), message(1, epoch=2)])
    for number in range(2, 20):
        events = accounts.receive([heartbeat(number - 1, epoch=1), message(number, epoch=2), message(number, epoch=1)])
        assert [event.epoch for event in events] == [2]


def test_the_topic_and_the_body_are_told_apart() -> None:
    trailer = pack_trailer(ME, 1, 1, stamp(1_700_000_000_000_000, 4))
    [event] = Accounts().receive([b"px.abody" + trailer])
    assert isinstance(event, Published)
    assert (event.topic, event.body, event.time) == (b"px.a", b"body", 1_700_000_000_000_000)
    [older] = Accounts().receive([message(1)])  # of a version that does not tell
    assert isinstance(older, Published)
    assert (older.topic, older.body) == (b"", b"data")
    assert read_trailer(b"px.abody" + trailer) == (ME, 1, 1, 1_700_000_000_000_000)


def test_a_message_with_headers_is_told_as_they_were_published_and_a_malformed_one_is_missing() -> None:
    page = (Path(__file__).parents[2] / "docs" / "wire.md").read_text().partition("## Publisher and subscriber\n")[2]
    shown = dict(re.findall(r"^([a-z]+) +?= ([0-9a-f]+)$", page.partition("\n## ")[0], re.MULTILINE))
    plain, with_headers = bytes.fromhex(shown["message"]), bytes.fromhex(shown["headers"])
    assert plain == b"a 1" + pack_trailer(b"publish1", 2, 3, 4)
    assert with_headers == b"a 1" + sized_headers({"a": "b"}) + pack_trailer(b"publish1", 2, 3, 4, MAGIC_HEADERS)
    assert Accounts().receive([plain]) == [Published(b"a 1", b"publish1", 2, 3, 4)]
    assert Accounts().receive([with_headers]) == [Published(b"a 1", b"publish1", 2, 3, 4, False, 0, {"a": "b"})]
    accounts = Accounts()
    accounts.receive([message(1)])
    for before in (b"", b"\0\0\0\1", b"\xff\xff\xff\xff", b"\xa1\x61a\x01\0\0\0\4", sized_headers({"a": "b" * 9000})):
        accounts.receive([before + pack_trailer(ME, 1, 2, 5, MAGIC_HEADERS)])
    assert accounts.refused["no number"] == 5
    assert accounts.receive([message(3)])[0] == Gap(ME, 1, 2, 2, 1)


def test_messages_without_a_number_or_with_a_bad_one_are_counted() -> None:
    accounts = Accounts()
    assert accounts.receive([b"", b"plain", b"x" * 200, message(0), message(2**64 - 1)]) == []
    assert accounts.refused["no number"] == 3
    assert accounts.refused["bad number"] == 2
    assert accounts.all() == []


def test_an_absurd_number_hurts_only_its_publisher() -> None:
    accounts = Accounts()
    accounts.receive([message(1), message(1, OTHER)])
    events = accounts.receive([message(2**60), message(2, OTHER), message(2)])
    assert events[0] == Gap(ME, 1, 2, 2**60 - 1, 2**60 - 2)
    assert numbers(events) == [2**60, 2, 2]  # the last one late


def test_over_the_cap_the_publisher_that_says_nothing_is_forgotten_and_totals_stay() -> None:
    accounts = Accounts()
    accounts.receive([message(1), message(2), message(5), message(1, OTHER)])
    accounts.receive([message(1, epoch=2), message(4, epoch=2)])  # a second run
    for number in range(MOST_PUBLISHERS):
        accounts.receive([message(1, b"%8d" % number), heartbeat(4, ME, 2), heartbeat(1, b"%8d" % number)])
    assert accounts.get(ME) is not None
    assert accounts.get(OTHER) is None
    assert accounts.forgotten() == [OTHER, b"%8d" % 0]
    assert accounts.forgotten() == []
    assert accounts.total("delivered") == 3 + 1 + 2 + MOST_PUBLISHERS
    assert accounts.total("missed") == 2 + 2
    for epoch in range(3, 100):
        accounts.receive([message(1, ME, epoch)])
    assert accounts.total("delivered") == 3 + 1 + 2 + MOST_PUBLISHERS + 97


def test_memory_is_capped() -> None:
    accounts = Accounts()
    for number in range(1, 10 * MOST_RANGES):
        accounts.receive([message(2 * number)])
    account = accounts.get(ME)
    assert account is not None
    assert len(account.ranges) == MOST_RANGES
    for epoch in range(2, 100):
        accounts.receive([message(1, epoch=epoch)])
    account = accounts.get(ME)
    assert account is not None
    assert len(account.over) == MOST_RUNS
    for number in range(MOST_PUBLISHERS + 10):
        accounts.receive([message(1, b"%8d" % number)])
    assert len(accounts.all()) == MOST_PUBLISHERS
    assert accounts.refused["over cap"] == 11


def test_a_snapshot_covers_what_precedes_it() -> None:
    accounts = Accounts()
    accounts.begin(ME, 1, 11)
    assert numbers(accounts.receive([message(9), message(10), message(11)])) == [11]
    accounts.begin(ME, 1, 5)  # an older one changes nothing
    assert numbers(accounts.receive([message(12)])) == [12]


@given(st.lists(st.tuples(st.integers(1, 30), st.booleans(), st.integers(1, 2)), max_size=60))
def test_each_number_is_delivered_once_or_reported(steps: list[tuple[int, bool, int]]) -> None:
    accounts = Accounts()
    delivered: set[tuple[int, int]] = set()
    reported: set[tuple[int, int]] = set()
    first: dict[int, int] = {}
    for number, is_heartbeat, epoch in steps:
        for event in accounts.receive(
            [heartbeat(number, epoch=epoch) if is_heartbeat else message(number, epoch=epoch)]
        ):
            if isinstance(event, Published):
                assert (event.epoch, event.number) not in delivered
                delivered.add((event.epoch, event.number))
                assert event.late == ((event.epoch, event.number) in reported)
                first.setdefault(event.epoch, event.number)
            elif isinstance(event, Gap):
                assert event.count == event.last - event.first + 1
                for missing in range(event.first, event.last + 1):
                    assert (event.epoch, missing) not in delivered | reported
                    reported.add((event.epoch, missing))
    account = accounts.get(ME)
    if account is not None:
        known = {number for epoch, number in delivered | reported if epoch == account.epoch}
        assert account.delivered + account.missed - account.late == len(known)
        if known:
            assert known == set(range(min(known), account.next))


def test_received_and_reported_are_what_was_sent_in_a_thousand_runs() -> None:
    """Two publishers whose links lose, double, hold back and restart at random; then a heartbeat tells the end."""
    for seed in range(1000):
        rng = random.Random(seed)
        accounts = Accounts()
        got, missing, late = 0, 0, 0
        sent = {ME: 0, OTHER: 0}
        held: list[bytes] = []
        accounts.receive([heartbeat(0), heartbeat(0, OTHER)])
        events: list[Event] = []
        for _ in range(rng.randrange(20, 120)):
            publisher = rng.choice((ME, OTHER))
            sent[publisher] += 1
            frame = message(sent[publisher], publisher)
            match rng.random():
                case chance if chance < 0.15:
                    continue  # lost
                case chance if chance < 0.2:
                    held.append(frame)
                case chance if chance < 0.25:
                    events += accounts.receive([frame, frame])
                case chance if chance < 0.3 and held:
                    events += accounts.receive([frame, held.pop()])
                case _:
                    events += accounts.receive([frame])
        events += accounts.receive([heartbeat(sent[ME]), heartbeat(sent[OTHER], OTHER)])
        for event in events:
            if isinstance(event, Published):
                got += 1
                late += event.late
            elif isinstance(event, Gap):
                missing += event.count
        assert got + missing - late == sum(sent.values()), seed
