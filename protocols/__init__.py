"""The bricks: the six scalability protocols, one module each, both ends; bytes over sockets, no meaning.

Every socket takes keywords only (``Socket`` has them all), blocks or awaits (``send``/``asend``, ``recv``/``arecv``),
is closed by ``with`` or ``async with``, and may be used by threads, trio tasks and asyncio tasks at once.

    Pair0 Pair1        one peer, both ways             flow-controlled
    Push Pull          work to one of many             flow-controlled
    Req Rep            question and answer             at least once
    Surveyor Respondent   question to all              every answer until a deadline
    Pub Sub            to all that asked for a topic   best effort
    Bus                to all connected                best effort

docs/protocols.md says what each promises, queues and drops.
"""

from ._limits import Cut
from ._nng import Payload
from ._options import UNLIMITED
from ._pipe import PeerEvent, Pipe, PipeStats
from ._receiving import Message
from ._socket import Socket
from ._stats import Stats
from ._timeout import DEFAULT, Timeout
from ._tls import TLS
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
    "Message",
    "Pair0",
    "Pair1",
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
]
