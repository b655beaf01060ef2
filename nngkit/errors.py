"""All errors that a caller of nngkit can see. Imports no module of nngkit.

::

    NngkitError
    ├── Closed            the object was closed on this side, by this caller or another thread
    │   └── Forked        the object belongs to the parent process: NNG and open stores do not survive fork()
    ├── Broken            the peer or the network failed: a connection failed or ended
    │   ├── Unreachable   an address could not be listened on or dialed
    │   └── Lost          the peer left before it replied to a request, which may have run
    ├── RemoteError       the provider answered a call with an error
    ├── JobFailed         a cluster's job has ended without a result
    ├── TimedOut          the timeout or deadline has passed (also a built-in TimeoutError)
    ├── Full              a queue is at its cap, and the socket is configured to raise
    ├── SlowSubscriber    a subscriber fell behind over its limit, or was cut off by the publisher, and has left
    ├── BadMessage        bytes that violate the protocol
    ├── TooLarge          a message over its size limit
    ├── NotFound          the requested object does not exist
    │   ├── ServiceNotFound   no provider of that name is up
    │   └── OffsetGone    the journal no longer keeps that offset
    ├── Damaged           a file of nngkit is not as written; not a BadMessage, as no peer is at fault
    │   └── StoreDamaged  a file of documents
    ├── NotStored         a recorder could not write records to disk
    ├── EditRefused       a peer's document cannot take a local edit
    ├── AccessDenied      a peer was refused, or refused us, because of its identity
    └── ConfigError       an unusable option, URL, file or environment value

Each class has typed attributes; ``str()`` is one line that says what happened and where. pynng's exceptions never reach
a caller: they are the ``__cause__`` where there was one.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would make `import nngkit` slower
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

__all__ = [
    "AccessDenied",
    "BadMessage",
    "Broken",
    "Closed",
    "ConfigError",
    "Damaged",
    "EditRefused",
    "Forked",
    "Full",
    "JobFailed",
    "Lost",
    "NngkitError",
    "NotFound",
    "NotStored",
    "OffsetGone",
    "RemoteError",
    "ServiceNotFound",
    "SlowSubscriber",
    "StoreDamaged",
    "TimedOut",
    "TooLarge",
    "Unreachable",
]


class NngkitError(Exception):
    """Root of the tree: ``except NngkitError`` catches every error that nngkit raises on purpose."""

    def again(self) -> Self:
        """Return an equal error for another caller: an exception raised twice would collect both tracebacks."""
        equal = type(self).__new__(type(self), *self.args)
        equal.__dict__.update(self.__dict__)
        return equal


class Closed(NngkitError):
    """The object was closed on this side; it can no longer send or receive."""


class Forked(Closed):
    """The object was created before ``fork()``: in the child every NNG call would abort the process.

    The writer, locks and connections of an open document store are in the parent too.
    """


class Broken(NngkitError):
    """The peer or the network failed; the same call may succeed later."""


class Unreachable(Broken):
    """An address could not be listened on or dialed: ``address``, ``reason``."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason


class Lost(Broken):
    """The peer left before it replied. ``sent`` is False if the request has surely not reached it."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class RemoteError(NngkitError):
    """A provider answered a call with an error. A handler raises it to choose what its caller gets.

    ``message``; ``kind``: "failed", or a word of the handler's; ``error``: the class name of the exception that the
    handler raised; ``data``: any value that the codec carries; ``ran``: False if the handler has surely not run;
    ``provider``: the address that answered; ``headers``: of its reply.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "failed",
        error: str = "",
        data: object = None,
        ran: bool = True,
        provider: str = "",
        headers: Mapping[str, str | bytes] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.error = error
        self.data = data
        self.ran = ran
        self.provider = provider
        self.headers = dict(headers or {})

    def __str__(self) -> str:
        place = f"{self.provider}: " if self.provider else ""
        return f"{place}{self.message}" if self.kind == "failed" else f"{place}{self.kind}: {self.message}"


class JobFailed(NngkitError):
    """A cluster's job has ended without a result. A worker's function raises it so that the job is not tried again.

    ``message``; ``outcome``: "failed" (its function said so), "dead" (its tries are used up), "cancelled" or "expired"
    (its deadline has passed); ``job``: its number in the cluster; ``kind``; ``tries``: how often it was started;
    ``worker``: the id of the node that reported the last failure, "" if none did.
    """

    def __init__(
        self, message: str, *, outcome: str = "failed", job: int = 0, kind: str = "", tries: int = 0, worker: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.outcome = outcome
        self.job = job
        self.kind = kind
        self.tries = tries
        self.worker = worker

    def __str__(self) -> str:
        if not self.job:
            return self.message
        tries = f" after {self.tries} tries" if self.tries > 1 else ""
        place = f", last at {self.worker}" if self.worker else ""
        return f"job {self.job} ({self.kind}) {self.outcome}{tries}{place}: {self.message}"


class TimedOut(NngkitError, TimeoutError):
    """The timeout or deadline has passed.

    ``seconds`` is the given timeout, None for a deadline; ``sent`` is the number of messages that a ``send_many`` sent.
    """

    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds
        self.sent = 0


class Full(NngkitError):
    """The queue is at its cap and ``when_full="raise"`` is set; the message was not accepted."""


class SlowSubscriber(NngkitError):
    """The subscriber left: ``messages`` were unread, the oldest for ``age`` seconds. ``cut``: the publisher said so."""

    def __init__(self, why: str, *, messages: int = 0, age: float = 0.0, cut: bool = False) -> None:
        super().__init__(why)
        self.messages = messages
        self.age = age
        self.cut = cut


class BadMessage(NngkitError):
    """Bytes that violate the protocol: ``what`` was expected, ``why`` they are invalid, from ``peer``."""

    def __init__(self, what: str, why: str, peer: str | None = None) -> None:
        super().__init__(f"bad {what}{f' from {peer}' if peer else ''}: {why}")
        self.what = what
        self.why = why
        self.peer = peer


class TooLarge(NngkitError):
    """A message, or a part of it, of ``size`` bytes exceeds ``limit``. Each is None if NNG does not report it."""

    def __init__(self, size: int | None, limit: int | None, peer: str | None = None, *, what: str = "message") -> None:
        message = what if size is None else f"{what} of {size} bytes"
        verb = "are" if what.endswith("s") else "is"
        most = "the size limit" if limit is None else f"the limit of {limit}"
        super().__init__(f"{message}{f' from {peer}' if peer else ''} {verb} over {most}")
        self.size = size
        self.limit = limit
        self.peer = peer


class NotFound(NngkitError):
    """The requested object does not exist."""


class ServiceNotFound(NotFound):
    """No provider of the service ``name`` is up, or none is as wanted: ``why`` (may be empty)."""

    def __init__(self, name: str, why: str = "") -> None:
        super().__init__(f"service not found: {name}{f': {why}' if why else ''}")
        self.name = name
        self.why = why


class OffsetGone(NotFound):
    """The journal at ``path`` keeps nothing before ``earliest``; ``offset`` was requested."""

    def __init__(self, path: str, offset: int, earliest: int) -> None:
        super().__init__(
            f"{path}: offset {offset} is gone: removed by retention, the earliest kept is {earliest}; "
            "start there, or keep more (--keep-age, --keep-size)"
        )
        self.path = path
        self.offset = offset
        self.earliest = earliest


class Damaged(NngkitError):
    """The file ``path`` is not as written: ``why``, at the byte ``position``, from the record ``offset`` on.

    ``advice`` says how to proceed. Nothing was changed.
    """

    def __init__(
        self, path: str, why: str, *, position: int | None = None, offset: int | None = None, advice: str = ""
    ) -> None:
        place = "" if position is None else f" at byte {position}"
        record = "" if offset is None else f", offset {offset}"
        super().__init__(f"{path}: damaged{place}{record}: {why}{f'; {advice}' if advice else ''}")
        self.path = path
        self.why = why
        self.position = position
        self.offset = offset
        self.advice = advice


class StoreDamaged(Damaged):
    """A file of documents is not as written: ``path``, ``what`` is wrong, and ``where`` in it.

    Nothing was changed. ``nngkit.documents.store.recover`` copies the intact documents into a new file.
    """

    def __init__(self, path: str, what: str, where: str) -> None:
        self.advice = "`nngkit doc recover` copies what is intact"
        NngkitError.__init__(self, f"{path}: {where}: {what}; {self.advice}")
        self.path = path
        self.why = self.what = what
        self.where = where
        self.position = self.offset = None


class NotStored(NngkitError):
    """Records are not on disk, or that is unknown; sending them again is correct."""


class EditRefused(NngkitError):
    """The document of ``peer`` cannot take a local edit, nor what follows it: ``why``. The local one has both."""

    def __init__(self, peer: str, why: str) -> None:
        super().__init__(f"{peer} refuses an edit: {why}")
        self.peer = peer
        self.why = why


class AccessDenied(NngkitError):
    """A peer was refused, or refused us, because of its identity."""


class ConfigError(NngkitError, ValueError):
    """An unusable setting: ``what`` (the option, variable or file), ``why``, and its ``value``."""

    def __init__(self, what: str, why: str, value: object = None) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what
        self.why = why
        self.value = value
