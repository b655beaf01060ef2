"""Calls by name: a Client calls the providers of a service that discovery finds; a Server is a provider.

::

    pure     messages                                     requests and replies with a codec
             pool (health)                                providers, the lane in use, the choice among them
             texts                                        text of what a program has raised
             middleware                                   functions around each call, at both ends
    shells   client (_caller, _race, stream)              calls, with retries and hedging
             server (_running, _streaming, _failures,     listens, registers, runs handlers, drains
                     handlers)

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
