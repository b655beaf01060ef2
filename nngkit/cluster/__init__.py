"""Clusters: endpoints in a tree that mends itself, messages to all, shared documents, and work that finds its workers.

::

    from nngkit.cluster import Host, Member

    async with Host("render", listen="tcp://0.0.0.0:7000", id="a") as host: ...
    async with Member("render", dial=["tcp://a:7000"]) as node: ...

The words are those of Zinc, by Tyler Treat: one endpoint hosts, the others are its clients; listeners hear messages by
kind; documents are shared, changed by fragments, and requested in full. Guide: docs/clusters.md.

Names are imported when they are first used: programs that only read a cluster's records load no event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nngkit.cluster.admission import Applicant, Authenticator, Ticket, TokenAuthenticator, issue_ticket
    from nngkit.cluster.endpoint import Endpoint
    from nngkit.cluster.hosting import Host, Member
    from nngkit.cluster.jobs import Job, JobRun
    from nngkit.cluster.messages import ClusterGap, ClusterMessage
    from nngkit.cluster.sharing import Shared
    from nngkit.cluster.sockets import SocketTransport
    from nngkit.cluster.status import ClusterMember, ClusterStatus, ClusterTree, JobCounts, VoterState
    from nngkit.cluster.transport import Sink, Transport

__all__ = [
    "Applicant",
    "Authenticator",
    "ClusterGap",
    "ClusterMember",
    "ClusterMessage",
    "ClusterStatus",
    "ClusterTree",
    "Endpoint",
    "Host",
    "Job",
    "JobCounts",
    "JobRun",
    "Member",
    "Shared",
    "Sink",
    "SocketTransport",
    "Ticket",
    "TokenAuthenticator",
    "Transport",
    "VoterState",
    "issue_ticket",
]

_MODULES = {  # name -> the module that defines it
    **dict.fromkeys(("Applicant", "Authenticator", "Ticket", "TokenAuthenticator", "issue_ticket"), "admission"),
    **dict.fromkeys(("ClusterMember", "ClusterStatus", "ClusterTree", "JobCounts", "VoterState"), "status"),
    **dict.fromkeys(("ClusterGap", "ClusterMessage"), "messages"),
    **dict.fromkeys(("Host", "Member"), "hosting"),
    **dict.fromkeys(("Job", "JobRun"), "jobs"),
    **dict.fromkeys(("Sink", "Transport"), "transport"),
    "Endpoint": "endpoint",
    "Shared": "sharing",
    "SocketTransport": "sockets",
}

if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name

    def __getattr__(name: str) -> object:
        """Import a name on first use; from then on it is an ordinary attribute."""
        from importlib import import_module

        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING"})
