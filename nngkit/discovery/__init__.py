"""Service discovery by survey: who is there is asked, not registered.

::

    pure     provider  messages  queries  watch     what is said, and its bytes
             registry (rules, rounds, table)        who is up, of those a daemon sees
             views                                  who is up, of what several daemons see
             settings                               what the environment says
    shells   service_discovery                      surveys, and resolves from what it found
             service                                answers surveys for one provider
             daemon                                 surveys periodically, answers callers
             client  resolver                       asks a daemon; follows several

The names below come in when they are asked for: a command that only needs the settings pays for no event loop.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.discovery.client import DaemonClient
    from nngkit.discovery.daemon import Daemon
    from nngkit.discovery.liveness import Limits, Rules
    from nngkit.discovery.provider import Event, Provider, Reason, RoundFigures, State, Status
    from nngkit.discovery.resolver import Resolver
    from nngkit.discovery.service import Service
    from nngkit.discovery.service_discovery import ServiceDiscovery
    from nngkit.discovery.settings import ClientSettings, DaemonSettings, ServiceSettings

__all__ = [
    "ClientSettings",
    "Daemon",
    "DaemonClient",
    "DaemonSettings",
    "Event",
    "Limits",
    "Provider",
    "Reason",
    "Resolver",
    "RoundFigures",
    "Rules",
    "Service",
    "ServiceDiscovery",
    "ServiceSettings",
    "State",
    "Status",
]

_ROOMS = {
    "client": ("DaemonClient",),
    "daemon": ("Daemon",),
    "provider": ("Event", "Provider", "Reason", "RoundFigures", "State", "Status"),
    "resolver": ("Resolver",),
    "liveness": ("Limits", "Rules"),
    "service": ("Service",),
    "service_discovery": ("ServiceDiscovery",),
    "settings": ("ClientSettings", "DaemonSettings", "ServiceSettings"),
}
_LATE = {name: f"{__name__}.{room}" for room, names in _ROOMS.items() for name in names}


if not TYPE_CHECKING:  # a type checker that sees it takes every name for one of ours

    def __getattr__(name: str) -> object:
        """Bring in one of the late names."""
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(_LATE[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
