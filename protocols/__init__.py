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

from ._limits import Cut
from ._nng import Payload
from ._options import UNLIMITED
from ._patterns import Pattern
from ._pipe import PeerEvent, Pipe, PipeStats
from ._receiving import Message
from ._socket import Socket
from ._stats import Stats
from ._timeout import DEFAULT, Default, Timeout
from ._tls import TLS
from ._topics import Topics
from .batch import Batch
from .bus import Bus
from .pair import Pair0, Pair1
from .pipeline import Pull, Push
from .pubsub import Pub, Sub
from .reqrep import Rep, Req, Request
from .survey import Query, Reply, Respondent, Survey, Surveyor, SurveyResult

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
]
