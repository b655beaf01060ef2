"""Set of up to millions of byte prefixes, and the messages that begin with one of them.

Three structures, each for what it is fastest at:

    few     up to 64 members               a tuple for ``startswith``, which compares 3 ns each
    wide    lengths that most members have a set each: one slice and one lookup
    trie    all others                     PrefixTrie: bounded, whatever the lengths are

The cost of a message depends on the lengths of the members and not on their number, but for the time that memory
takes: a lookup in a set of a million waits for two cache lines. An addition or removal touches one structure.

Which lengths are wide is reviewed when the number of members has doubled or halved. They then move in small steps, a
few members with each later change, so that no change has to wait for all. Each operation can be interrupted at any
point and repeated: ``_members`` changes last, and until a length has moved, its members are looked for at both places.

Pure: may not know sockets, threads, clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ._prefix_trie import PrefixTrie

__all__ = ["Prefixes"]

FEW: Final = 64  # beyond, a message that matches none takes longer here than in the trie
MOST_WIDE: Final = 3  # each costs a slice and a lookup; beyond, the trie is faster
WIDE_PART: Final = 7 / 8  # of all members; with fewer, most messages that match none would go on to the trie
LEAST_PART: Final = 1 / 32  # of all members, for a length to have a set: less is quick to find in the trie
LONGEST_WIDE: Final = 256  # bytes that are copied and hashed for each message
AT_ONCE: Final = 1024  # members that move together, in 2 ms
STEP: Final = 2  # otherwise members that move with each change; they have moved before the next review


class _Move:
    """Members of one length on their way into the trie, or out of it once their length is wide."""

    def __init__(self, length: int, members: Iterable[bytes], *, joins: bool) -> None:
        self.length = length
        self.members = list(members)
        self.joins = joins


class Prefixes:
    """Set of byte prefixes. ``b""`` is the prefix of everything."""

    def __init__(self) -> None:
        self._members: dict[int, set[bytes]] = {}  # by length
        self._wide: tuple[tuple[int, set[bytes]], ...] = ()  # the largest first; the sets of `_members`
        self._few: tuple[bytes, ...] = ()
        self._trie: PrefixTrie | None = None
        self._searched: set[int] = set()  # lengths that may have members in `_few` or `_trie`
        self._moves: list[_Move] = []
        self._count = self._reviewed = 0

    def __len__(self) -> int:
        return sum(map(len, self._members.values()))

    def __contains__(self, prefix: bytes) -> bool:
        return prefix in self._members.get(len(prefix), ())

    @property
    def everything(self) -> bool:
        """True if every message matches."""
        return bool(self._members.get(0))

    def members(self) -> list[bytes]:
        """Return the members, the longest first, then by their bytes."""
        lengths = sorted(self._members, reverse=True)
        return [member for length in lengths for member in sorted(self._members.get(length, ()))]

    # ------------------------------------------------------------------ searching

    def match(self, message: bytes) -> bool:
        """Return True if the message begins with a member."""
        for length, members in self._wide:
            if message[:length] in members:
                return True
        if self._trie is not None:
            return self._trie.match(message) or self.everything
        return message.startswith(self._few) or self.everything

    def select(self, messages: Sequence[bytes]) -> Sequence[bytes]:
        """Return the messages that begin with a member."""
        if self.everything:
            return messages
        wide, few = self._wide, self._few
        if self._trie is None:
            if not wide:
                return [message for message in messages if message.startswith(few)]
            if len(wide) == 1:
                ((size, members),) = wide
                if not few:
                    return [message for message in messages if message[:size] in members]
                return [message for message in messages if message[:size] in members or message.startswith(few)]
        elif not wide:
            match = self._trie.match
            return [message for message in messages if match(message)]
        match = self.match
        return [message for message in messages if match(message)]

    def longest(self, message: bytes) -> bytes | None:
        """Return the longest member that the message begins with; None if there is none."""
        best: bytes | None = b"" if self.everything else None
        if self._trie is not None:
            found = self._trie.longest(message)
        else:
            found = max((each for each in self._few if message.startswith(each)), key=len, default=None)
        if found is not None:
            best = found
        for length, members in self._wide:
            if (best is None or length > len(best)) and (head := message[:length]) in members:
                best = head
        return best

    # ------------------------------------------------------------------ changing

    def add(self, prefix: bytes) -> bool:
        """Add a member; return False if it was one."""
        length = len(prefix)
        members = self._members.get(length)
        if members is None:
            members = self._members.setdefault(length, set())
        elif prefix in members:
            return False
        if (length and not self._is_wide(length)) or self._joins(length):
            self._searched.add(length)
            self._search_for(prefix)
        members.add(prefix)
        self._count += 1
        if self._moves or self._count > 2 * max(self._reviewed, FEW // 2):
            self._settle()
        return True

    def remove(self, prefix: bytes) -> bool:
        """Remove a member; return False if it was none."""
        length = len(prefix)
        members = self._members.get(length)
        if members is None or prefix not in members:
            return False
        if length in self._searched:
            self._search_no_more(prefix)
        members.discard(prefix)
        self._count -= 1
        if not members and not self._is_wide(length):
            self._members.pop(length, None)
            self._searched.discard(length)
        if self._moves or 2 * self._count < self._reviewed:
            self._settle()
        return True

    def _is_wide(self, length: int) -> bool:
        return any(each == length for each, _ in self._wide)

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

    # ------------------------------------------------------------------ which lengths are wide

    def _settle(self) -> None:
        """Move some members, or review which lengths are wide."""
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
        was = [length for length, _ in self._wide]
        will = self._widest()
        wide = {*was, *will}
        moves = [_Move(length, self._members[length], joins=True) for length in was if length not in will]
        moves += [_Move(length, self._members[length], joins=False) for length in will if length not in was]
        self._searched.update(move.length for move in moves)
        self._set_wide(wide)
        self._moves = moves

    def _widest(self) -> list[int]:
        """Return the few lengths that nearly all members have; none if there are not."""
        if self._count <= FEW // 2:
            return []
        sizes = sorted(
            ((len(members), length) for length, members in self._members.items() if 0 < length <= LONGEST_WIDE),
            reverse=True,
        )
        first = sizes[:MOST_WIDE]
        if sum(size for size, _ in first) < self._count * WIDE_PART:
            return []
        return [length for size, length in first if size >= self._count * LEAST_PART]

    def _set_wide(self, lengths: Iterable[int]) -> None:
        wide = [(length, self._members[length]) for length in lengths]
        self._wide = tuple(sorted(wide, key=lambda each: -len(each[1])))  # most messages are found at the first try

    def _joins(self, length: int) -> bool:
        return any(move.joins and move.length == length for move in self._moves)

    def _move(self, move: _Move, member: bytes) -> None:
        if not move.joins:
            self._search_no_more(member)
        elif member in self._members[move.length]:
            self._search_for(member)

    def _moved(self, move: _Move) -> None:
        if not move.joins:
            self._searched.discard(move.length)
            return
        self._set_wide([length for length, _ in self._wide if length != move.length])
        if not self._members[move.length]:
            del self._members[move.length]
            self._searched.discard(move.length)

    def _search_few(self) -> None:
        """Replace the trie, if a tuple does."""
        few = [member for length in self._searched for member in self._members.get(length, ())]
        if len(few) <= FEW:
            self._few = tuple(few)
            self._trie = None
