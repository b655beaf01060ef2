"""nngkit: the six scalability protocols on NNG, and what is built on them.

::

    from nngkit import Service, ServiceDiscovery        # discovery by survey
    from nngkit.protocols import Pull, Push, Rep, Req   # one class for each end of a pattern

``import nngkit`` itself loads the errors and nothing else: the names below come in when they are first asked for, so
that a program which only wants the command's parser, or an error to catch, does not pay for trio, asyncio and pynng.
"""

from nngkit.errors import (
    AccessDenied,
    BadMessage,
    Broken,
    Closed,
    ConfigError,
    Damaged,
    Forked,
    Full,
    NngkitError,
    NotFound,
    NotStored,
    OffsetGone,
    ServiceNotFound,
    StoreDamaged,
    TimedOut,
    TooLarge,
    Unreachable,
)

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing's own is not worth importing typing for; type checkers know the name wherever it is set
if TYPE_CHECKING:
    from nngkit.discovery import Provider, Service, ServiceDiscovery

__all__ = [
    "AccessDenied",
    "BadMessage",
    "Broken",
    "Closed",
    "ConfigError",
    "Damaged",
    "Forked",
    "Full",
    "NngkitError",
    "NotFound",
    "NotStored",
    "OffsetGone",
    "Provider",
    "Service",
    "ServiceDiscovery",
    "ServiceNotFound",
    "StoreDamaged",
    "TimedOut",
    "TooLarge",
    "Unreachable",
    "__version__",
]

_LATE = {  # name -> the room it comes from
    "Provider": "nngkit.discovery",
    "Service": "nngkit.discovery",
    "ServiceDiscovery": "nngkit.discovery",
}


if not TYPE_CHECKING:  # a type checker that sees it takes every name for one of ours

    def __getattr__(name: str) -> object:
        """Bring in one of the late names; it is then an ordinary attribute, and this is not called for it again."""
        room = _LATE.get(name)
        if room is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found: object = getattr(import_module(room), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING"})
