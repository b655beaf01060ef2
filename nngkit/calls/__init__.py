"""Calls by name: a Client calls the providers of a service that discovery finds; a Server is a provider.

::

    pure     messages                   requests and replies with a codec
             pool (health), budget      providers, the lane in use, the choice among them; how many retries
             typed                      annotations of handlers and interfaces as the types of bodies
             texts                      text of what a program has raised
    both     middleware                 functions around each call
    client   client, stream             for programs; client_stats are their counters
             requesting/                one call: its attempts, hedging, the sockets
    server   server, handlers           for programs: listens, registers, drains; the kinds of handlers
             serving/                   one call: let in, run, counted, answered

The names below are imported lazily.
"""

from nngkit.lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.calls.budget import RetryBudget
    from nngkit.calls.client import Client
    from nngkit.calls.client_stats import ClientStats, ProviderStats
    from nngkit.calls.handlers import Calling
    from nngkit.calls.health import Ejection
    from nngkit.calls.middleware import Attempt, ClientCall, Middleware, Proceed, Reply, Wait
    from nngkit.calls.server import Server, ServerStats
    from nngkit.calls.stream import Stream

__all__ = [
    "Attempt",
    "Calling",
    "Client",
    "ClientCall",
    "ClientStats",
    "Ejection",
    "Middleware",
    "Proceed",
    "ProviderStats",
    "Reply",
    "RetryBudget",
    "Server",
    "ServerStats",
    "Stream",
    "Wait",
]

if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "budget": "RetryBudget",
            "client": "Client",
            "client_stats": "ClientStats ProviderStats",
            "handlers": "Calling",
            "health": "Ejection",
            "middleware": "Attempt ClientCall Middleware Proceed Reply Wait",
            "server": "Server ServerStats",
            "stream": "Stream",
        },
    )
