"""Members below one node: claims of its children, routes, and changes for its parent. Pure.

Each child link claims a set of members: those of its subtree. A member is claimed twice while it moves, until the news
of its old place has gone up; the claim with the highest (epoch, move) counts, and of equal ones (a node that moved with
the head of its subtree) the latest. A claim ends only by its own link, so late news of an old place ends nothing else.

Invariants:

1. After a link's messages have arrived, its claims are the members that the child counts below itself, and the child.
2. A member is known exactly as long as a link claims it; `route` is the link of the claim that counts.
3. `news` returns each difference between what the parent was told and what is known, once.
4. At most `most` members are claimed by one link; others are counted in `refused`.
"""

from __future__ import annotations

from collections.abc import Iterator

from nngkit.cluster.tree.messages import MOST_ROWS, Member, Members
from nngkit.cluster.tree.shape import Branch


class _Claims:
    """Members claimed by one link, and their totals."""

    __slots__ = ("fanout", "hosts", "members")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.hosts = self.fanout = 0

    def put(self, member: Member) -> None:
        self.discard(member.id)
        self.members[member.id] = member
        self.hosts += member.fanout > 0
        self.fanout += member.fanout

    def discard(self, id: str) -> None:
        member = self.members.pop(id, None)
        if member is not None:
            self.hosts -= member.fanout > 0
            self.fanout -= member.fanout


class MemberTable:
    """Claims by link, and the members that follow from them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._links: dict[int, _Claims] = {}
        self._known: dict[str, tuple[int, Member]] = {}
        self._told: dict[str, Member] = {}
        self._dirty: dict[str, None] = {}  # in order of the changes
        self._changed: dict[str, Member | None] = {}  # changes for the program: what was known before
        self.double: dict[str, None] = {}  # ids that two links claim at different epochs
        self.refused = 0

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, id: str) -> bool:
        return id in self._known

    def __iter__(self) -> Iterator[Member]:
        return (member for _, member in self._known.values())

    @property
    def waiting(self) -> bool:
        """True if there may be news for the parent."""
        return bool(self._dirty)

    def get(self, id: str) -> Member | None:
        """Return the member of this id, or None."""
        known = self._known.get(id)
        return known[1] if known else None

    def route(self, id: str) -> int | None:
        """Return the link below which the member is, or None."""
        known = self._known.get(id)
        return known[0] if known else None

    def claims(self, id: str) -> list[tuple[int, Member]]:
        """Return the links that claim the member, with their claims."""
        return [(link, found) for link, each in self._links.items() if (found := each.members.get(id)) is not None]

    def below(self, link: int, id: str) -> bool:
        """Return True if the link claims the member."""
        claims = self._links.get(link)
        return claims is not None and id in claims.members

    def branch(self, link: int) -> Branch:
        """Return the totals of a child's subtree."""
        claims = self._links.get(link)
        if claims is None:
            return Branch(0, 0, 0)
        size = len(claims.members)
        return Branch(claims.hosts, size - claims.hosts, max(0, claims.fanout - size + 1))

    def add(self, link: int, member: Member) -> None:
        """Add or replace a claim of a link."""
        claims = self._links.setdefault(link, _Claims())
        if len(claims.members) >= self._most and member.id not in claims.members:
            self.refused += 1
            return
        claims.put(member)
        known = self._known.get(member.id)
        if known is None or known[0] == link:
            self._choose(member.id, link)
        else:
            if known[1].epoch != member.epoch:
                self.double[member.id] = None
            if (member.epoch, member.move) >= (known[1].epoch, known[1].move):
                self._set(member.id, link, member)

    def remove(self, link: int, id: str) -> None:
        """Remove a claim of a link."""
        claims = self._links.get(link)
        if claims is not None and id in claims.members:
            claims.discard(id)
            known = self._known.get(id)
            if known is not None and known[0] == link:
                self._choose(id, link)

    def drop(self, link: int) -> None:
        """Remove all claims of a link."""
        for gone in list(self._links[link].members) if link in self._links else ():
            self.remove(link, gone)
        self._links.pop(link, None)

    def _choose(self, id: str, latest: int) -> None:
        """Find the claim that counts, after a change of the claim of `latest`."""
        best: tuple[int, Member] | None = None
        for link, member in self.claims(id):
            order = (member.epoch, member.move, link == latest)
            if best is None or order > (best[1].epoch, best[1].move, best[0] == latest):
                best = link, member
        if best is not None:
            self._set(id, *best)
            return
        known = self._known.pop(id, None)
        if known is not None:
            self._changed.setdefault(id, known[1])
            if id in self._told:
                self._dirty[id] = None
            else:  # a root has no parent to tell: members that come and go would stay here
                self._dirty.pop(id, None)

    def _set(self, id: str, link: int, member: Member) -> None:
        known = self._known.get(id)
        self._known[id] = link, member
        if known is None or known[1] != member:
            self._changed.setdefault(id, known[1] if known else None)
            self._dirty[id] = None

    def changes(self) -> list[tuple[Member | None, Member | None]]:
        """Return the members that have changed since the last call: before and now; None: not a member."""
        changed, self._changed = self._changed, {}
        pairs = [(before, self.get(each)) for each, before in changed.items()]
        return [(before, now) for before, now in pairs if before != now]

    def forget_told(self) -> None:
        """Begin anew with a parent that knows nothing."""
        self._told = {}
        self._dirty = dict.fromkeys(self._known)

    def news(self) -> list[Members]:
        """Return the messages that bring the parent up to date."""
        added: list[Member] = []
        removed: list[str] = []
        for each in self._dirty:
            member, told = self.get(each), self._told.get(each)
            if member is None:
                if told is not None:
                    del self._told[each]
                    removed.append(each)
            elif member != told:
                self._told[each] = member
                added.append(member)
        self._dirty = {}
        messages = [Members((), tuple(removed[at : at + MOST_ROWS])) for at in range(0, len(removed), MOST_ROWS)]
        messages += [Members(tuple(added[at : at + MOST_ROWS]), ()) for at in range(0, len(added), MOST_ROWS)]
        return messages
