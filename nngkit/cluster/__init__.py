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

from nngkit.lazy import lazily

if TYPE_CHECKING:
    from nngkit.cluster.admission import Applicant, Authenticator, Ticket, TokenAuthenticator, issue_ticket
    from nngkit.cluster.endpoint import Endpoint
    from nngkit.cluster.hosting import Host, Member
    from nngkit.cluster.messages import ClusterGap, ClusterMessage
    from nngkit.cluster.shell.jobs import Job, JobRun
    from nngkit.cluster.shell.sharing import Shared
    from nngkit.cluster.shell.sockets import SocketTransport
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

if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "admission": "Applicant Authenticator Ticket TokenAuthenticator issue_ticket",
            "endpoint": "Endpoint",
            "hosting": "Host Member",
            "messages": "ClusterGap ClusterMessage",
            "shell.jobs": "Job JobRun",
            "shell.sharing": "Shared",
            "shell.sockets": "SocketTransport",
            "status": "ClusterMember ClusterStatus ClusterTree JobCounts VoterState",
            "transport": "Sink Transport",
        },
    )
