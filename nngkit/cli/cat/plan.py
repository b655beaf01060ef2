"""What a cat command was asked to do, as one value: a personality makes it of arguments, conversation.py does it.

Pure. What cannot be done as asked is `Wrong`: the text for standard error, and the exit code, both the personality's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from nngkit.errors import NngkitError

if TYPE_CHECKING:
    from nngkit.protocols import TLS, Pipe

__all__ = ["Endpoint", "Plan", "Received", "Shown", "Stopped", "Wrong"]

MIB = 1 << 20
LARGEST = 1 << 30  # what nngkit lets in at most, and what "unlimited" is


class Endpoint(NamedTuple):
    """An address and what to do there."""

    what: Literal["listen", "dial"]
    url: str


class Received(NamedTuple):
    """A message that came: when, in seconds since 1970, and by which connection, if that was asked for."""

    body: bytes
    at: float
    pipe: Pipe | None


class Wrong(Exception):
    """The arguments cannot be followed; `text` is for standard error."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class Shown(Exception):
    """The arguments ask for a text on standard output and nothing else: a help, a version."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class Stopped(Exception):
    """A conversation that ended badly: at which `stage`, and with which error. `url` is set for listen and dial."""

    def __init__(
        self, stage: Literal["listen", "dial", "wait", "send", "recv"], error: NngkitError, url: str = ""
    ) -> None:
        super().__init__(str(error))
        self.stage = stage
        self.error = error
        self.url = url


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A conversation. Seconds are float, None is for ever or not at all."""

    protocol: str  # a key of cat_options.PROTOCOLS
    endpoints: tuple[Endpoint, ...]
    show: Callable[[Received], bytes]
    shows_peers: bool = False  # whether `show` looks at Received.pipe: knowing it costs
    topics: tuple[bytes, ...] = ()
    data: tuple[bytes, ...] = ()  # sent once in this order, or again and again
    stream: Callable[[], Iterator[list[bytes]]] | None = None  # or what is sent, as it comes
    answer: Callable[[Received], bytes | None] | None = None  # or what makes the answer; None: give none
    count: int = 0  # messages sent, or received where nothing is sent; 0 is no limit
    expect: int = 0  # messages to be received; 0 is no limit
    delay: float | None = None
    interval: float | None = None
    recv_timeout: float | None = None
    send_timeout: float | None = None
    survey_time: float = 1.0  # nanomsg's and NNG's
    recv_max_size: int = MIB
    name: str | None = None
    tls: TLS | None = None
    dial_waits: bool = False  # dialling fails where nobody listens (nngcat without --async)
    request_waits: bool = (
        False  # a request waits for a peer under send_timeout (NNG); else under recv_timeout (nanomsg)
    )
    wait_peers: int = 0
    wait_timeout: float | None = None
    said: Callable[[str, str, str], None] | None = None  # told ("listen" or "dial", URL, address) as each is done
