"""Replicas with random histories, delivered in causal order; shared by the tests of engines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nngkit.documents.engine.interface import Engine, EngineDocument, Prelim, load_engine

LETTERS = ["a", "é", "漢", "😀", "xyz", "a😀é", "👨‍👩", "e\u0301"]


@dataclass
class Message:
    """Edit `number` of replica `author`. `seen`: edits of each replica that it had seen, itself included."""

    author: int
    number: int
    seen: tuple[int, ...]
    update: bytes


@dataclass
class Histories:
    """Replicas of a document edited at random, with all messages sent and delivered."""

    rng: random.Random
    count: int = 3
    unicode: bool = True
    made: Engine = field(default_factory=load_engine)

    def __post_init__(self) -> None:
        self.replicas = [self.made.new(number + 1) for number in range(self.count)]
        self.messages: list[Message] = []
        self.seen = [[0] * self.count for _ in self.replicas]
        for number, replica in enumerate(self.replicas):
            replica.observe(partial(self._said, number))

    def _said(self, number: int, update: bytes, origin: object) -> None:
        if origin != "remote":
            self.seen[number][number] += 1
            seen = self.seen[number]
            self.messages.append(Message(number, seen[number], tuple(seen), update))

    def ready(self, seen: list[int], messages: list[Message]) -> Iterator[Message]:
        """Yield the messages whose dependencies are all in `seen`."""
        for message in messages:
            others = (seen[n] >= message.seen[n] for n in range(self.count) if n != message.author)
            if message.number == seen[message.author] + 1 and all(others):
                yield message

    def deliver(self, to: int, at_most: int | None = None) -> None:
        while at_most is None or at_most > 0:
            ready = list(self.ready(self.seen[to], self.messages))
            if not ready:
                return
            message = self.rng.choice(ready)
            self.replicas[to].apply(message.update, "remote")
            self.seen[to][message.author] += 1
            at_most = None if at_most is None else at_most - 1

    def run(self, edits: int) -> None:
        for _ in range(edits):
            at = self.rng.randrange(self.count)
            edit(self.replicas[at], self.rng, self.unicode)
            self.deliver(self.rng.randrange(self.count), self.rng.randrange(4))
        for number in range(self.count):
            self.deliver(number)


def edit(doc: EngineDocument, rng: random.Random, unicode: bool = True) -> None:
    """Make one random edit in a text, a map, an array or something nested."""
    text, table, rows = doc.root("text", "text"), doc.root("map", "map"), doc.root("rows", "array")
    match rng.randrange(8):
        case 0 | 1 | 2:
            text.insert(rng.randrange(len(text) + 1), rng.choice(LETTERS) if unicode else rng.choice("abc"))
        case 3 if len(text):
            start = rng.randrange(len(text))
            text.delete(start, min(len(text), start + rng.randrange(1, 4)))
        case 4:
            value: Any = rng.choice([1, 2.5, "s", b"b", None, True, [1, {"q": 2}], 2**60, Prelim("text", "né")])
            table.set(rng.choice("xyz"), value)
        case 5:
            row = rng.choice([1, "x", Prelim("map", {"k": 1, "t": Prelim("text", "😀")})])
            rows.insert(rng.randrange(len(rows) + 1), [row])
        case 6 if len(rows):
            start = rng.randrange(len(rows))
            rows.delete(start, start + 1)
        case _:
            for key in table.keys():  # noqa: SIM118
                nested: Any = table.get(key)
                if getattr(nested, "kind", None) == "text":
                    nested.insert(rng.randrange(len(nested) + 1), rng.choice(LETTERS))
                    break
