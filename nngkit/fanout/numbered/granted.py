"""Grants of a policy in fan-out: topics of publishers and subscribers, and the ids of publishers.

::

    publisher   Division: subscribers with equal rights are a class, which gets one filtered burst
    subscriber  Sifting: of a connection it keeps what its name may publish, under ids that are its own

The 8 bytes of a publisher's id are 5 of its pass's name and 3 of the instance, so a subscriber can check them. The
numbers that a class does not get are told as withheld before the next message that it gets, a heartbeat at the latest:
they are no gap. A policy that was read anew divides anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from nngkit.errors import AccessDenied
from nngkit.fanout.numbered.lag import TRAILER_SIZE, has_trailer, number_and_topic, pack_withheld
from nngkit.protocols import Pipe, Topics
from nngkit.trust import Choice, Policy, Rights, Trust

ROOM: Final = "fan-out"
CARRY: Final = "device"
OF_NAME: Final = 5  # bytes of an id that are of the name: two of 1,000 names share them in one of a million realms
OF_INSTANCE: Final = 3
SHOWN: Final = 64  # bytes of a topic that is refused, in the log
MOST_KNOWN: Final = 4096  # connections whose rights are remembered

Match = Callable[[bytes], bool]


def rights_of(trust: Choice | None) -> Rights | None:
    """Return the rights of the room; None without a trust."""
    return Rights(trust, ROOM, carry=CARRY) if isinstance(trust, Trust) else None


def publisher_id(name: str) -> bytes:
    """Return the 8 bytes of a publisher that is known as ``name``, or as an instance of it."""
    own, _, instance = name.partition(":")
    return _digest(own, OF_NAME) + _digest(instance, OF_INSTANCE)


def check_topics(rights: Rights, right: str) -> Callable[[str | None], object]:
    """Return a check of the names of peers: some topic must be granted."""
    return lambda who: rights.require_topics(who, right)


def check_all_topics(rights: Rights, right: str) -> Callable[[str | None], object]:
    """Return a check of the names of peers: all topics must be granted."""
    return lambda who: rights.require(who, right, "")


def check_owner(rights: Rights, publisher: bytes) -> Callable[[str | None], object]:
    """Return a check of the names of peers: the publisher must be theirs."""

    def check(who: str | None) -> None:
        if not speaks(rights, who, publisher):
            raise AccessDenied(f"binding: {who} is not the publisher that it reports for")

    return check


def speaks(rights: Rights, who: str | None, publisher: bytes) -> bool:
    """Return True if a publisher's id is of this name, or the name may carry. A refusal is counted."""
    own = bool(who) and publisher[:OF_NAME] == _digest(who or "", OF_NAME)
    return own or rights.speaks(who, publisher.hex())


def match_of(prefixes: tuple[str, ...]) -> Match | None:
    """Return a function that is True for topics with one of the prefixes; None if all have."""
    if "" in prefixes:
        return None
    topics = Topics()
    for prefix in prefixes:
        topics.add(prefix.encode())
    return topics.match


class Division:
    """Divides the subscribers of a publisher into classes with equal rights: `Pub.divide`."""

    def __init__(self, rights: Rights, publisher: bytes, epoch: int) -> None:
        self._rights = rights
        self._publisher, self._epoch = publisher, epoch
        self._policy: Policy | None = None
        self._joined: Sequence[Any] = ()
        self._classes: dict[tuple[str, ...], tuple[list[Any], Match | None]] = {}
        self._told: dict[tuple[str, ...], int] = {}  # number up to which each class was told

    def __call__(self, messages: Sequence[bytes], joined: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
        """Return the parts of a burst."""
        assert self._rights.trust is not None
        policy, told = self._rights.trust.policy, self._told
        if policy.is_open:
            return ((joined, messages, sum(map(len, messages)), ((setattr, self, "_told", {}),)),)
        if policy is not self._policy and told:
            # a subscriber may be in another class now, which was told of what its own was not
            told = dict.fromkeys(map(self._class_of, joined), min(told.values()))
        if policy is not self._policy or joined != self._joined:
            classes: dict[tuple[str, ...], tuple[list[Any], Match | None]] = {}
            for one in joined:
                prefixes = self._class_of(one)
                if prefixes not in classes:
                    classes[prefixes] = [], match_of(prefixes)
                classes[prefixes][0].append(one)
            self._classes, self._joined, self._policy = classes, joined, policy  # the last one: it may be interrupted
        rows = [(message, *number_and_topic(message)) for message in messages]
        before = rows[0][1] - (rows[0][2] is not None)
        after: dict[tuple[str, ...], int] = {}  # of the classes that are there: others miss what they do not hear
        parts: list[tuple[Any, ...]] = [((), (), 0, ((setattr, self, "_told", after),))]
        for prefixes, (connections, match) in self._classes.items():
            burst, after[prefixes] = self._burst(rows, match, told.get(prefixes, before))
            parts.append((connections, burst, sum(map(len, burst)), ()))
        return parts

    def told(self, who: str | None, number: int) -> int:
        """Return the last of the numbers up to ``number`` that the class of a name was told of."""
        return self._told.get(self._rights.topics(who, "subscribe"), number)

    def _class_of(self, connection: Any) -> tuple[str, ...]:
        return self._rights.topics(connection.pipe.who if connection.pipe else None, "subscribe")

    def _burst(self, rows: Sequence[Any], match: Match | None, told: int) -> tuple[list[bytes], int]:
        burst = []
        for message, number, topic in rows:
            if topic is not None and match is not None and not match(topic):
                continue
            last = number - (topic is not None)
            if told < last:
                burst.append(pack_withheld(self._publisher, self._epoch, told + 1, last))
            told = max(told, number)
            burst.append(message)
        return burst, told


@dataclass(frozen=True, slots=True)
class _Granted:
    policy: Policy
    own: bytes  # of the ids of publishers
    carries: bool
    match: Match | None


class Sifting:
    """Keeps of a connection what its name may publish: `Sub.sift`."""

    def __init__(self, rights: Rights) -> None:
        self._rights = rights
        self._known: dict[int, _Granted] = {}

    def __call__(self, pipe: Pipe, messages: Sequence[bytes]) -> Sequence[bytes]:
        """Return the messages to keep; count the others."""
        assert self._rights.trust is not None
        granted = self._known.get(pipe.id)
        if granted is None or granted.policy is not self._rights.trust.policy:
            granted = self._learn(pipe)
        if granted.carries and granted.match is None:
            return messages
        own, carries, match = granted.own, granted.carries, granted.match
        kept = []
        for message in messages:
            if has_trailer(message):  # others are refused by the accounts
                at = len(message) - TRAILER_SIZE
                if not carries and message[at : at + OF_NAME] != own:
                    speaks(self._rights, pipe.who, message[at : at + OF_NAME + OF_INSTANCE])
                    continue
                if match is not None and (topic := number_and_topic(message)[1]) is not None and not match(topic):
                    self._rights.may(pipe.who, "publish", ascii(topic[:SHOWN].decode(errors="replace"))[1:-1])
                    continue
            kept.append(message)
        return kept

    def _learn(self, pipe: Pipe) -> _Granted:
        trust, who = self._rights.trust, pipe.who
        assert trust is not None
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        policy = trust.policy
        carries = bool(who) and policy.may(who or "", "carry", CARRY)
        match = match_of(self._rights.topics(who, "publish"))
        granted = self._known[pipe.id] = _Granted(policy, _digest(who or "", OF_NAME), carries, match)
        return granted


def _digest(text: str, size: int) -> bytes:
    return blake2b(text.encode(), digest_size=size).digest()
