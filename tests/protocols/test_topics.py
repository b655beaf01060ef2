"""Prefixes, patterns and routes, compared with the plainest implementation of each."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nngkit.errors import ConfigError
from nngkit.protocols import Pattern
from nngkit.protocols._topics.prefix_trie import PrefixTrie
from nngkit.protocols._topics.topics import Routes, Topics

# ---- prefixes --------------------------------------------------------------------------------------------------------

ALPHABETS = (b"a", b"ab", b"abc.", b"0123456789")


def is_right(topics: Topics, expected: set[bytes], messages: list[bytes]) -> bool:
    """Compare with a search of the whole set."""
    for message in messages:
        beginnings = [prefix for prefix in expected if message.startswith(prefix)]
        if topics.match(message) is not bool(beginnings):
            return False
        if topics.prefixes.longest(message) != max(beginnings, key=len, default=None):
            return False
    matched = [message for message in messages if message.startswith(tuple(expected))]
    return list(topics.select(messages)) == matched and len(topics.prefixes) == len(expected)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.text("ab.", max_size=20)), max_size=150), st.lists(st.text("ab.")))
@example([(True, "")], [""])
@example([(True, "a" * size) for size in range(100)], ["b", "a" * 50])
@example([(True, f"a{size}.{'b' * (size % 7)}.") for size in range(100)], ["a7.", "a7.bb."])
def test_any_additions_and_removals_leave_the_right_prefixes(changes: list[tuple[bool, str]], asked: list[str]) -> None:
    topics, expected = Topics(), set[bytes]()
    for adds, text in changes:
        prefix = text.encode()
        if adds:
            assert (prefix in topics) is (prefix in expected)
            assert topics.add(prefix) is (prefix not in expected)
            expected.add(prefix)
        else:
            assert topics.remove(prefix) is (prefix in expected)
            expected.discard(prefix)
    beginnings = [text.encode() for text in asked]
    assert is_right(topics, expected, [*beginnings, *(prefix + b"b" for prefix in expected)])
    assert sorted(expected, key=lambda each: (-len(each), each)) == topics.prefixes.members()


@pytest.mark.parametrize("seed", range(12))
def test_large_sets_that_grow_and_shrink_stay_right(seed: int) -> None:
    rng = random.Random(seed)
    alphabet, longest = ALPHABETS[seed % 4], (3, 9, 20, 60)[seed // 3]
    ends = (b"", b".", b".", b"/") if seed % 5 else (b"",)

    def some() -> bytes:
        return bytes(rng.choices(alphabet, k=rng.randrange(rng.random() > 0.01, longest))) + rng.choice(ends)

    topics, expected = Topics(), set[bytes]()
    for growing in (True, False, True, False):
        for _ in range(400):
            prefix = some()
            if growing == (rng.random() < 0.9):
                topics.add(prefix)
                expected.add(prefix)
            elif expected:
                topics.remove(gone := rng.choice(tuple(expected)))
                expected.discard(gone)
        known = rng.sample(sorted(expected), min(40, len(expected)))
        assert is_right(topics, expected, [*(each + some() for each in known), *(some() for _ in range(40))])
    for prefix in expected:
        topics.remove(prefix)
    assert not topics
    assert not topics.match(b"a" * 60)


@pytest.mark.parametrize(
    "prefixes",
    [
        [b"orders.%07d." % one for one in range(5000)],
        [b"orders.%d." % one for one in range(5000)],
        [b"%s.%d;" % (b"x" * (one % 23), one) for one in range(5000)],
        [b"%s.%d." % (b"x" * (one % 23), one) for one in range(5000)],
        [b"/%s/%d/" % (b"x" * (one % 2), one) for one in range(5000)],
        [*(b"%05d;" % one for one in range(3000)), *(b"%09d;" % one for one in range(2000))],
    ],
    ids=["of one length", "of a few lengths", "of many lengths", "of tokens", "of paths", "of two lengths"],
)
def test_thousands_of_prefixes_of_a_kind_are_found_and_removed(prefixes: list[bytes]) -> None:
    topics = Topics()
    for prefix in prefixes:
        assert topics.add(prefix)
    assert len(topics.select([prefix + b" 5" for prefix in prefixes])) == len(prefixes)
    assert not topics.select([prefix[:-1] for prefix in prefixes[-9:]] + [b"", b"orders", b"other" * 20])
    for prefix in prefixes[1:]:
        assert topics.remove(prefix)
    assert topics.prefixes.members() == prefixes[:1]
    assert list(topics.select([prefix + b" 5" for prefix in prefixes[1:]])) == []
    assert topics.match(prefixes[0])


def test_prefixes_of_all_lengths_cost_a_message_no_more_than_its_length() -> None:
    """As a count of the bytes that are looked at, which no slow machine changes."""

    class Counted(bytes):
        looked = 0

        def __getitem__(self, place: object) -> bytes:  # type: ignore[override]
            found = super().__getitem__(place)  # type: ignore[call-overload]
            Counted.looked += len(found)
            return bytes(found)

    topics = Topics()
    for size in range(1, 4097):
        topics.add(b"a" * size + b"b")
    message = Counted(b"a" * 8192)
    assert not topics.match(message)
    assert Counted.looked < 8 * len(message)
    assert topics.match(b"a" * 4096 + b"b!")
    assert topics.prefixes.longest(b"a" * 4000 + b"bb") == b"a" * 4000 + b"b"


@pytest.mark.parametrize("seed", range(6))
def test_members_with_long_common_beginnings_are_found_and_leave_nothing_behind(seed: int) -> None:
    rng = random.Random(seed)
    blocks = (b"aaaaaaaa", b"bbbbbbbb", b"aaaabbbb", b"cccccccc")

    def some() -> bytes:
        common = b"".join(rng.choices(blocks, (9, 2, 1, 1), k=rng.randrange(6)))
        return common + bytes(rng.choices(b"ab", k=rng.choice((0, 3, 7, 8, 9, 12))))

    trie, expected = PrefixTrie(), set[bytes]()
    for growing in (True, False, True):
        for _ in range(150):
            if growing == (rng.random() < 0.8):
                trie.add(member := some())
                expected.add(member)
            else:
                gone = rng.choice(sorted(expected)) if expected and rng.random() < 0.9 else some()
                trie.discard(gone)
                expected.discard(gone)
            assert len(trie) == len(expected)
        for message in [*(some() + b"abc" for _ in range(60)), *(member[:-1] for member in sorted(expected)[:60])]:
            beginnings = [member for member in expected if message.startswith(member)]
            assert trie.match(message) is bool(beginnings)
            assert trie.longest(message) == max(beginnings, key=len, default=None)
    for member in sorted(expected):
        trie.discard(member)
    root = trie._root
    assert (len(trie), root.ends, root.lengths, root.next) == (0, set(), (), {})


def test_an_interrupted_change_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some steps of the trie are made to fail, as a signal handler that raises would."""
    topics, expected, chance = Topics(), set[bytes](), random.Random(7)

    class Interrupted(Exception):
        pass

    for name in ("add", "discard"):

        def failing(self: PrefixTrie, member: bytes, made: object = getattr(PrefixTrie, name)) -> None:
            if chance.random() < 0.01:
                raise Interrupted
            made(self, member)  # type: ignore[operator]
            if chance.random() < 0.01:
                raise Interrupted

        monkeypatch.setattr(PrefixTrie, name, failing)

    def repeated(change: object, prefix: bytes) -> None:
        for _ in range(50):
            try:
                change(prefix)  # type: ignore[operator]
            except Interrupted:
                continue
            return
        pytest.fail("interrupted for ever")

    rng = random.Random(3)
    words = [b"%s%d" % (b"w" * (one % 9 if one % 3 else 4), one) for one in range(700)]
    for word in words:
        repeated(topics.add, word)
        expected.add(word)
    assert is_right(topics, expected, [word + b"!" for word in words[::7]] + [b"w" * 9, b"w5"])
    rng.shuffle(words)
    for word in words[:650]:
        repeated(topics.remove, word)
        expected.discard(word)
    assert is_right(topics, expected, [word + b"!" for word in words[::7]] + [b"w" * 9, b"w5"])


# ---- patterns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "matched", "unmatched"),
    [
        (Pattern("orders.*.eu"), ["orders.17.eu 5", "orders.x.europe"], ["orders.eu", "orders..eu", "orders.1.2.eu"]),
        (Pattern("orders.*"), ["orders.1", "orders.eu.17"], ["orders.", "orders..", "order.1", ""]),
        (Pattern("orders.*."), ["orders.1.", "orders.1.2"], ["orders.1", "orders..x"]),
        (Pattern("orders.>"), ["orders.x", "orders.."], ["orders.", "orders"]),
        (Pattern("*.*.c"), ["a.b.c", "a.b.cd"], ["a.b", "a.c", ".b.c"]),
        (Pattern("*"), ["a", "\n"], ["", ".a"]),
        (Pattern(">"), ["a", "."], [""]),
        (Pattern("plain"), ["plain", "plainer"], ["plai"]),
        (Pattern("/a/*/b", separator="/"), ["/a/x.y/b"], ["/a//b", "a/x/b", "/a/b"]),
        (Pattern("a::*::b", separator="::"), ["a::x:y::b"], ["a::::b", "a::x:b"]),
        (Pattern("orders.*", end=" "), ["orders.1 a.b", "orders.1"], ["orders.1.2 x", "orders. 1", "orders.1.2"]),
        (Pattern("orders.*.eu", end=" "), ["orders.1.eu 7"], ["orders.1.europe 7", "orders.1 .eu"]),
        (Pattern("orders.>", end="\0"), ["orders.1.2\0x"], ["orders.\0x", "orders\0x"]),
        (Pattern(b"\xff.*"), [], ["\xff.x"]),
    ],
    ids=lambda value: repr(value.text) if isinstance(value, Pattern) else None,
)
def test_a_pattern_matches(pattern: Pattern, matched: list[str], unmatched: list[str]) -> None:
    assert [text for text in matched if not pattern.matches(text.encode())] == []
    assert [text for text in unmatched if pattern.matches(text.encode())] == []


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("", {}, "is empty: subscribe to b'' to receive everything"),
        ("a..b", {}, "has an empty token between two separators b'.'"),
        ("a.>.b", {}, "has '>' before its end: '>' stands for the rest"),
        ("a.b*", {}, "has the token b'b*': '*' stands for one whole token, and '>' for the rest"),
        ("a.**", {}, "has the token b'**'"),
        ("a.>>", {}, "has the token b'>>'"),
        ("." * 64, {}, "has 65 tokens; 64 are allowed"),
        ("a.*", {"separator": ""}, "separator: is empty"),
        ("a.*", {"end": "."}, "end: b'.' is empty, or part of b'a.*' or of its separator"),
        ("a.*", {"end": ""}, "end: b'' is empty"),
        (5, {}, "5 is neither text nor bytes"),
    ],
)
def test_a_pattern_that_cannot_be_parsed_is_one_clear_line(text: str, options: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Pattern(text, **options)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def expression(pattern: Pattern) -> re.Pattern[bytes]:
    """Return the regular expression that matches the same messages."""
    parts = []
    ended = pattern.end is not None
    for token in pattern.tokens:
        match token:
            case b"*":
                parts.append(rb"[^. ]+" if ended else rb"[^.]+")
            case b">":
                parts.append(rb"[^ ]+" if ended else rb".")
            case _:
                parts.append(re.escape(token))
    return re.compile(rb"\.".join(parts) + (rb"(?: |\Z)" if ended else b""), re.DOTALL)


TOKENS = st.sampled_from(["a", "b", "ab", "*"])
PATTERNS = st.builds(
    lambda tokens, rest, ended: Pattern(".".join([*tokens, *rest]), end=" " if ended else None),
    st.lists(TOKENS, min_size=1, max_size=4),
    st.sampled_from([[], [">"], [""]]),
    st.booleans(),
)
MESSAGES = st.lists(st.text("ab. *>", max_size=9).map(str.encode), max_size=20)


@settings(max_examples=150)
@given(st.lists(PATTERNS, max_size=12), st.lists(st.integers(0, 11), max_size=6), MESSAGES)
def test_many_patterns_match_as_their_regular_expressions(
    patterns: list[Pattern], removed: list[int], messages: list[bytes]
) -> None:
    topics = Topics()
    for pattern in patterns:
        topics.add(pattern)
    left = list(dict.fromkeys(patterns))
    for place in removed:
        if place < len(patterns):
            assert topics.remove(patterns[place]) is (patterns[place] in left)
            left = [pattern for pattern in left if pattern != patterns[place]]
    assert topics.patterns.members() == tuple(left)
    for message in messages:
        matched = [pattern for pattern in left if expression(pattern).match(message)]
        assert topics.match(message) is bool(matched)
        best = topics.patterns.best(message)
        assert (
            (best is None)
            if not matched
            else best in matched and best.literal == max(pattern.literal for pattern in matched)
        )


def test_a_message_without_separators_is_searched_no_further_than_a_token_is_long() -> None:
    pattern = Pattern("a.*.b")
    assert pattern.matches(b"a." + b"x" * 65_000 + b".b")
    assert not pattern.matches(b"a." + b"x" * 66_000 + b".b")


# ---- routes ----------------------------------------------------------------------------------------------------------


def test_the_most_specific_prefix_or_pattern_has_the_message() -> None:
    routes = Routes[str]()
    for topic in ("", "orders.", "orders.17."):
        routes.add(topic.encode(), topic or "all")
    for pattern in ("orders.*.eu", "orders.>", "*.17.eu"):
        routes.add(Pattern(pattern), pattern)
    assert {
        message: routes.find(message)
        for message in (b"weather", b"orders.", b"orders.5", b"orders.5.eu", b"orders.17.eu", b"x.17.eu")
    } == {
        b"weather": "all",
        b"orders.": "orders.",
        b"orders.5": "orders.",  # as many bytes as `orders.>` gives
        b"orders.5.eu": "orders.*.eu",
        b"orders.17.eu": "orders.17.",
        b"x.17.eu": "*.17.eu",
    }


def test_a_message_that_nothing_matches_has_no_route() -> None:
    routes = Routes[str]()
    assert routes.find(b"a") is None
    routes.add(b"b", "b")
    routes.add(Pattern("c.*"), "c")
    assert routes.find(b"a") is None
    assert len(routes) == 2
    assert b"b" in routes
