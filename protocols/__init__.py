"""Sockets of the six scalability protocols, one module each, both ends. They carry bytes and do not interpret them.

Every socket takes keyword arguments only (see ``Socket``) and is closed by ``with`` or ``async with``. A method ``x``
blocks and ``ax`` is awaited (``send``, ``asend``). Threads, trio tasks and asyncio tasks may use one socket at once.

    Pair0 Pair1           one peer, both directions         flow-controlled
    Push Pull             each message to one of many       flow-controlled
    Req Rep               request and reply                 at least once
    Surveyor Respondent   survey of all peers               every reply until a deadline
    Pub Sub               to all subscribers of a topic     best effort
    Bus                   to all connected peers            best effort

docs/protocols.md has the guarantees, queues and drop policies of each.
"""

from nngkit.protocols._core.guard import Cut
from nngkit.protocols._core.pipe import PeerEvent, Pipe, PipeStats, Stats
from nngkit.protocols._core.pool import limit_pipes, pool
from nngkit.protocols._nng.library import Payload
from nngkit.protocols._nng.tls import TLS
from nngkit.protocols._socket.options import UNLIMITED
from nngkit.protocols._socket.receiving import Message
from nngkit.protocols._socket.socket import Socket
from nngkit.protocols._topics.patterns import Pattern
from nngkit.protocols._topics.topics import Topics
from nngkit.protocols._waiting.waiters import DEFAULT, Default, Timeout
from nngkit.protocols.batch import Batch
from nngkit.protocols.bus import Bus
from nngkit.protocols.pair import Pair0, Pair1
from nngkit.protocols.pipeline import Pull, Push
from nngkit.protocols.pubsub import Pub, Sub
from nngkit.protocols.reqrep import Rep, Req, Request
from nngkit.protocols.survey import Query, Reply, Respondent, Survey, Surveyor, SurveyResult

__all__ = [
    "DEFAULT",
    "TLS",
    "UNLIMITED",
    "Batch",
    "Bus",
    "Cut",
    "Default",
    "Message",
    "Pair0",
    "Pair1",
    "Pattern",
    "Payload",
    "PeerEvent",
    "Pipe",
    "PipeStats",
    "Pub",
    "Pull",
    "Push",
    "Query",
    "Rep",
    "Reply",
    "Req",
    "Request",
    "Respondent",
    "Socket",
    "Stats",
    "Sub",
    "Survey",
    "SurveyResult",
    "Surveyor",
    "Timeout",
    "Topics",
    "limit_pipes",
    "pool",
]
