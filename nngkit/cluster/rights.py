"""Names and rights of the nodes of a cluster, where connections prove names. Pure.

The decisions come from a `Judge`, as nngkit.trust.Rights is one; here is what is asked for, of which name:

================================  =============================================================================
id in a greeting                  the connection's name: that, or an instance of it
link of the tree                  the connection's name: `join` or `vote` on the cluster; checked at both ends
link between voters               the connection's name: `vote`; at both ends
parent                            the connection's name: `carry` on "cluster:NAME"; the first of its path: `vote`
children                          this node's name: `carry`, else it takes none; of a child with others below: too
frame of another node             that node is below the link, or the frame comes from above
submission, job, result           the name in the id of the frame's sender, or of the worker: `submit`, `work`
answers, grants, orders           the name in the sender's id: `vote`
================================  =============================================================================

A node of this machine without a pass is named "@local" or "@uid.N": it may call itself anything if that name may carry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

BINDING: Final = "binding: "  # the codes, as the texts for peers begin
RIGHT: Final = "right: "


class Judge(Protocol):
    """Decides, and counts what it refuses; `grants` and `holds` count nothing. See nngkit.trust.Rights."""

    @property
    def refusals(self) -> Mapping[str, int]:
        """Refusals by code."""

    @property
    def policy(self) -> object:
        """Another object after each change."""

    def greets(self, who: str | None, said: str) -> bool:
        """Return True if the peer may call itself so."""

    def misspeaks(self, who: str | None, said: str) -> None:
        """Count that the peer spoke in a name that it may not use."""

    def may(self, who: str | None, right: str, target: str) -> bool:
        """Return True if a name has a right."""

    def grants(self, who: str | None, right: str, target: str) -> bool:
        """Return what `may` does."""

    def holds(self, who: str, right: str) -> bool:
        """Return True if a name has a right on anything."""


def name_of(id: str) -> str:
    """Return the name in the id of a node."""
    return id.partition(":")[0]


class NodeRights:
    """Rights in one cluster, for the node `id`."""

    def __init__(self, judge: Judge, cluster: str, id: str) -> None:
        self.judge = judge
        self._cluster, self._carry = cluster, f"cluster:{cluster}"
        self._own = name_of(id)

    def greeted(self, who: str | None, id: str, *, voter: bool) -> str | None:
        """Return why a neighbour is refused; None if it is not."""
        judge, cluster = self.judge, self._cluster
        if not judge.greets(who, id):
            return f"{BINDING}{who} may not call itself {id!r}"
        if judge.grants(who, "vote", cluster) or (not voter and judge.grants(who, "join", cluster)):
            return None
        right = "vote" if voter else "join"
        judge.may(who, right, cluster)
        return f"{RIGHT}{who} may not {right} {cluster}"

    def unfit_parent(self, who: str | None, id: str, path: Sequence[str]) -> str | None:
        """Return why a node with this path may not be the parent; None if it may."""
        judge, cluster = self.judge, self._cluster
        if not path:
            return None
        if path[-1] != id:
            judge.misspeaks(who, path[-1])
            return f"{BINDING}{who} may not speak as {path[-1]!r}"
        if not judge.may(who, "carry", self._carry):
            return f"{RIGHT}{who} may not carry {self._carry}"
        root = who if len(path) == 1 else name_of(path[0])
        return None if judge.may(root, "vote", cluster) else f"{RIGHT}{root} may not vote {cluster}: it is no host"

    def may_carry(self, who: str | None) -> bool:
        """Return True if a neighbour may have others below it."""
        return self.judge.grants(who, "carry", self._carry)

    @property
    def takes_children(self) -> bool:
        """True if this node may have children: by its pass, or where it shows none."""
        return any(self.judge.grants(name, "carry", self._carry) for name in (self._own, "@local"))

    def brings(self, who: str | None) -> bool:
        """Return True if a child may bring others with it."""
        return self.judge.may(who, "carry", self._carry)

    def may_submit(self, id: str, kind: str) -> bool:
        """Return True if a node may submit jobs of a kind."""
        return self.judge.may(name_of(id), "submit", f"{self._cluster}/{kind}")

    def refused_job(self, id: str, kind: str) -> str:
        """Return what the submitter of a refused job is told."""
        return f"{RIGHT}{name_of(id)} may not submit {self._cluster}/{kind}"

    def may_work(self, id: str, kind: str) -> bool:
        """Return True if a node may do jobs of a kind. A refusal is counted."""
        return self.judge.may(name_of(id), "work", f"{self._cluster}/{kind}")

    def works_on(self, id: str, kind: str) -> bool:
        """Return what `may_work` does; nothing is counted."""
        return self.judge.grants(name_of(id), "work", f"{self._cluster}/{kind}")

    def works(self, id: str) -> bool:
        """Return True if a node may do any jobs."""
        return self.judge.holds(name_of(id), "work")

    def may_host(self, id: str) -> bool:
        """Return True if a node may be host, whose answers and orders count."""
        return self.judge.may(name_of(id), "vote", self._cluster)
