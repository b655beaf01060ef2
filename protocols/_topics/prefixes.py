"""Set of up to millions of byte prefixes, and the messages that begin with one of them.

Three structures, each for what it is fastest at:

    few     up to 64 members         a tuple for ``startswith``, which compares 3 ns each
    wide    groups of most members   a set each: the message is cut to where such a member would end, and looked up
    trie    all others               PrefixTrie: bounded, whatever the members are

A group has members of one length, or members that end with the same separator and have it as often, as
``orders.17.`` and ``weather.oslo.`` do: of each message only one beginning can be in it.

The cost of a message depends on the kinds of the members and not on their number, but for the time that memory takes:
a lookup in a set of a million waits for two cache lines. An addition or removal touches one structure.

Which groups are wide is reviewed when the number of members has doubled or halved. They then move in small steps, a
few members with each later change, so that no change has to wait for all. Each operation can be interrupted at any
point and repeated: groups change last, and until a group has moved, its members are looked for at both places.

Pure: may not know sockets, threads, clocks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

from nngkit.protocols._topics.prefix_trie import PrefixTrie

FEW: Final = 64  # beyond, a message that matches none takes longer here than in the trie
MOST_WIDE: Final = 3  # each costs a cut and a lookup; beyond, the trie is faster
WIDE_PART: Final = 7 / 8  # of all members; with fewer, most messages that match none would go on to the trie
LEAST_PART: Final = 1 / 32  # of all members, for a group to have a set: less is quick to find in the trie
LONGEST_WIDE: Final = 256  # bytes of members that are cut from each message and hashed
MOST_TOKENS: Final = 16  # separators that are looked for in each message
AT_ONCE: Final = 1024  # members that move together, in 2 ms
STEP: Final = 2  # otherwise members that move with each change; they have moved before the next review

SEPARATORS: Final = frozenset(b"./:|, \0")  # few, as they also end binary prefixes, which are better grouped by length

Kind = tuple[int, int]  # separator and how often, or BY_LENGTH and the length
BY_LENGTH: Final = -1


def _kind(prefix: bytes) -> Kind:
    if prefix and (last := prefix[-1]) in SEPARATORS:
        return last, prefix.count(last)
    return BY_LENGTH, len(prefix)


ALL: Final = _kind(b"")


class _Group:
    """Members of one kind. ``lengths`` counts them by length, ``longest`` bounds it.

    An interruption leaves them too high, never too low.
    """

    __slots__ = ("kind", "lengths", "longest", "members", "number", "separator")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        separator, self.number = kind
        self.separator = b"" if separator == BY_LENGTH else bytes([separator])
        self.members: set[bytes] = set()
        self.lengths: dict[int, int] = {}
        self.longest = 0

    def add(self, prefix: bytes) -> None:
        length = len(prefix)
        self.lengths[length] = self.lengths.get(length, 0) + 1
        self.longest = max(self.longest, length)
        self.members.add(prefix)

    def discard(self, prefix: bytes) -> None:
        length = len(prefix)
        self.members.discard(prefix)
        self.lengths[length] -= 1
        if not self.lengths[length]:
            del self.lengths[length]

    def beginning(self, message: bytes) -> bytes:
        """Return the only beginning of the message that can be a member."""
        if len(self.lengths) == 1:
            return message[: next(iter(self.lengths))]
        head = message[: self.longest]
        parts = head.split(self.separator, self.number)
        return head[: len(head) - len(parts[-1])]  # of another kind, if there are fewer separators

    def select(self, messages: Sequence[bytes]) -> list[bytes]:
        """Return the messages that begin with a member."""
        members, longest = self.members, self.longest
        if len(self.lengths) == 1:
            (length,) = self.lengths
            return [message for message in messages if message[:length] in members]
        separator, number = self.separator, self.number
        return [
            message
            for message in messages
            if (head := message[:longest])[: len(head) - len(head.split(separator, number)[-1])] in members
        ]


class _Move:
    """Prefixes being moved between a group's set and the trie."""

    def __init__(self, group: _Group, *, joins: bool) -> None:
        self.group = group
        self.members = list(group.members)
        self.joins = joins


class Prefixes:
    """Set of byte prefixes. ``b""`` is the prefix of everything."""

    def __init__(self) -> None:
        self._groups: dict[Kind, _Group] = {}
        self._wide: tuple[_Group, ...] = ()  # the largest first
        self._few: tuple[bytes, ...] = ()
        # `_few` as it was, its lengths, the longest first, and its members
        self._by_length: tuple[tuple[bytes, ...], tuple[int, ...], frozenset[bytes]] = ((), (), frozenset())
        self._trie: PrefixTrie | None = None
        self._searched: set[Kind] = set()  # of groups that may have members in `_few` or `_trie`
        self._moves: list[_Move] = []
        self._count = self._reviewed = 0

    def __len__(self) -> int:
        return sum(len(group.members) for group in self._groups.values())

    def __contains__(self, prefix: bytes) -> bool:
        group = self._groups.get(_kind(prefix))
        return group is not None and prefix in group.members

    @property
    def everything(self) -> bool:
        """True if every message matches."""
        return ALL in self._groups

    def members(self) -> list[bytes]:
        """Return the members, the longest first, then by their bytes. Any thread may call it."""
        by_length: dict[int, list[bytes]] = {}
        for group in list(self._groups.values()):
            for member in group.members.copy():
                by_length.setdefault(len(member), []).append(member)
        return [member for length in sorted(by_length, reverse=True) for member in sorted(by_length[length])]

    # ------------------------------------------------------------------ searching

    def match(self, message: bytes) -> bool:
        """Return True if the message begins with a member."""
        for group in self._wide:
            if group.beginning(message) in group.members:
                return True
        if self._trie is not None:
            return self._trie.match(message) or self.everything
        return message.startswith(self._few) or self.everything

    def select(self, messages: Sequence[bytes]) -> Sequence[bytes]:
        """Return the messages that begin with a member."""
        if ALL in self._groups:
            return messages
        wide, few = self._wide, self._few
        if self._trie is None:
            if not wide:
                return [message for message in messages if message.startswith(few)]
            if len(wide) == 1 and not few:
                return wide[0].select(messages)
        elif not wide:
            match = self._trie.match
            return [message for message in messages if match(message)]
        match = self.match
        return [message for message in messages if match(message)]

    def longest(self, message: bytes) -> bytes | None:
        """Return the longest member that the message begins with; None if there is none."""
        best: bytes | None = b"" if self.everything else None
        found = self._longest_of_few(message) if self._trie is None else self._trie.longest(message)
        if found is not None:
            best = found
        for group in self._wide:
            beginning = group.beginning(message)
            if beginning in group.members and (best is None or len(beginning) > len(best)):
                best = beginning
        return best

    def _longest_of_few(self, message: bytes) -> bytes | None:
        few, lengths, members = self._by_length
        if few is not self._few:
            few = self._few
            lengths, members = tuple(sorted({len(each) for each in few}, reverse=True)), frozenset(few)
            self._by_length = few, lengths, members
        for length in lengths:
            if (beginning := message[:length]) in members:
                return beginning
        return None

    # ------------------------------------------------------------------ changing

    def add(self, prefix: bytes) -> bool:
        """Add a member; return False if it was one."""
        kind = _kind(prefix)
        group = self._groups.get(kind)
        if group is None:
            group = _Group(kind)
        elif prefix in group.members:
            return False
        if (kind != ALL and group not in self._wide) or (self._moves and self._joins(group)):
            self._searched.add(kind)
            self._search_for(prefix)
        group.add(prefix)
        self._groups[kind] = group
        self._count += 1
        if self._moves or self._count > 2 * max(self._reviewed, FEW // 2):
            self._settle()
        return True

    def remove(self, prefix: bytes) -> bool:
        """Remove a member; return False if it was none."""
        kind = _kind(prefix)
        group = self._groups.get(kind)
        if group is None or prefix not in group.members:
            return False
        if kind in self._searched:
            self._search_no_more(prefix)
        group.discard(prefix)
        self._count -= 1
        if not group.members and group not in self._wide:
            self._forget(group)
        if self._moves or 2 * self._count < self._reviewed:
            self._settle()
        return True

    def _forget(self, group: _Group) -> None:
        self._groups.pop(group.kind, None)
        self._searched.discard(group.kind)

    def _search_for(self, prefix: bytes) -> None:
        if self._trie is not None:
            self._trie.add(prefix)
        elif prefix not in self._few:
            if len(self._few) < FEW:
                self._few = (*self._few, prefix)
            else:
                self._trie = PrefixTrie((*self._few, prefix))
                self._few = ()

    def _search_no_more(self, prefix: bytes) -> None:
        if self._trie is not None:
            self._trie.discard(prefix)
        else:
            self._few = tuple(each for each in self._few if each != prefix)

    # ------------------------------------------------------------------ which groups are wide

    def _settle(self) -> None:
        """Move some members, or review which groups are wide."""
        if not self._moves:
            self._review()
        left = AT_ONCE if sum(len(move.members) for move in self._moves) <= AT_ONCE else STEP
        while self._moves and left > 0:
            move = self._moves[-1]
            while move.members and left > 0:
                self._move(move, move.members[-1])
                del move.members[-1]
                left -= 1
            if not move.members:
                self._moved(move)
                self._moves.pop()
        if not self._moves and self._trie is not None and len(self._trie) <= FEW // 2:
            self._search_few()

    def _review(self) -> None:
        self._count = self._reviewed = len(self)
        was, will = self._wide, self._widest()
        moves = [_Move(group, joins=True) for group in was if group not in will]
        moves += [_Move(group, joins=False) for group in will if group not in was]
        self._searched.update(move.group.kind for move in moves)
        self._set_wide({*was, *will})
        self._moves = moves

    def _widest(self) -> list[_Group]:
        """Return the few groups that have nearly all members; none if there are not."""
        if self._count <= FEW // 2:
            return []
        able = (
            group
            for kind, group in self._groups.items()
            if kind != ALL and group.longest <= LONGEST_WIDE and (kind[0] == BY_LENGTH or kind[1] <= MOST_TOKENS)
        )
        first = heapq.nlargest(MOST_WIDE, able, key=lambda group: len(group.members))
        if sum(len(group.members) for group in first) < self._count * WIDE_PART:
            return []
        return [group for group in first if len(group.members) >= self._count * LEAST_PART]

    def _set_wide(self, groups: Iterable[_Group]) -> None:
        self._wide = tuple(sorted(groups, key=lambda group: -len(group.members)))  # most messages match the first

    def _joins(self, group: _Group) -> bool:
        return any(move.joins and move.group is group for move in self._moves)

    def _move(self, move: _Move, member: bytes) -> None:
        if not move.joins:
            self._search_no_more(member)
        elif member in move.group.members:
            self._search_for(member)

    def _moved(self, move: _Move) -> None:
        if not move.joins:
            self._searched.discard(move.group.kind)
            return
        self._set_wide([group for group in self._wide if group is not move.group])
        if not move.group.members:
            self._forget(move.group)

    def _search_few(self) -> None:
        """Replace the trie, if a tuple does."""
        few = [member for kind in self._searched if kind in self._groups for member in self._groups[kind].members]
        if len(few) <= FEW:
            self._few = tuple(few)
            self._trie = None
