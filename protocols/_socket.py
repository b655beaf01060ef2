"""A socket's life: open, options read back, listen, dial, TLS, counters, close.

The six protocols derive from ``Socket`` and from ``Receiver`` and ``Sender``, and say in class attributes what NNG
lets them say. Everything here may be called from any thread; nothing here waits inside NNG.

Who owns what: NNG's handle belongs to the queue's and the ring's locks. ``close`` refuses new work under them, takes
back the sends that wait, closes NNG's socket, and frees the posted receives that NNG ended then; so no thread is ever
inside NNG while it closes.

May not know: messages' meaning.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Final, Self, get_args
from urllib.parse import urlsplit

import pynng

from nngkit.errors import Closed, ConfigError, Forked, Unreachable

from ._batching import Batcher, Lane
from ._draining import Draining
from ._handshakes import shaking
from ._nng import error, pipe_id, register, unregister
from ._peers import Peers
from ._pipes import Pipe, Pipes
from ._receiving import BURST_OF_BATCHES
from ._refusing import LEAST, Refusing
from ._ring import DEPTH, FIRST_DEPTH, PostedRing, Ring
from ._sending import Queue, WhenFull
from ._tls import TLS
from ._waiters import checkpoint_before, sleep
from ._wss import calm, hold
from .batch import Batch, pack, unpack

UNLIMITED: Final = 0
MIB: Final = 1 << 20
WINDOW: Final = MIB // 4  # bytes read ahead: with more in large messages, the C library maps fresh memory for each
LARGEST: Final = 1 << 30  # what "unlimited" means: NNG believes any length a stranger writes, and allocates it
HEADER_ROOM = 64  # NNG counts protocol headers (up to 15 hops of 4 bytes) as message; recv_max_size is about bodies
MOST_BUFFER = 8192  # NNG's own cap for its queues
MOST_NAME = 63  # bytes of a name: NNG 1.11 writes longer ones past its 64 and the process dies (measured)
MOST_PATH = 107  # bytes of an ipc path: what a sockaddr_un holds; dialling more, NNG would try for ever
LONGEST_PAUSE = 86_400_000  # ms, a day between two tries of a dialler: NNG counts them in an int
SETTLE = 0.002  # seconds between the last send and the close of a listener: NNG leaks a connection still shaking hands
STRANGER = 0.1  # ... at most, while somebody is: who connects and never says a word is not waited for any longer
SCHEMES = ("tcp", "tcp4", "tcp6", "ipc", "unix", "abstract", "inproc", "ws", "ws4", "ws6", "wss", "wss4", "wss6")
TLS_SCHEMES = ("tls+tcp", "tls+tcp4", "tls+tcp6", "wss", "wss4", "wss6")

Addresses = str | Iterable[str] | None


class _Handle(pynng.Socket):  # type: ignore[misc]
    """pynng's socket, which closes when it is told to and not when it is collected.

    In a cycle of garbage its finalizer may run before ours, and would close NNG's socket without what has to be done
    first (``_shut``).
    """

    def __del__(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Stats:
    """What a socket has counted since it was opened. Messages, unless said otherwise.

    ``sent``: accepted for sending. ``received``: handed to, or ready for, the program. ``dropped``: let go by us, for
    want of room. ``too_large``: over ``recv_max_size`` where we see it (NNG closes the connection before that, but for
    inproc, and for ws and wss where this side dialled). ``bad``: bytes that were not what the protocol says. Both are
    counted when the message is opened, which is when the program receives. ``late``: replies after their deadline.
    ``duplicate``: second replies. ``resent``: requests sent again. ``lost``: gaps seen in numbered messages.
    ``written``, ``read``: by NNG, on connections still here; NNG counts neither on ws, wss and inproc. ``unwritten``:
    accepted and not written by NNG: queued, or, on PUB and BUS, for each peer still here, queued or dropped. ``pipes``:
    connections now; ``joined``, ``left``, ``refused`` (by ``admit``): ever, but for connections that were cut while
    they were being made.
    """

    sent: int = 0
    received: int = 0
    dropped: int = 0
    too_large: int = 0
    bad: int = 0
    late: int = 0
    duplicate: int = 0
    resent: int = 0
    lost: int = 0
    written: int = 0
    read: int = 0
    unwritten: int = 0
    pipes: int = 0
    joined: int = 0
    left: int = 0
    refused: int = 0


class Socket(Peers, Draining):
    """What all sockets share. All arguments are keywords.

    ``listen``, ``dial``: one address or several. ``name``: for messages and statistics. ``recv_max_size``: bytes of the
    largest message let in, UNLIMITED (0) is 1 GiB. ``recv_timeout``, ``send_timeout``: seconds, None waits for ever.
    ``recv_buffer``, ``recv_window``: messages and bytes read ahead. ``copy``: False gives messages as read-only
    memoryviews of the memory they came in, freed with the last reference, and not as bytes (PULL, PAIR, BUS, SUB
    without ``batch`` and ``sequence``; ``recv_msg`` copies all the same). ``send_buffer``: messages queued for sending.
    ``when_full``: "block", "drop" or "raise", as the protocol allows. ``tls``: for tls+tcp and wss. ``reconnect``:
    seconds between tries of a dialler at most. ``linger``: seconds that close may take to send what was accepted.
    ``admit``: called on an NNG thread with each new Pipe; false refuses the connection. ``batch``: many messages in
    one of NNG's, True or a Batch, at both ends or neither (PUSH, PULL, PAIR, BUS, PUB, SUB; see ``batch.py``);
    ``recv_max_size`` is then about each of them, and the buffers count batches.

    Raises ConfigError for a value or URL that cannot be used, Unreachable where it cannot listen, Forked.
    """

    _opener: ClassVar[Any]
    _ring_kind: ClassVar[type[Ring]] = PostedRing
    _depth: ClassVar[int] = DEPTH
    _batches_in: ClassVar[bool] = False
    _batches_out: ClassVar[bool] = False
    _batches_by_topic: ClassVar[bool] = False
    _sends_to_all: ClassVar[bool] = False
    _drains: ClassVar[bool] = False
    _nng_recv_buffer: ClassVar[bool] = False
    _nng_send_buffer: ClassVar[bool] = False
    _reads_at_once: ClassVar[bool] = False
    _refuses_late: ClassVar[bool] = False
    _lends: ClassVar[bool] = False
    _default_recv_buffer: ClassVar[int] = 1024
    _default_send_buffer: ClassVar[int] = 1024
    _policies: ClassVar[tuple[WhenFull, ...]] = ("block",)

    def __init__(
        self,
        *,
        listen: Addresses = None,
        dial: Addresses = None,
        name: str | None = None,
        recv_max_size: int = MIB,
        recv_timeout: float | None = None,
        send_timeout: float | None = None,
        recv_buffer: int | None = None,
        recv_window: int = WINDOW,
        copy: bool = True,
        send_buffer: int | None = None,
        when_full: WhenFull | None = None,
        tls: TLS | None = None,
        reconnect: float = 0.1,
        linger: float = 1.0,
        admit: Callable[[Pipe], bool] | None = None,
        batch: Batch | bool | None = None,
    ) -> None:
        self._reason: Closed | None = None
        self.name = _name(name)
        self._addresses: list[str] = []
        self._served: list[str] = []
        self._dialled: list[str] = []
        self._wss_diallers: list[Any] = []
        self._recv_timeout = _seconds("recv_timeout", recv_timeout)
        self._send_timeout = _seconds("send_timeout", send_timeout)
        self.linger = _seconds("linger", linger) or 0.0
        self._tls = tls
        self._kept: list[Any] = []
        self._life = threading.Lock()
        recv_max_size = _whole("recv_max_size", recv_max_size, 0, LARGEST) or LARGEST
        if recv_buffer is None:
            recv_buffer = self._default_recv_buffer
        recv_buffer = _whole("recv_buffer", recv_buffer, 1, MOST_BUFFER)
        recv_window = _whole("recv_window", recv_window, 1, 1 << 62)
        if send_buffer is None:
            send_buffer = self._default_send_buffer
        send_buffer = _whole("send_buffer", send_buffer, 1 if self._sends_to_all else 0, MOST_BUFFER)
        self._pause = _seconds("reconnect", reconnect) or 0.0
        pause = round(self._pause * 1000)
        if not 1 <= pause <= LONGEST_PAUSE:
            raise ConfigError("reconnect", f"{reconnect!r} is not from 0.001 s to a day", reconnect)
        policy = self._policies[0] if when_full is None else when_full
        self._batch = self._batching(batch)
        if not copy and not (self._lends and self._batch is None):
            raise ConfigError("copy", f"{type(self).__name__} cannot lend these messages", copy)
        if policy not in self._policies:
            why = "is not one of" if policy in get_args(WhenFull) else "is none of"
            raise ConfigError("when_full", f"{policy!r} {why} {self._policies} ({type(self).__name__})", policy)

        register(self)
        self._nng = _Handle(opener=type(self)._opener)
        self._socket_id = self._nng.socket
        depth = min(recv_buffer, self._depth)
        self._queue = Queue(self._socket_id, when_full=policy, where=repr(self))
        verifies = tls is not None and tls.demands
        self._refusing = Refusing() if self._refuses_late else None
        self._pipes = Pipes(self._nng, admit=admit, queue=self._queue, verifies=verifies, refusing=self._refusing)
        largest = recv_max_size if self._batch is None else max(recv_max_size, self._batch.size) + self._batch.overhead
        self._ring = self._ring_kind(self._socket_id, depth=depth, window=recv_window, limit=largest, where=repr(self))
        self._ring.refusing = self._refusing
        self._ring.lends = not copy
        self._largest = recv_max_size
        self._batcher: Batcher | None = None
        self._lane: Lane | None = None
        self._gone = False
        try:
            self._option("recv_max_size", min(largest, LARGEST) + HEADER_ROOM)
            self._option("reconnect_time_min", min(50, pause))
            self._option("reconnect_time_max", pause)
            if self._nng_recv_buffer:
                # the ring starts small: counting on its full depth, a burst would be dropped though there was room
                self._option("recv_buffer_size", max(1, recv_buffer - min(FIRST_DEPTH, depth)))
            if self._nng_send_buffer:
                self._option("send_buffer_size", send_buffer)
            if name is not None:
                self._nng.name = name
            # a peer that vanished without a word is noticed some day; faster is a matter of heartbeats above us
            self._option("tcp_keepalive", True)
            if self._batch is not None:
                self._set_up_batches(self._batch)
            self._set_up()
            if self._reads_at_once:
                self._ring.start()
            for url in _several("listen", listen):
                self.listen(url)
            for url in _several("dial", dial):
                self.dial(url)
        except BaseException:
            self._shut()
            raise

    def _set_up(self) -> None:
        """What a protocol has to do between opening and listening."""

    def _batching(self, batch: Batch | bool | None) -> Batch | None:
        if batch is None or batch is False:
            return None
        if not (self._batches_in or self._batches_out):
            raise ConfigError("batch", f"{type(self).__name__} has none: its messages are single by nature", batch)
        if batch is True:
            return Batch()
        if not isinstance(batch, Batch):
            raise ConfigError("batch", f"{batch!r} is neither True nor a Batch", batch)
        return batch

    def _set_up_batches(self, batch: Batch) -> None:
        """Pack what is sent, unpack what is received."""
        if self._batches_out:
            self._batcher = Batcher(self._queue, batch, self._pack, repr(self))
            if not self._batches_by_topic:
                self._lane = self._batcher.open()
        if self._batches_in:
            self._ring.split = self._split
            self._most_burst = BURST_OF_BATCHES

    def _pack(self, topic: bytes, items: Sequence[bytes]) -> bytes:
        return pack(items)

    def _split(self, message: Any, body: bytes) -> list[Any]:
        return unpack(body, largest=self._largest, peer=self._peer_of(message))

    def _peer_of(self, message: Any) -> str | None:
        pipe = self._pipes.find(pipe_id(message))
        return None if pipe is None else pipe.address

    def _option(self, name: str, value: Any) -> None:
        # pynng swallows errors of its setters, so what was set is read back
        try:
            setattr(self._nng, name, value)
            held = getattr(self._nng, name)
        except pynng.NNGException as refused:
            raise ConfigError(name, str(refused), value) from refused
        if held != value:
            raise ConfigError(name, f"NNG keeps {held} instead of {value}", value)

    # ------------------------------------------------------------------ addresses

    def listen(self, url: str) -> str:
        """Accept connections at ``url``; the address bound, with the port chosen where it was 0."""
        listener = self._endpoint("listen", url)
        address: str = listener.url
        parts = urlsplit(url)
        served = url
        if parts.scheme.startswith(("tcp", "ws", "tls")) and (
            address.startswith(f"{parts.scheme}://:") or _port(parts) == 0
        ):
            port = str(listener.local_address).rpartition(":")[2]
            host = parts.netloc.rpartition(":")[0]
            served = f"{parts.scheme}://{host}:{port}{parts.path}"
            address = served.replace("*", "0.0.0.0", 1) if host == "*" else served
        elif parts.scheme == "abstract" and not parts.netloc:
            address = str(listener.local_address)
        if parts.scheme.startswith("wss"):
            self._served.append(served)
        self._addresses.append(address)
        return address

    def dial(self, url: str) -> None:
        """Connect to ``url`` in the background, again and again, whether or not anybody listens there yet."""
        dialler = self._endpoint("dial", url)
        if url.startswith("wss"):
            self._wss_diallers.append(dialler)
        self._dialled.append(url)

    def _endpoint(self, what: str, url: str) -> Any:
        if not isinstance(url, str) or "://" not in url:
            raise ConfigError(what, f"{url}: not an address; it looks like tcp://host:port or ipc:///path", url)
        scheme = url.partition("://")[0]
        if scheme not in SCHEMES and scheme not in TLS_SCHEMES:
            known = ", ".join(sorted({*SCHEMES, *TLS_SCHEMES}))
            raise ConfigError(what, f"{url}: no transport {scheme!r} in this NNG; there are {known}", url)
        try:
            parts = urlsplit(url)
        except ValueError as malformed:  # brackets that do not match
            raise ConfigError(what, f"{url}: {malformed}", url) from malformed
        if what == "dial" and (why := _undialable(url, parts)):
            raise ConfigError(what, f"{url}: {why}", url)
        with self._life:
            self._check_open()
            try:
                if scheme in TLS_SCHEMES:
                    if self._tls is None:
                        raise ConfigError(what, f"{url}: needs tls=TLS(...)", url)
                    config = self._tls.config(server=what == "listen", host=parts.hostname or "")
                    self._kept.append(config)
                    self._nng.tls_config = config
                if what == "listen":
                    return self._nng.listen(url)
                return self._nng.dial(url, block=False)
            except pynng.NNGException as refused:
                mapped = error(refused.errno, what)
                if isinstance(mapped, ConfigError):
                    raise ConfigError(what, f"{url}: {mapped.why}", url) from refused
                if isinstance(mapped, Closed):
                    raise mapped from refused
                raise Unreachable(url, f"cannot {what}: {refused}") from refused

    @property
    def address(self) -> str:
        """The first address bound. Raises ConfigError on a socket that does not listen."""
        if not self._addresses:
            raise ConfigError("address", f"{self!r} does not listen")
        return self._addresses[0]

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses bound."""
        return tuple(self._addresses)

    def __repr__(self) -> str:
        where = self.name or " ".join([*self._addresses, *(f"-> {url}" for url in self._dialled)])
        return f"<{type(self).__name__}{' ' + where if where else ''}>"

    # ------------------------------------------------------------------ counters

    @property
    def stats(self) -> Stats:
        """The counters, read at one go."""
        written, read = (0, 0) if self._gone else self._pipes.written()
        return Stats(
            sent=self._queue.sent if self._batcher is None else self._batcher.accepted,
            received=self._ring.received,
            dropped=self._queue.dropped,
            too_large=self._ring.too_large,
            written=written,
            read=read,
            unwritten=self._unwritten_now(written),
            pipes=len(self._pipes.present),
            joined=self._pipes.joined,
            left=self._pipes.left,
            refused=self._pipes.refused,
            **{"bad": self._ring.bad, **self._counters()},
        )

    def _unwritten_now(self, written: int) -> int:
        if self._gone or not self._drains or self._pipes.blind() or not self._pipes.counted:
            return 0
        return max(0, self._unwritten(written + self._pipes.written_to_gone))

    def _counters(self) -> dict[str, int]:
        """What a protocol counts on top."""
        return {}

    # ------------------------------------------------------------------ the end

    @property
    def closed(self) -> bool:
        """Whether close has begun."""
        return self._reason is not None

    def close(self, linger: float | None = None) -> None:
        """Send what was accepted, for ``linger`` seconds at most (None: as the socket was told), then close.

        From any thread, at any time, any number of times; whoever waits on the socket raises Closed at once.
        """
        if self._refuse():
            try:
                self.drain(linger)
                if settling := self._settling():
                    time.sleep(settling)
                for pause in self._handshakes():
                    time.sleep(pause)
            finally:
                self._shut()

    async def aclose(self, linger: float | None = None) -> None:
        """``close`` for a task. Cancelled, it closes without sending the rest."""
        if self._refuse():
            try:
                await self.adrain(linger)
                if settling := self._settling():
                    await sleep(settling)
                for pause in self._handshakes():
                    await sleep(pause)
            finally:
                self._shut()
        else:
            await checkpoint_before()

    def _settling(self) -> float:
        """Seconds to wait before NNG's socket may be closed."""
        seconds = SETTLE if self._addresses else 0.0
        if self._refusing is not None:
            seconds = max(seconds, self._refusing.youth(LEAST))
        connected = sum(pipe.dialed and pipe.address.startswith("wss") for pipe in self.pipes)
        if connected < len(self._wss_diallers):
            seconds = max(seconds, calm(self._wss_diallers, self._pause))
        return seconds

    def _handshakes(self) -> Iterator[float]:
        """Seconds to wait, again and again, while a listener shakes hands with somebody."""
        until = time.monotonic() + STRANGER
        accepted = [pipe.address for pipe in self.pipes if not pipe.dialed]
        while shaking(self._addresses, accepted) and time.monotonic() < until:
            yield SETTLE
            accepted = [pipe.address for pipe in self.pipes if not pipe.dialed]

    def _refuse(self) -> bool:
        """Accept and hand out nothing more, and wake whoever waits; False if that was done before."""
        with self._life:
            if self._reason is not None:
                return False
            reason = self._reason = Closed(f"{self!r} is closed")
        if self._batcher is None:
            self._queue.refuse(reason)
        else:
            self._batcher.refuse(reason)  # what it accepted may still go, while close lingers
        self._ring.refuse(reason)
        self._pipes.wake()
        self._woken()
        return True

    def _shut(self) -> None:
        """Close NNG's socket: after this nothing of it is left."""
        self._refuse()
        with self._life:
            already, self._gone = self._gone or isinstance(self._reason, Forked), True
        if already:
            return
        assert self._reason is not None
        self._queue.refuse(self._reason)
        self._queue.close()
        if self._batcher is not None:
            self._queue.dropped += self._batcher.free()
        hold(self._served)
        self._nng.close()
        self._ring.free()
        if self._refusing is not None:
            self._refusing.free()
        self._free()
        unregister(self)

    def _free(self) -> None:
        """What a protocol has to give back, once NNG's socket is closed."""

    def _woken(self) -> None:
        """What a protocol has to wake when the socket has closed."""

    def _forked(self, reason: Forked) -> None:
        self._reason = reason
        self._gone = True  # so that nothing, not even a counter, is asked of NNG
        self._life = threading.Lock()
        self._queue.forked(reason)
        if self._batcher is not None:
            self._batcher.forked(reason)
        self._ring.forked(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Ctrl-C and cancellation do not linger
        self.close(0.0 if kind is not None and not issubclass(kind, Exception) else None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self.close(0.0)
        else:
            await self.aclose()

    def __del__(self) -> None:
        # no _gone: __init__ did not get as far as opening
        if getattr(self, "_gone", True) or isinstance(self._reason, Forked):
            return
        self._shut()
        warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)


def _seconds(what: str, value: float | None) -> float | None:
    if value is not None and not (isinstance(value, (int, float)) and 0 <= value < 1e9):
        raise ConfigError(what, f"{value!r} is not a number of seconds", value)
    return value


def _whole(what: str, value: int, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(what, f"{value!r} is not a whole number from {least} to {most}", value)
    return value


def _name(value: str | None) -> str | None:
    if value is not None and not (isinstance(value, str) and len(value.encode()) <= MOST_NAME and "\0" not in value):
        raise ConfigError("name", f"{value!r} is not text of at most {MOST_NAME} bytes", value)
    return value


def _undialable(url: str, parts: Any) -> str | None:
    """Why nobody can ever be found at ``url``, for what NNG takes and then tries in vain, for ever."""
    if parts.scheme.startswith(("tcp", "ws", "tls")):
        port = _port(parts)
        if port == 0 or (port is None and not parts.scheme.startswith("ws")):
            return "to dial takes a port from 1 to 65535"
    elif not url.partition("://")[2]:
        return "to dial takes a path or a name"
    elif parts.scheme in ("ipc", "unix") and len(url.partition("://")[2].encode()) > MOST_PATH:
        return f"a path of more than {MOST_PATH} bytes"
    return None


def _several(what: str, value: Addresses) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _port(parts: Any) -> int | None:
    try:
        return parts.port  # type: ignore[no-any-return]
    except ValueError:  # not a number, or too large a one
        return 0
