"""Blocking versions of the async classes, for programs without an event loop: `with` instead of `async with`.

::

    from nngkit.blocking import Service, ServiceDiscovery

    with ServiceDiscovery(listen="tcp://127.0.0.1:5555", deadline=0.5) as discovery:
        print(discovery.discover())
        print(discovery.resolve("answer").address)
        for event in discovery.events(): ...

Each class is written from an async class by `python3 dev.py faces`: names, arguments, results, errors and docstrings
are the same. Its methods run under trio in one daemon thread, the portal, which starts with the first object and ends
with the process, when open objects are closed in order (a Service says goodbye).

Any thread may call. Ctrl-C ends a wait and cancels the call, as in trio. In a thread started by an asyncio loop
(`asyncio.to_thread`), a wait raises Closed when that loop ends (loop_waits.py). After fork() the parent's objects raise
Forked in the child, and new ones need a new process (docs/protocols.md).

Names are imported lazily: a program that only calls loads neither documents nor clusters.
"""

from nngkit.lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.blocking._base import Blocking as Blocking
    from nngkit.blocking.calls import Client, Server
    from nngkit.blocking.cluster import Host, Member
    from nngkit.blocking.discovery import Daemon, DaemonClient, Resolver, Service, ServiceDiscovery
    from nngkit.blocking.documents import Document, DocumentPeer
    from nngkit.blocking.fanout import Consumer, ConsumerServer, Following, Mesh, Outbox, Publisher, Subscriber
    from nngkit.blocking.journal import Recorder
    from nngkit.blocking.recording import DocumentRecorder
    from nngkit.fanout.numbered.lag import Heartbeat
    from nngkit.protocols import Pattern

__all__ = [
    "Client",
    "Consumer",
    "ConsumerServer",
    "Daemon",
    "DaemonClient",
    "Document",
    "DocumentPeer",
    "DocumentRecorder",
    "Following",
    "Heartbeat",
    "Host",
    "Member",
    "Mesh",
    "Outbox",
    "Pattern",
    "Publisher",
    "Recorder",
    "Resolver",
    "Server",
    "Service",
    "ServiceDiscovery",
    "Subscriber",
]

if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "_base": "Blocking",
            "calls": "Client Server",
            "cluster": "Host Member",
            "discovery": "Daemon DaemonClient Resolver Service ServiceDiscovery",
            "documents": "Document DocumentPeer",
            "fanout": "Consumer ConsumerServer Following Mesh Outbox Publisher Subscriber",
            "journal": "Recorder",
            "recording": "DocumentRecorder",
            "nngkit.fanout.numbered.lag": "Heartbeat",
            "nngkit.protocols": "Pattern",
        },
    )
