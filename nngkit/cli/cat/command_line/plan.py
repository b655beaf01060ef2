"""A Plan: everything that a cat command is asked to do. cat.py, nngcat.py or nanocat.py makes it of the arguments.

Pure. Arguments that a stand-in rejects raise `Wrong`, with the original's error text and exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from nngkit.errors import NngkitError

if TYPE_CHECKING:
    from nngkit.protocols import TLS, Pattern, Pipe

MIB = 1 << 20
LARGEST = 1 << 30  # largest message that nngkit accepts, and the meaning of "unlimited"


class Address(NamedTuple):
    """An address, and whether to listen or dial there."""

    what: Literal["listen", "dial"]
    url: str


class Received(NamedTuple):
    """A received message: its time in seconds since 1970, and its connection if the plan `shows_peers`."""

    body: bytes
    at: float
    pipe: Pipe | None


class Numbered(NamedTuple):
    """How to receive from a Publisher: report gaps, begin with its last messages, leave with over `snail` unread."""

    lag: bool
    last: bool
    snail: int


class Wrong(Exception):
    """Invalid arguments: the text for standard error, and the exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class Shown(Exception):
    """The arguments ask only for a text on standard output: help or version."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class Stopped(Exception):
    """A conversation that failed: at which `stage`, with which error. `url` is set for listen and dial."""

    def __init__(
        self, stage: Literal["listen", "dial", "wait", "send", "recv"], error: NngkitError, url: str = ""
    ) -> None:
        super().__init__(str(error))
        self.stage = stage
        self.error = error
        self.url = url


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A conversation. Times are seconds; None is no limit or not at all."""

    protocol: str  # a key of option_table.PROTOCOLS
    addresses: tuple[Address, ...]
    show: Callable[[Received], bytes]
    shows_peers: bool = False  # True if `show` uses Received.pipe, which costs time
    topics: tuple[bytes, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    data: tuple[bytes, ...] = ()  # sent once in this order, or repeatedly
    stream: Callable[[], Iterator[list[bytes]]] | None = None  # or batches to send as they arrive
    answer: Callable[[Received], bytes | None] | None = None  # makes the reply to a request; None: no reply
    count: int = 0  # messages to send, or to receive if nothing is sent; 0 is no limit
    expect: int = 0  # messages to receive; 0 is no limit
    delay: float | None = None
    interval: float | None = None
    recv_timeout: float | None = None
    send_timeout: float | None = None
    survey_time: float = 1.0  # the default of nanomsg and NNG
    recv_max_size: int = MIB
    ipc_mode: int | None = None
    name: str | None = None
    tls: TLS | None = None
    open: bool = False  # listens for other machines without a word, as the originals do
    dial_waits: bool = False  # dialing fails without a listener (nngcat without --async)
    request_waits: bool = False  # requests wait for a peer within send_timeout (NNG); else recv_timeout (nanomsg)
    wait_peers: int = 0
    wait_timeout: float | None = None
    numbered: Numbered | None = None  # a sub of a Publisher
    on_address: Callable[[str, str, str], None] | None = None  # called with (listen or dial, URL, address)
