"""The async classes for asyncio programs: `async with`, `await` and `async for` under asyncio.

::

    from nngkit.aio import Client, Server

    async with Client("answer", daemons=["tcp://daemon:5556"]) as answer:
        async with asyncio.timeout(1.0):
            print(await answer.request(b"?"))

Names, arguments, results, errors and docstrings are those of the classes under trio, from which `python3 dev.py faces`
writes these. The objects live in a background thread with a trio loop, the portal, as those of nngkit.blocking do; a
call of a `Client` is made in the program's own loop, and the handlers of a `Server`, and of a node of a cluster, are
tasks of it. The sockets of nngkit.protocols need no wrapper.

A cancelled or timed-out call is cancelled in the portal too, and has ended there when it raises. Methods that never
wait (`resolve`, `stats`, edits of a document) are plain functions here too; those of a document run in the portal's
thread, and the loop waits for them, some 0.1 ms. docs/asyncio.md compares this with trio's guest mode.

Names are imported lazily: a program that only calls needs neither pycrdt nor pyarrow.
"""

from nngkit.lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.aio._base import AsyncioIterator
    from nngkit.aio.calls import Client, Server
    from nngkit.aio.cluster import Host, Member
    from nngkit.aio.discovery import Daemon, DaemonClient, Resolver, Service, ServiceDiscovery
    from nngkit.aio.documents import Document, DocumentPeer
    from nngkit.aio.fanout import Consumer, ConsumerServer, Following, Mesh, Outbox, Publisher, Subscriber
    from nngkit.aio.journal import Recorder
    from nngkit.aio.recording import DocumentRecorder
    from nngkit.fanout.numbered.lag import Heartbeat
    from nngkit.protocols import Pattern

__all__ = [
    "AsyncioIterator",
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
            "_base": "AsyncioIterator",
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
