"""Socket options: their types, for type checkers and editors, and checks of their values.

::

    class Push(Sender, Socket):
        def __init__(self, **options: Unpack[QueueOptions]) -> None: ...

    Push(lisen="tcp://127.0.0.1:0")        # mypy and pyright: no option "lisen"
    Pub(when_full="block")                 # ... and no policy "block" of a Pub

One dictionary for each kind of socket; they differ in ``when_full`` and ``batch``. The defaults are those of
``Socket.__init__``, whose docstring explains the options; ``tests/test_types.py`` compares the two.

May not know: sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, TypedDict

from nngkit.errors import ConfigError
from nngkit.protocols._core.identity import Check
from nngkit.protocols._core.pipe import Pipe
from nngkit.protocols._core.send_queue import WhenFull
from nngkit.protocols._nng.tls import TLS
from nngkit.protocols.batch import Batch
from nngkit.protocols.sp import MIB
from nngkit.trust.choice import Choice
from nngkit.trust.names import check_pattern

UNLIMITED: Final = 0
WINDOW: Final = MIB // 4  # bytes read ahead
LARGEST: Final = 1 << 30  # what "unlimited" means: a peer can claim any length
MOST_BUFFER: Final = 8192  # messages of a queue
SHARED: Final = 256 * MIB  # bytes of shared memory; only what is used is allocated
SHARED_FROM: Final = 32 * 1024  # bytes from which a body in shared memory costs less than one in the connection
MOST_NAME: Final = 63  # bytes of a name
PEER_TIMEOUTS: Final = 3.0, 600.0  # seconds: the kernel asks every second at the most, and gives up after 15 minutes
LONGEST_PAUSE: Final = 86_400.0  # seconds between two tries of a dialer: a day

Addresses = str | Iterable[str] | None


class Options(TypedDict, total=False):
    """Options of every socket."""

    listen: Addresses
    dial: Addresses  # or a mapping, address to priority: Push, Req, Surveyor
    name: str | None
    recv_max_size: int
    recv_timeout: float | None
    send_timeout: float | None
    recv_buffer: int | None
    recv_window: int | None
    send_buffer: int | None
    send_window: int | None
    tls: TLS | None
    trust: Choice | None
    peers: str | Iterable[str] | Check | None
    reconnect: float
    linger: float | None
    admit: Callable[[Pipe], bool] | None
    handshake_timeout: float | None
    idle_timeout: float | None
    peer_timeout: float | None
    max_pipes: int
    max_pipes_per_host: int
    ipc_mode: int | None
    shm_size: int
    shm_from: int


class CallOptions(Options, total=False):
    """Options of a Req, Rep or Respondent."""

    when_full: Literal["block"] | None


class SurveyOptions(Options, total=False):
    """Options of a Surveyor."""

    when_full: Literal["drop", "drop_oldest"] | None


class BatchOptions(Options, total=False):
    """Options of sockets that send or receive batches."""

    batch: Batch | bool | None


class ReceiveOptions(BatchOptions, total=False):
    """Options of a Pull or Sub."""

    when_full: Literal["block"] | None


class QueueOptions(BatchOptions, total=False):
    """Options of a Push or Pair, with one queue for all peers."""

    when_full: WhenFull | None


class BroadcastOptions(BatchOptions, total=False):
    """Options of a Pub or Bus, which have a queue for each peer and never wait."""

    when_full: Literal["drop", "drop_oldest"] | None


def seconds(what: str, value: float | None) -> float | None:
    """Return ``value``, a number of seconds or None. Raises ConfigError."""
    if value is not None and not (isinstance(value, (int, float)) and 0 <= value < 1e9):
        raise ConfigError(what, f"{value!r} is not a number of seconds", value)
    return value


def silence(value: float | None) -> float:
    """Return ``value``, a ``peer_timeout``, as seconds; 0 for None. Raises ConfigError."""
    allowed = seconds("peer_timeout", value)
    least, most = PEER_TIMEOUTS
    if allowed is None:
        return 0.0
    if not least <= allowed <= most:
        raise ConfigError("peer_timeout", f"{value!r} is not from {least:g} s to {most:g} s", value)
    return allowed


def whole(what: str, value: int, least: int, most: int) -> int:
    """Return ``value``, an integer from ``least`` to ``most``. Raises ConfigError."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(what, f"{value!r} is not an integer from {least} to {most}", value)
    return value


def patterns(value: str | Iterable[str] | Check | None) -> tuple[str, ...] | Check:
    """Return ``value``, patterns of names, or a check of them. Raises ConfigError."""
    if callable(value):
        return value
    return tuple(check_pattern(each, "peers") for each in ((value,) if isinstance(value, str) else value or ()))


def text_name(value: str | None) -> str | None:
    """Return ``value``, a socket's name or None. Raises ConfigError."""
    if value is not None and not (isinstance(value, str) and len(value.encode()) <= MOST_NAME and "\0" not in value):
        raise ConfigError("name", f"{value!r} is not text of at most {MOST_NAME} bytes", value)
    return value
