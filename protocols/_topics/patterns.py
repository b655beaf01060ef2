"""Patterns of topics, such as ``orders.*.eu``, and the messages that begin with one of many.

::

    orders.*.eu     *  one token: one or more bytes without the separator
    orders.>        >  the rest: at least one byte, only at the end

A pattern is matched as a prefix is, against the beginning of a message: ``orders.*.eu`` matches ``orders.17.eu 5`` and
``orders.17.europe`` too. With ``end``, the bytes that end a topic in a message, it is matched against the whole topic.

Patterns are kept in a trie of their tokens, and all branches that match are followed token by token: the cost of a
message depends on how many branches its tokens open, and not on the number of patterns.

Pure: may not know sockets, threads, clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from nngkit.errors import ConfigError

MOST_TOKENS: Final = 64  # bounds the steps for a message
LONGEST_TOKEN: Final = 65_536  # bytes of a message in which a token's end is looked for
ONE, REST = b"*", b">"


@dataclass(frozen=True, slots=True, init=False)
class Pattern:
    """Topics of which some tokens are open: ``*`` stands for one whole token, ``>`` for the rest.

    It is accepted wherever a ``Sub`` takes a topic. ``separator`` stands between tokens; the pattern may begin or end
    with it. ``end``: the bytes that end a topic in a message, for example ``" "``; the pattern must then match the
    whole topic, up to there or to the end of the message. Without it, it matches the beginning of the message, as a
    prefix does.

    Raises ConfigError for a pattern that cannot be parsed.
    """

    text: bytes
    separator: bytes
    end: bytes | None
    tokens: tuple[bytes, ...] = field(repr=False, compare=False)

    def __init__(self, text: str | bytes, *, separator: str | bytes = ".", end: str | bytes | None = None) -> None:
        for name, value in (
            ("text", _bytes("pattern", text)),
            ("separator", _bytes("separator", separator)),
            ("end", None if end is None else _bytes("end", end)),
        ):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "tokens", self._parse())

    def matches(self, message: bytes) -> bool:
        """Return True if the message begins with a topic of the pattern."""
        one = Patterns()
        one.add(self)
        return one.match(message)

    @property
    def literal(self) -> int:
        """Number of bytes that are given: of two patterns that match, the one with more is more specific."""
        given = sum(len(token) for token in self.tokens if token not in (ONE, REST))
        return given + len(self.separator) * (len(self.tokens) - 1)

    def _parse(self) -> tuple[bytes, ...]:
        if not self.separator:
            raise ConfigError("separator", "is empty", self.separator)
        if self.end is not None and (not self.end or self.end in self.text or self.separator in self.end):
            raise ConfigError("end", f"{self.end!r} is empty, or part of {self.text!r} or of its separator", self.end)
        tokens = tuple(self.text.split(self.separator))
        wrong = None
        if not self.text:
            wrong = "is empty: subscribe to b'' to receive everything"
        elif len(tokens) > MOST_TOKENS:
            wrong = f"has {len(tokens)} tokens; {MOST_TOKENS} are allowed"
        elif b"" in tokens[1:-1]:
            wrong = f"has an empty token between two separators {self.separator!r}"
        elif REST in tokens[:-1]:
            wrong = "has '>' before its end: '>' stands for the rest"
        elif odd := next((each for each in tokens if each not in (ONE, REST) and (ONE in each or REST in each)), None):
            wrong = f"has the token {odd!r}: '*' stands for one whole token, and '>' for the rest"
        if wrong:
            raise ConfigError("pattern", f"{self.text!r} {wrong}", self.text)
        return tokens


class _Node:
    """Position after some tokens. ``last``: tokens that complete a pattern here."""

    __slots__ = ("last", "lengths", "next", "one")

    def __init__(self) -> None:
        self.next: dict[bytes, _Node] = {}
        self.one: _Node | None = None
        self.last: dict[bytes, Pattern] = {}
        self.lengths: tuple[int, ...] = ()  # of the literal ones in `last`


class _Tokens:
    """Patterns with one separator and one ``end``."""

    def __init__(self, separator: bytes, end: bytes | None) -> None:
        self._separator = separator
        self._end = end
        self.root = _Node()

    def add(self, pattern: Pattern) -> None:
        node = self.root
        *tokens, last = pattern.tokens
        for token in tokens:
            if token == ONE:
                node.one = below = node.one or _Node()
            else:
                below = node.next.setdefault(token, _Node())
            node = below
        self._complete(node, {**node.last, last: pattern})

    def discard(self, pattern: Pattern) -> None:
        node: _Node | None = self.root
        path: list[tuple[_Node, bytes]] = []
        *tokens, last = pattern.tokens
        for token in tokens:
            assert node is not None
            path.append((node, token))
            node = node.one if token == ONE else node.next.get(token)
            if node is None:
                return
        assert node is not None
        self._complete(node, {token: each for token, each in node.last.items() if token != last})
        while path and not (node.next or node.one or node.last):
            node, token = path.pop()
            if token == ONE:
                node.one = None
            else:
                node.next.pop(token, None)

    @staticmethod
    def _complete(node: _Node, last: dict[bytes, Pattern]) -> None:
        node.last = last
        node.lengths = tuple({len(token) for token in last if token not in (ONE, REST)})

    def found(self, message: bytes, *, one: bool) -> list[Pattern]:
        """Return the patterns that match; with ``one``, at most some of them."""
        separator, end = self._separator, self._end
        stop = len(message)
        if end is not None and (cut := message.find(end, 0, MOST_TOKENS * LONGEST_TOKEN)) >= 0:
            stop = cut
        nodes, at = [self.root], 0
        found: list[Pattern] = []
        while nodes:
            token_end = message.find(separator, at, min(stop, at + LONGEST_TOKEN))
            is_last = token_end < 0
            if is_last:
                token_end = stop
            for node in nodes:
                last = node.last
                if not last:
                    continue
                if at < stop and REST in last:
                    found.append(last[REST])
                if at < token_end and ONE in last and (is_last or end is None):
                    found.append(last[ONE])
                if end is None:
                    for length in node.lengths:
                        token = message[at : at + length]
                        if token in last and len(token) == length:
                            found.append(last[token])
                elif is_last and message[at:stop] in last:
                    found.append(last[message[at:stop]])
            if is_last or (one and found):
                break
            token = message[at:token_end]
            below = [node.next[token] for node in nodes if token in node.next]
            if token:
                below += [node.one for node in nodes if node.one is not None]
            nodes, at = below, token_end + len(separator)
        return found


class Patterns:
    """Set of patterns that finds those that match a message."""

    def __init__(self) -> None:
        self._patterns: dict[Pattern, None] = {}  # in the order of their addition
        self._tokens: dict[tuple[bytes, bytes | None], _Tokens] = {}

    def __len__(self) -> int:
        return len(self._patterns)

    def __contains__(self, pattern: Pattern) -> bool:
        return pattern in self._patterns

    def members(self) -> tuple[Pattern, ...]:
        """Return the patterns."""
        return tuple(self._patterns)

    def match(self, message: bytes) -> bool:
        """Return True if a pattern matches the message."""
        return any(tokens.found(message, one=True) for tokens in self._tokens.values())

    def best(self, message: bytes) -> Pattern | None:
        """Return the most specific pattern that matches; None if none does. Of two alike, the lesser by its bytes."""
        found = [pattern for tokens in self._tokens.values() for pattern in tokens.found(message, one=False)]
        return min(found, key=lambda pattern: (-pattern.literal, pattern.text), default=None)

    def add(self, pattern: Pattern) -> bool:
        """Add a pattern; return False if it was one."""
        if pattern in self._patterns:
            return False
        key = (pattern.separator, pattern.end)
        tokens = self._tokens.get(key)
        if tokens is None:
            self._tokens[key] = tokens = _Tokens(*key)
        tokens.add(pattern)
        self._patterns[pattern] = None
        return True

    def remove(self, pattern: Pattern) -> bool:
        """Remove a pattern; return False if it was none."""
        if pattern not in self._patterns:
            return False
        key = (pattern.separator, pattern.end)
        tokens = self._tokens[key]
        tokens.discard(pattern)
        del self._patterns[pattern]
        root = tokens.root
        if not (root.next or root.one or root.last):
            del self._tokens[key]
        return True


def _bytes(what: str, text: object) -> bytes:
    if isinstance(text, str):
        return text.encode()
    if isinstance(text, (bytes, bytearray, memoryview)):
        return bytes(text)
    raise ConfigError(what, f"{text!r} is neither text nor bytes", text)
