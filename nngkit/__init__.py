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

__version__ = "0.1.0"

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

_LAZY = {  # name -> the package that defines it
    "Client": "nngkit.calls",
    "DocumentPeer": "nngkit.documents",
    "Mesh": "nngkit.fanout",
    "Provider": "nngkit.discovery",
    "Publisher": "nngkit.fanout",
    "Recorder": "nngkit.journal",
    "Resolver": "nngkit.discovery",
    "Server": "nngkit.calls",
    "Service": "nngkit.discovery",
    "ServiceDiscovery": "nngkit.discovery",
    "Subscriber": "nngkit.fanout",
    "forward": "nngkit.devices",
}


if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name

    def __getattr__(name: str) -> object:
        """Import a lazy name on first use; from then on it is an ordinary attribute."""
        from importlib import import_module

        if name == "testing":
            return import_module("nngkit.testing")
        package = _LAZY.get(name)
        if package is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(package), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING"})
