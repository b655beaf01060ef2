"""Message counts and rates by peer and topic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nngkit.cli.tools.traffic import MOST_ROWS, Traffic

PEERS = st.sampled_from([None, "tcp://a:1", "tcp://b:2"])


@given(st.lists(st.tuples(st.binary(max_size=40), PEERS)), st.booleans())
def test_rows_add_up_to_the_total_and_are_printable(seen: list[tuple[bytes, str | None]], words: bool) -> None:
    traffic = Traffic(0.0, [b"a", b"ab"], words=words)
    for message, peer in seen:
        traffic.add(message, peer, 1.0)
    rows = traffic.rows(2.0)
    assert sum(row.messages for row in rows) == traffic.total.messages == len(seen)
    assert sum(row.size for row in rows) == traffic.total.size == sum(len(message) for message, _ in seen)
    assert traffic.total.per_second == len(seen) / 2
    assert all(row.topic is None or row.topic.isprintable() for row in rows)
    assert all(row.smallest * row.messages <= row.size <= row.largest * row.messages for row in rows)
    assert {row.peer for row in rows} == {peer for _, peer in seen}
    assert all(row.per_second == 0 for row in traffic.rows(3.0))


def test_the_longest_matching_topic_counts_or_else_the_first_word() -> None:
    traffic = Traffic(0.0, [b"weather.", b"weather.oslo"], words=True)
    for message in (b"weather.oslo 3", b"weather.rome 19", b"news today", b"news\x1b[2J"):
        traffic.add(message, "p", 0.5)
    assert {row.topic for row in traffic.rows(1.0)} == {"weather.oslo", "weather.", "news", "news\\x1b[2J"}


def test_topics_over_the_cap_share_one_row() -> None:
    traffic = Traffic(0.0, words=True)
    for number in range(MOST_ROWS + 500):
        traffic.add(b"%d x" % number, "p", 0.5)
    rows = traffic.rows(1.0)
    assert len(rows) == MOST_ROWS + 1
    (others,) = [row for row in rows if row.topic == "(others)"]
    assert (others.peer, others.messages) == (None, 500)
