"""The gateway: HTTP clients call services, publish and subscribe, and submit jobs. docs/gateway.md.

::

    gateway.py      Gateway: the routes
    admission.py    names of clients and their rights; limits.py has their rates
    bodies.py       media types, values and deadlines of calls
    callers.py      the clients of the services that are called
    counts.py       requests by route
    description.py  OpenAPI of the routes
    feed.py         published messages as events, and what is kept of them
    hub.py          streams of them to many clients
    jobs.py         jobs that were submitted here
    problems.py     errors as responses
    status.py       tables of the status page
    streams/        Durable Streams
    waits.py        long polls, which end with the gateway

bodies, description, feed, limits and problems are pure.
"""

from nngkit.web.gateway.gateway import Gateway, GatewayStats

__all__ = ["Gateway", "GatewayStats"]
