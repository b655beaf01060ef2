"""nngkit: the six scalability protocols on NNG, and service discovery, documents and a journal built on them.

::

    from nngkit import Client, Server                   # calls by name
    from nngkit import DocumentPeer, Recorder, Resolver, Service, ServiceDiscovery, forward
    from nngkit.protocols import Pull, Push, Rep, Req   # one class for each end of a pattern

``import nngkit`` itself loads only the errors. The other names below are imported on first use, so a program that needs
only the command's parser, or an error to catch, does not load trio, asyncio and pynng. DocumentPeer needs the extra
``nngkit[documents]`` and Recorder ``nngkit[journal]``; without it, their use raises ConfigError.
"""

from nngkit.errors import (
    AccessDenied,
    BadMessage,
    Broken,
    Closed,
    ConfigError,
    Damaged,
    EditRefused,
    Forked,
    Full,
    JobFailed,
    Lost,
    NngkitError,
    NotFound,
    NotStored,
    OffsetGone,
    RemoteError,
    ServiceNotFound,
    SlowSubscriber,
    StoreDamaged,
    TimedOut,
    TooLarge,
    Unreachable,
)
from nngkit.lazy import lazily
from nngkit.release import __version__

TYPE_CHECKING = False  # as typing's, without the cost of importing typing; type checkers know the name
if TYPE_CHECKING:
    from nngkit.calls import Client, Server
    from nngkit.devices import forward
    from nngkit.discovery import Provider, Resolver, Service, ServiceDiscovery
    from nngkit.documents import DocumentPeer
    from nngkit.fanout import Mesh, Publisher, Subscriber
    from nngkit.journal import Recorder

__all__ = [
    "AccessDenied",
    "BadMessage",
    "Broken",
    "Client",
    "Closed",
    "ConfigError",
    "Damaged",
    "DocumentPeer",
    "EditRefused",
    "Forked",
    "Full",
    "JobFailed",
    "Lost",
    "Mesh",
    "NngkitError",
    "NotFound",
    "NotStored",
    "OffsetGone",
    "Provider",
    "Publisher",
    "Recorder",
    "RemoteError",
    "Resolver",
    "Server",
    "Service",
    "ServiceDiscovery",
    "ServiceNotFound",
    "SlowSubscriber",
    "StoreDamaged",
    "Subscriber",
    "TimedOut",
    "TooLarge",
    "Unreachable",
    "__version__",
    "forward",
]

if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "calls": "Client Server",
            "devices": "forward",
            "discovery": "Provider Resolver Service ServiceDiscovery",
            "documents": "DocumentPeer",
            "fanout": "Mesh Publisher Subscriber",
            "journal": "Recorder",
            "testing": "",
        },
    )
