"""Every error a caller of nngkit can see, and nothing else; this module imports nothing of ours.

::

    NngkitError
    ├── Closed            we closed it: the object was closed, by this call's owner or by another thread
    │   └── Forked        it belongs to the parent process: neither NNG nor an open store survives fork()
    ├── Broken            the peer or the network: a connection failed or went away
    │   └── Unreachable   an address could not be listened on or dialled
    ├── TimedOut          the time given ran out (also a built-in TimeoutError)
    ├── Full              a queue is at its cap and the socket was told to raise
    ├── BadMessage        bytes that are not what the protocol says
    ├── TooLarge          a message over its size limit
    ├── NotFound          what was asked for does not exist
    │   ├── ServiceNotFound   no provider of that name is up
    │   └── OffsetGone    a journal does not keep that offset any more
    ├── Damaged           a file of ours is not what was written; not a BadMessage, as no peer is to blame
    │   └── StoreDamaged  a file of documents
    ├── NotStored         a recorder could not put records on the disk
    ├── AccessDenied      a peer was refused, or refused us, by identity
    └── ConfigError       an option, URL, file or environment value that cannot be used

Each class carries what happened as typed attributes; ``str()`` is one line that says what and where.
pynng's exceptions never reach a caller: they are the ``__cause__`` where there was one.
"""

from __future__ import annotations

__all__ = [
    "AccessDenied",
    "BadMessage",
    "Broken",
    "Closed",
    "ConfigError",
    "Damaged",
    "Forked",
    "Full",
    "NngkitError",
    "NotFound",
    "NotStored",
    "OffsetGone",
    "ServiceNotFound",
    "StoreDamaged",
    "TimedOut",
    "TooLarge",
    "Unreachable",
]


class NngkitError(Exception):
    """The root of the tree: ``except NngkitError`` catches all that nngkit raises on purpose."""


class Closed(NngkitError):
    """The object was closed on this side; nothing more can be sent or received on it."""

    def again(self) -> Closed:
        """Return an equal error for another caller: an exception that is raised twice keeps both tracebacks."""
        return type(self)(*self.args)


class Forked(Closed):
    """The object was made before ``fork()``: in the child every NNG call would abort the process.

    A store of documents has its writer, its locks and its connections in the parent too.
    """


class Broken(NngkitError):
    """The peer or the network failed; the same call may succeed later."""


class Unreachable(Broken):
    """An address could not be listened on or dialled: ``address``, ``reason``."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason


class TimedOut(NngkitError, TimeoutError):
    """The time given ran out.

    ``seconds`` is what was given, None where a deadline was; ``sent`` is how many messages of a ``send_many`` went.
    """

    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds
        self.sent = 0


class Full(NngkitError):
    """The queue is at its cap and ``when_full="raise"`` was asked for; the message was not taken."""


class BadMessage(NngkitError):
    """Bytes that are not what the protocol says: ``what`` was expected, ``why`` it is not, from ``peer``."""

    def __init__(self, what: str, why: str, peer: str | None = None) -> None:
        super().__init__(f"bad {what}{f' from {peer}' if peer else ''}: {why}")
        self.what = what
        self.why = why
        self.peer = peer


class TooLarge(NngkitError):
    """A message of ``size`` bytes is over the limit of ``limit`` bytes. Each is None if NNG does not tell it."""

    def __init__(self, size: int | None, limit: int | None, peer: str | None = None) -> None:
        message = "message" if size is None else f"message of {size} bytes"
        most = "the size limit" if limit is None else f"the limit of {limit}"
        super().__init__(f"{message}{f' from {peer}' if peer else ''} is over {most}")
        self.size = size
        self.limit = limit
        self.peer = peer


class NotFound(NngkitError):
    """What was asked for does not exist."""


class ServiceNotFound(NotFound):
    """No provider of the service ``name`` is up."""

    def __init__(self, name: str) -> None:
        super().__init__(f"service not found: {name}")
        self.name = name


class OffsetGone(NotFound):
    """The journal at ``path`` keeps nothing before ``earliest``; ``offset`` was asked for."""

    def __init__(self, path: str, offset: int, earliest: int) -> None:
        super().__init__(
            f"{path}: offset {offset} is gone: retention has removed it, the earliest kept is {earliest}; "
            "begin there, or keep more (--keep-age, --keep-size)"
        )
        self.path = path
        self.offset = offset
        self.earliest = earliest


class Damaged(NngkitError):
    """The file ``path`` is not what was written: ``why``, at the byte ``position``, from the record ``offset`` on.

    ``advice`` says what can be done. Nothing was changed.
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
    """A file of documents is not what was written: ``path``, ``what`` is wrong, and ``where`` in it.

    Nothing was changed. ``nngkit.documents.store.recover`` copies the intact documents into a new file.
    """

    def __init__(self, path: str, what: str, where: str) -> None:
        NngkitError.__init__(self, f"{path}: {where}: {what}")
        self.path = path
        self.why = self.what = what
        self.where = where
        self.position = self.offset = None
        self.advice = ""


class NotStored(NngkitError):
    """Records are not on the disk, or nobody can tell whether they are; sending them again is right."""


class AccessDenied(NngkitError):
    """A peer was refused, or refused us, because of who it is."""


class ConfigError(NngkitError, ValueError):
    """A setting cannot be used: ``what`` (the option, variable or file), ``why``, and the ``value`` given."""

    def __init__(self, what: str, why: str, value: object = None) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what
        self.why = why
        self.value = value
