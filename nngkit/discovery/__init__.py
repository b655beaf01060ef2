"""Service discovery by survey: a daemon surveys the connected services; there is no registration.

::

    pure     provider  messages  queries  watch  domains      values, and their encoding
             questions/ (values, messages, round)             questions to services: values, encoding, state of one
             registry/ (registry, table, liveness,            state of the services that one daemon sees;
             evaluation, merged_view, resolution)             services merged from several daemons
             lanes                                            choice of a provider
             settings                                         settings from environment variables
    shells   service_discovery (survey_runner)                runs surveys, and resolves names
             questions/ (asking, answering, tracing)          asks, answers, and spans of both
             service                                          answers surveys for one provider
             daemon                                           surveys periodically, answers callers
             history                                          keeps the changes in a file
             dns                                              answers programs that know only the DNS
             client  resolver                                 queries one daemon; follows several

The names below are imported lazily: a command that needs only the settings loads no event loop.
"""

from nngkit.lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.discovery.client import DaemonClient
    from nngkit.discovery.daemon import Daemon
    from nngkit.discovery.history import History
    from nngkit.discovery.provider import Event, Provider, Reason, RoundFigures, State, Status
    from nngkit.discovery.questions.values import (
        INFO,
        PING,
        STATS,
        Answer,
        AskResult,
        Bid,
        Failure,
        Question,
        Reserved,
        Until,
        bids,
        deadline,
        first,
    )
    from nngkit.discovery.registry.liveness import LivenessRules, RegistryLimits
    from nngkit.discovery.registry.resolution import Resolution
    from nngkit.discovery.resolver import Resolver
    from nngkit.discovery.service import Service, ServiceStats
    from nngkit.discovery.service_discovery import DiscoveryStats, ServiceDiscovery
    from nngkit.discovery.settings import ClientSettings, DaemonSettings, ServiceSettings

__all__ = [
    "INFO",
    "PING",
    "STATS",
    "Answer",
    "AskResult",
    "Bid",
    "ClientSettings",
    "Daemon",
    "DaemonClient",
    "DaemonSettings",
    "DiscoveryStats",
    "Event",
    "Failure",
    "History",
    "LivenessRules",
    "Provider",
    "Question",
    "Reason",
    "RegistryLimits",
    "Reserved",
    "Resolution",
    "Resolver",
    "RoundFigures",
    "Service",
    "ServiceDiscovery",
    "ServiceSettings",
    "ServiceStats",
    "State",
    "Status",
    "Until",
    "bids",
    "deadline",
    "first",
]

if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "client": "DaemonClient",
            "daemon": "Daemon",
            "history": "History",
            "provider": "Event Provider Reason RoundFigures State Status",
            "questions.values": (
                "INFO PING STATS Answer AskResult Bid Failure Question Reserved Until bids deadline first"
            ),
            "registry.liveness": "LivenessRules RegistryLimits",
            "registry.resolution": "Resolution",
            "resolver": "Resolver",
            "service": "Service ServiceStats",
            "service_discovery": "DiscoveryStats ServiceDiscovery",
            "settings": "ClientSettings DaemonSettings ServiceSettings",
        },
    )
