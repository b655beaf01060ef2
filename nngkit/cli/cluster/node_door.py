"""`--http` of `nngkit host` and `nngkit join`: the node, and what the host of its cluster tells of it.

::

    /v1/node       this node, and its place in the tree
    /v1/cluster    the cluster: its host and term, whether that grants work, counters
    /v1/members    the nodes in their tree
    /v1/voters     the configured voters, and whether the host reaches them
    /v1/jobs       jobs by kind: waiting, running, ended

All nodes tell the same of the cluster, since they ask the host: once for all clients that come within a second, and
for the tree, which has up to 100,000 nodes, within TREE seconds. Without a host they answer 503. The status page has
the same answers.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

import trio
from msgspec.structs import asdict

from nngkit.cli import door
from nngkit.cli.streams.output import picked
from nngkit.errors import NngkitError
from nngkit.web.door import Route, Rows, Value
from nngkit.web.status import Section
from nngkit.web.status.sections import poll

if TYPE_CHECKING:
    from nngkit.cluster import Endpoint
    from nngkit.cluster.status import ClusterStatus, ClusterTree
    from nngkit.telemetry.metrics import Watchable

T = TypeVar("T")

STATUS: Final = 1.0  # seconds for which the host's answer is kept
TREE: Final = 5.0  # seconds for which the tree is
PATIENCE: Final = 2.0  # seconds for the host to answer

CLUSTER: Final = "cluster host term grants members depth counters refused"


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node and its place: ids of its host, its parent, the nodes from the host to it, and its children."""

    id: str
    cluster: str
    role: Literal["host", "member", "joining"]
    term: int
    host: str | None
    parent: str | None
    path: tuple[str, ...]
    children: tuple[str, ...]
    members: int
    depth: int
    busy: int
    refused: dict[str, int]


def opened(
    name: str, arguments: argparse.Namespace, node: Endpoint, watch: Iterable[Watchable] = ()
) -> AbstractAsyncContextManager[None]:
    """Answer at `--http` while the block runs, if it is given. Raises ConfigError, Unreachable; those of the block."""
    status = Answers(partial(node.status, PATIENCE), STATUS)
    tree = Answers(partial(node.tree, PATIENCE), TREE)
    return door.opened(
        name,
        arguments,
        lambda: _routes(node, status, tree),
        watch=[node, *watch],
        ready=lambda: "it has no way to a host" if node.role == "joining" else None,
        sections=lambda: _sections(status, tree),
    )


@dataclass(slots=True, eq=False)
class Answers(Generic[T]):
    """Answers to a question that many ask, each kept for `age` seconds; a failure is one too."""

    ask: Callable[[], Awaitable[T]]
    age: float
    _until: float = -math.inf
    _last: T | None = None
    _error: NngkitError | None = None
    _turn: trio.Lock = field(default_factory=trio.Lock)

    async def refresh(self) -> T:
        """Return the answer, after asking if the last one is too old. Raises what the question raises."""
        async with self._turn:
            if trio.current_time() >= self._until:
                self._last = self._error = None
                try:
                    self._last = await self.ask()
                except NngkitError as error:
                    self._error = error
                self._until = trio.current_time() + self.age
        return self.last

    @property
    def last(self) -> T:
        """The answer of the last `refresh`. Raises what that has raised."""
        if self._error is not None:
            raise self._error.with_traceback(None)  # it is raised often, and would grow by a frame each time
        assert self._last is not None
        return self._last


def _sections(status: Answers[ClusterStatus], tree: Answers[ClusterTree]) -> list[Section]:
    async def members() -> dict[str, object]:
        return {each.id: asdict(each) for each in (await tree.refresh()).members}

    async def voters() -> dict[str, object]:
        return {each.id: asdict(each) for each in (await status.refresh()).voters}

    async def jobs() -> dict[str, object]:
        told = (await status.refresh()).jobs
        return {kind: {**asdict(each), "kind": kind} for each in told for kind in [each.kind or "all kinds"]}

    async def cluster() -> dict[str, object]:
        await status.refresh()
        return {"": _cluster(status)}

    return [
        Section({"members": "Nodes of the cluster in their tree."}, partial(poll, members, every=TREE)),
        Section({"cluster": "The cluster, as its host sees it."}, partial(poll, cluster)),
        Section({"voters": "Nodes that may be host."}, partial(poll, voters)),
        Section({"jobs": "Jobs by kind, at the host; ended ones are counted of all kinds."}, partial(poll, jobs)),
    ]


def _cluster(status: Answers[ClusterStatus]) -> dict[str, Any]:
    return picked(status.last, CLUSTER)


def _routes(node: Endpoint, status: Answers[ClusterStatus], tree: Answers[ClusterTree]) -> dict[str, Route]:
    def state() -> dict[str, Any]:
        own = picked(node, "id cluster role term host parent path children refused")
        return dataclasses.asdict(NodeState(**own, **picked(node.stats, "members depth busy")))

    told = door.line_schema("cluster-status")["properties"]
    cluster = {name: told[name] for name in CLUSTER.split()}
    return {
        "v1/node": Value(
            "This node and its place in the cluster; members and depth are those below it.",
            state,
            door.state_schema(NodeState),
        ),
        "v1/cluster": Value(
            "The cluster, as its host sees it.",
            lambda: _cluster(status),
            {"type": "object", "required": list(cluster), "properties": cluster, "additionalProperties": False},
            status.refresh,
        ),
        "v1/members": Rows(
            f"Nodes in their tree, each parent before its children; asked for every {TREE:g} s.",
            lambda: tree.last.members,
            asdict,
            door.line_schema("cluster-tree")["properties"]["members"]["items"],
            tree.refresh,
        ),
        "v1/voters": Rows(
            "Nodes that may be host, and whether the host reaches them.",
            lambda: status.last.voters,
            asdict,
            told["voters"]["items"],
            status.refresh,
        ),
        "v1/jobs": Rows(
            'Jobs by kind, at the host; first those of all kinds (""), of which alone the ended ones are counted.',
            lambda: status.last.jobs,
            asdict,
            told["jobs"]["items"],
            status.refresh,
        ),
    }
