"""Messages of sizes around every boundary, in a burst, on every transport and pattern, sent by either side.

The boundaries: an HTTP or SP head, the buffers of reading and writing, what a Unix socket brings at once, a fragment of
a WebSocket, and the buffers that NNG takes in one write: a fragment takes two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from queue import SimpleQueue
from typing import AnyStr, Final

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.connection import Connection
from websockets.sync.server import serve
from websockets.typing import Subprotocol

from nngkit.protocols import UNLIMITED, Pair0
from nngkit.testing import CALLERS, PATTERNS, Background, Pattern, Wire, eventually
from tests.protocols.wires import WAIT, available_memory

MIB = 1 << 20
UNIX = 219_264  # bytes that one read on a Unix socket brings at most
EDGES = (126, 4096, 8192, 16 * 1024, 32 * 1024, 64 * 1024, UNIX, 256 * 1024, MIB)
LARGE_EDGES = (2 * MIB, 3 * MIB, 4 * MIB, 5 * MIB, 8 * MIB, 16 * MIB)
TRANSPORTS = ("tcp", "tls+tcp", "ipc", "abstract", "inproc", "ws", "wss")
SIDES = pytest.mark.parametrize("first_listens", [True, False], ids=["listener sends", "dialer sends"])
PAIR: Final = Subprotocol("pair.sp.nanomsg.org")


def around(edges: Sequence[int]) -> list[int]:
    return [0, 1, *(edge + more for edge in edges for more in (-1, 0, 1))]


def patterned(number: int, size: int) -> bytes:
    """Return bytes in which a part that is missing, doubled or moved shows."""
    return (b"%07d|" % number + bytes(range(251))) * (size // 259 + 1)


def bodies(sizes: Sequence[int]) -> list[bytes]:
    return [patterned(number, size)[:size] for number, size in enumerate(sizes)]


def carried(pattern: Pattern, wire: Wire, first_listens: bool, sizes: Sequence[int]) -> bool:
    """Send a burst of messages of these sizes; return True if all have arrived as they were sent."""
    sent = bodies(sizes)
    with pattern.connected(wire, first_listens=first_listens, recv_max_size=UNLIMITED, send_window=1 << 30) as (
        first,
        second,
    ):
        if pattern.answered:
            return pattern.carry(CALLERS[0], first, second, sent) == sent
        second_reads = Background(lambda: [second.recv(timeout=WAIT) for _ in sent])
        first.send_many(sent)
        return bool(second_reads.result() == sent)


@SIDES
@pytest.mark.parametrize("wire", TRANSPORTS, indirect=True)
@pytest.mark.parametrize("pattern", ["pipeline"], indirect=True)
def test_a_burst_of_sizes_around_each_boundary(pattern: Pattern, wire: Wire, first_listens: bool) -> None:
    assert carried(pattern, wire, first_listens, [*around(EDGES), 4 * MIB, 4 * MIB + 1, 5 * MIB])


@SIDES
@pytest.mark.parametrize("wire", ["ws"], indirect=True)
@pytest.mark.parametrize("pattern", [one.name for one in PATTERNS if one.name != "pipeline"], indirect=True)
def test_every_pattern_takes_more_fragments_than_a_write(pattern: Pattern, wire: Wire, first_listens: bool) -> None:
    assert carried(pattern, wire, first_listens, [4 * MIB + 1, 10, 5 * MIB])


@pytest.mark.slow
@SIDES
@pytest.mark.parametrize("wire", TRANSPORTS, indirect=True)
def test_every_size_on_every_transport_and_pattern(pattern: Pattern, wire: Wire, first_listens: bool) -> None:
    assert carried(pattern, wire, first_listens, around([*EDGES, *LARGE_EDGES])[::-1])


@pytest.mark.slow
@pytest.mark.timeout(300)
@SIDES
@pytest.mark.parametrize("wire", TRANSPORTS, indirect=True)
@pytest.mark.parametrize("pattern", ["pipeline"], indirect=True)
def test_a_message_of_1_gib(pattern: Pattern, wire: Wire, first_listens: bool) -> None:
    available = available_memory()
    if available < 6 << 30:  # a masked copy, and the received body twice at its end
        pytest.skip(f"needs 6 GiB of free memory, there are {available >> 20} MiB")
    sent = bytes(range(256)) * (1 << 22)
    with pattern.connected(wire, first_listens=first_listens, recv_max_size=UNLIMITED, linger=None) as (push, pull):
        reading = Background(lambda: pull.recv(timeout=240))
        push.send(sent, timeout=240)
        assert reading.result(timeout=240) == sent


# ---- foreign peers over WebSocket ------------------------------------------------------------------------------------


def exchange(ours: Pair0, theirs: Connection, sizes: Sequence[int], fragment: int) -> None:
    """Send messages of these sizes both ways in bursts; to us each whole and in fragments."""
    sent = bodies(sizes)
    reading = Background(lambda: [ours.recv(timeout=WAIT) for _ in range(2 * len(sent))])
    for body in sent:
        theirs.send(body)
        theirs.send(cut(body, fragment))
    assert reading.result() == [body for body in sent for _ in range(2)]
    sending = Background(ours.send_many, sent, timeout=WAIT)
    assert [theirs.recv(timeout=WAIT) for _ in sent] == sent
    sending.result()


def cut(body: AnyStr, size: int) -> Iterator[AnyStr]:
    """Yield ``body`` in fragments of ``size`` bytes, or larger ones if they would be more than 100."""
    size = max(size, len(body) // 100)
    return (body[at : at + size] for at in range(0, len(body) or 1, size))


@contextmanager
def foreign_client(ours: Pair0) -> Iterator[Connection]:
    with connect(ours.address, subprotocols=[PAIR], max_size=None, compression=None, open_timeout=WAIT) as theirs:
        yield theirs


@contextmanager
def foreign_server(ours: Pair0) -> Iterator[Connection]:
    arrived: SimpleQueue[Connection] = SimpleQueue()
    over = threading.Event()

    def handle(theirs: Connection) -> None:
        arrived.put(theirs)
        over.wait(2 * WAIT)

    with serve(handle, "127.0.0.1", 0, subprotocols=[PAIR], max_size=None, compression=None) as server:
        serving = Background(server.serve_forever)
        ours.dial(f"ws://127.0.0.1:{server.socket.getsockname()[1]}/")
        try:
            yield arrived.get(timeout=WAIT)
        finally:
            over.set()
            server.shutdown()
            serving.result()


FOREIGN = pytest.mark.parametrize("foreign", [foreign_client, foreign_server], ids=["client", "server"])


@FOREIGN
@pytest.mark.parametrize(
    ("fragment", "edges"),
    [
        (64 * 1024, [126, 64 * 1024, MIB]),
        *(
            pytest.param(size, [*EDGES, 4 * MIB, 5 * MIB, 16 * MIB], marks=pytest.mark.slow)
            for size in (1, 125, 64 * 1024, MIB)
        ),
    ],
)
def test_fragments_of_a_foreign_peer(
    foreign: Callable[[Pair0], AbstractContextManager[Connection]], fragment: int, edges: list[int]
) -> None:
    listen = "ws://127.0.0.1:0" if foreign is foreign_client else None
    with Pair0(listen=listen, recv_max_size=UNLIMITED) as ours, foreign(ours) as theirs:
        ours.wait_for_peers(1, WAIT)
        exchange(ours, theirs, around(edges), fragment)


@pytest.mark.parametrize("size", [0, 126, 64 * 1024, MIB, pytest.param(16 * MIB, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fragmented", [False, True], ids=["whole", "fragmented"])
def test_a_text_of_any_size_is_refused(size: int, fragmented: bool) -> None:
    text = "x" * size
    with Pair0(listen="ws://127.0.0.1:0", recv_max_size=UNLIMITED) as ours:
        with foreign_client(ours) as theirs:
            with suppress(ConnectionClosed):  # we may refuse it at its first fragment
                theirs.send(cut(text, 64 * 1024) if fragmented else text)
            with pytest.raises(ConnectionClosed) as refused:
                theirs.recv(timeout=WAIT)
        if size < 8192:  # while a peer still sends, the reset that answers it may overtake the close frame
            assert refused.value.rcvd is not None
            assert refused.value.rcvd.code == 1003
        eventually(lambda: (ours.stats.cut, ours.stats.bad) == (1, 1))
        assert "text" in ours.cuts[0].reason
