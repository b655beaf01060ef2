"""Classes under trio that have faces in nngkit.aio and nngkit.blocking, and what differs there from the rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Face:
    """A class. Names of several methods or parameters are separated by spaces.

    of            path of the class under trio
    anywhere      plain methods that any thread may call
    hidden        public methods and properties that are for programs in the loop only
    inside        properties that are read in the portal's thread
    objects       parameters of the constructor that may be objects of the same package, with their types
    callbacks     parameters that are functions, which under asyncio may be coroutine functions
    handlers      parameters that are handlers: as callbacks, but plain ones run in worker threads
    middleware    parameters that are middleware
    bridge        under asyncio, what calls the middleware among the options
    repeated      methods that iterate over the results of another method
    attributes    attributes that can be read before and after the block: (type, docstring)
    notes         paragraphs for the class's docstring, by package, or "both"
    bases         hand-written bases, by package; methods that they define are not written
    within        the face of the same family that it is derived from
    variable      its type variable, for one that others are derived from
    handle        not opened itself: another object returns it, and gives it its way to the portal ("calls"), or itself
    aio, blocking             calls in place of the rule's
    """

    of: str
    anywhere: str = ""
    hidden: str = ""
    within: str = ""
    inside: str = ""
    objects: dict[str, str] = field(default_factory=dict)
    callbacks: str = ""
    handlers: str = ""
    middleware: str = ""
    bridge: str = ""
    repeated: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, tuple[str, str]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    bases: dict[str, str] = field(default_factory=dict)
    handle: Literal["", "calls", "owner"] = ""
    public: bool = True
    variable: str = ""
    aio: dict[str, str] = field(default_factory=dict)
    blocking: dict[str, str] = field(default_factory=dict)
    aio_returns: dict[str, str] = field(default_factory=dict)
    blocking_returns: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.of.rpartition(".")[2]

    def calls(self, kind: str) -> dict[str, str]:
        return self.aio if kind == "aio" else self.blocking

    def returns(self, kind: str) -> dict[str, str]:
        return self.aio_returns if kind == "aio" else self.blocking_returns


@dataclass(frozen=True)
class Family:
    """A module of each package."""

    name: str
    title: str
    faces: tuple[Face, ...]
    variables: str = ""


DOCUMENTS = {
    "open": "self._for_program(Document, self._do({method}, {arguments}))",
    "documents": "self._all(Document, self._do(lambda inner: inner.documents))",
}

PARTS = {
    "text": "typing.cast(nngkit.documents.threads.Text, self._wrap(self._do({method}, {arguments})))",
    "map": "typing.cast(nngkit.documents.threads.Map, self._wrap(self._do({method}, {arguments})))",
    "array": "typing.cast(nngkit.documents.threads.Array, self._wrap(self._do({method}, {arguments})))",
    "changes": "self._iterate(self._told, self._do({method}))",
    "at": "Document(self._do({method}, {arguments}), self._owner)",
}
TYPES = {name: f"nngkit.documents.threads.{name.title()}" for name in ("text", "map", "array")}

FAMILIES = (
    Family(
        "discovery",
        "Service discovery",
        (
            Face(
                "nngkit.discovery.service_discovery.ServiceDiscovery",
                anywhere="resolve resolution snapshot view",
                hidden="version answer changes outcomes wait_for_change wake now",
            ),
            Face(
                "nngkit.discovery.service.Service",
                callbacks="on_question",
                notes={"aio": "An async `on_question` is a task of the program's loop."},
            ),
            Face("nngkit.discovery.resolver.Resolver", anywhere="resolve resolution snapshot answers"),
            Face("nngkit.discovery.daemon.Daemon"),
            Face("nngkit.discovery.client.DaemonClient", anywhere="on_connection", hidden="outcomes"),
        ),
    ),
    Family(
        "calls",
        "Calls by name",
        (
            Face(
                "nngkit.calls.client.Client",
                hidden="request_blocking call_blocking codec plain",
                objects={"discovery": "ServiceDiscovery | Resolver | None"},
                notes={
                    "aio": "Calls are made in the program's own loop, with their middleware.",
                    "blocking": "Calls are made in the calling thread; hedged calls and streams in the loop's. A "
                    "middleware runs in the same thread, where it can await nothing but `proceed`; around a stream in "
                    "the loop's.",
                },
                bases={"blocking": "nngkit.blocking._calls.Calling"},
                aio={name: f"self._opened.{name}({{arguments}})" for name in ("request", "call", "stream", "typed")},
                blocking={name: f"self._{name}({{arguments}})" for name in ("request", "call", "stream", "typed")},
                blocking_returns={"stream": "nngkit.blocking._calls.Parts"},
            ),
            Face(
                "nngkit.calls.server.Server",
                callbacks="healthy on_question",
                handlers="handler",
                middleware="middleware",
                notes={
                    "aio": "Async handlers are tasks of the program's loop, and so is a call's middleware.",
                    "blocking": "Handlers are plain functions, which run in worker threads; the middleware runs in the "
                    "background thread.",
                },
                aio={"method": "self._bridge.method(self._inner.method, handler)"},
                blocking={"method": "self._inner.method(handler)"},
            ),
        ),
    ),
    Family(
        "fanout",
        "Fan-out",
        (
            Face(
                "nngkit.fanout.durable.consumer.Consumer",
                repeated={"batches": "receive_batch"},
                notes={"both": "Acknowledge with `ack`, not by a delivery's method."},
            ),
            Face("nngkit.fanout.durable.server.ConsumerServer"),
            Face("nngkit.fanout.numbered.following.Following"),
            Face("nngkit.mesh.mesh.Mesh"),
            Face("nngkit.fanout.outbox.outbox.Outbox"),
            Face("nngkit.fanout.numbered.publisher.Publisher"),
            Face("nngkit.fanout.numbered.subscriber.Subscriber"),
        ),
    ),
    Family(
        "documents",
        "Documents",
        (
            Face(
                "nngkit.documents.document.Document",
                handle="owner",
                hidden="check_writable client_id close merge opened",
                inside="refused",
                bases={"aio": "nngkit.aio._documents.Whole", "blocking": "nngkit.blocking._documents.Whole"},
                aio=PARTS,
                blocking=PARTS,
                aio_returns={**TYPES, "changes": "nngkit.aio._base.AsyncioIterator[nngkit.documents.changes.Change]"},
                blocking_returns={
                    **TYPES,
                    "changes": "nngkit.portal.BlockingIterator[nngkit.documents.changes.Change]",
                },
            ),
            Face(
                "nngkit.documents.peer.DocumentPeer",
                bases={"aio": "nngkit.aio._documents.Opening", "blocking": "nngkit.blocking._documents.Opening"},
                aio=DOCUMENTS,
                blocking=DOCUMENTS,
            ),
        ),
    ),
    Family("journal", "The recorder", (Face("nngkit.journal.recorder.Recorder"),)),
    Family(
        "recording",
        "The recorder of documents",
        (
            Face(
                "nngkit.recording.documents.DocumentRecorder",
                inside="digests peers refusals stats",
                objects={"recorder": "Recorder"},
            ),
        ),
    ),
    Family(
        "cluster",
        "Clusters",
        (
            Face(
                "nngkit.cluster.endpoint.Endpoint",
                public=False,
                variable="E",
                bases={"aio": "nngkit.aio._cluster.Node", "blocking": "nngkit.blocking._cluster.Node"},
                hidden="link_up link_down dial_failed received journal_dropped",
                attributes={
                    "id": ("str", "Id of this node."),
                    "epoch": ("int", "Run of this node: microseconds since 1970 at its start."),
                    "cluster": ("str", "Name of the cluster."),
                },
                aio={
                    "on": "self._bridge.registering(self._inner.on({arguments}))",
                    "on_gap": "self._inner.on_gap(self._in_loop(function))",
                    "on_client_added": "self._inner.on_client_added(self._in_loop(function))",
                    "on_client_removed": "self._inner.on_client_removed(self._in_loop(function))",
                    "work": "self._registering(self._work_bridge.registering(self._inner.work({arguments})))",
                    "submit": "self._submitted(key, {method}, {arguments})",
                    "map": "self._mapped({arguments})",
                    "document": "self._for_program(Document, self._do({method}, {arguments}))",
                    "drain": "self._drained({arguments})",
                },
                aio_returns={"document": "nngkit.aio.documents.Document"},
                blocking={
                    "on": "self._inner.on({arguments})",
                    "on_gap": "self._inner.on_gap(function)",
                    "on_client_added": "self._inner.on_client_added(function)",
                    "on_client_removed": "self._inner.on_client_removed(function)",
                    "work": "self._registering(self._inner.work({arguments}))",
                    "map": "self._mapped({arguments})",
                    "document": "self._for_program(Document, self._do({method}, {arguments}))",
                    "drain": "self._drained({arguments})",
                },
                blocking_returns={"document": "nngkit.blocking.documents.Document"},
                notes={
                    "aio": "Async handlers, work functions and middleware are tasks of the program's loop; so is "
                    "`progress` of `map` called there, and the functions of `on_gap`, `on_client_added` and "
                    "`on_client_removed`. "
                    "Plain handlers and work functions run in worker threads, an authenticator and a shared object in "
                    "the background thread: they must be quick.",
                    "blocking": "Handlers and work functions are plain functions, which run in worker threads; a "
                    "generator yields the parts of a result. The functions of `on_gap`, `on_client_added`, "
                    "`on_client_removed` and `progress`, an authenticator and a shared object are called in the loop's "
                    "thread, and so is middleware: they must be quick.",
                },
            ),
            *(
                Face(
                    f"nngkit.cluster.hosting.{name}",
                    within="Endpoint",
                    objects={"options.journal": ""},
                    bridge="self._work_bridge",
                )
                for name in ("Host", "Member")
            ),
            Face(
                "nngkit.cluster.shell.jobs.Job",
                public=False,
                handle="calls",
                attributes={
                    "id": ("int", "Number of the job in the cluster."),
                    "kind": ("str", "Its kind."),
                    "progress": ("float", "The last progress that its worker has reported, from 0 to 1; 0.0 before."),
                    "lost_parts": ("int", "Parts that were dropped as they were not read."),
                },
                aio={"cancel": "self._calls.later(self._inner.cancel)"},
                blocking={"cancel": "self._calls.later(self._inner.cancel)"},
            ),
            Face(
                "nngkit.cluster.shell.sharing.Shared",
                public=False,
                handle="calls",
                bases={"aio": "nngkit.aio._cluster.Sharing", "blocking": "nngkit.blocking._cluster.Sharing"},
                attributes={
                    "name": ("str", "Name of the object."),
                    "content": ("typing.Any", "The object itself, which only the cluster changes."),
                },
                inside="behind",
                aio={"wait_for_change": "self._next_change()"},
                blocking={"wait_for_change": "self._next_change()"},
                notes={
                    "both": "The object is called in the background thread. `wait_for_change` counts from the last one."
                },
            ),
        ),
        variables='E = typing.TypeVar("E", bound=_endpoint.Endpoint)',
    ),
)
