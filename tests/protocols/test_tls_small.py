"""Small messages under TLS, decrypted where they are read and encrypted where they are sent: what the peer may do
between them, and damage.
"""

from __future__ import annotations

import _ssl
import ctypes
import socket
import ssl
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from nngkit import protocols
from nngkit.protocols import TLS, Pull, Rep, Req
from nngkit.protocols._core import peer_queues as _peer_queues
from nngkit.protocols._core.connection import Connection
from nngkit.protocols._core.direct import SHORT
from nngkit.testing import Background, eventually
from tests.protocols.alarms import Interrupted, interrupt
from tests.protocols.raw_peer import LENGTH, PUSH, REP, REQ, connect, hello, read
from tests.protocols.test_signals import leave_reading_to_the_test
from tests.protocols.wires import WAIT

URL = "tls+tcp://127.0.0.1:0"
PROTOCOLS = str(Path(protocols.__file__).parent)
REQUESTED = 1  # SSL_KEY_UPDATE_REQUESTED: the peer changes its keys too
HEADER = b"\x80\0\0\1"  # of a request
TAG = 5 + 1 + 16  # bytes that a record of TLS 1.3 has beside its plaintext: head, type, tag

_openssl = ctypes.CDLL(_ssl.__file__)  # and what it is linked with
_SSL = 3 * ctypes.sizeof(ctypes.c_void_p)  # offset of the SSL* in CPython's object, after its head and a reference


class Peer:
    """A dialing peer by Python's `ssl`: ``socket`` is what is under TLS."""

    def __init__(self, address: str, protocol: int, tls: TLS) -> None:
        self.socket = connect(address.replace("tls+", ""))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = tls.context(server=False).wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._until_done(self.tls.do_handshake)
        self.write(hello(protocol))
        assert self._read(8).startswith(b"\0SP\0")

    def _until_done(self, call: Callable[[], Any]) -> Any:
        while True:
            try:
                return call()
            except ssl.SSLWantReadError:
                self.flush()
                if not (received := self.socket.recv(1 << 16)):
                    raise EOFError from None
                self._incoming.write(received)
            finally:
                self.flush()

    def flush(self, piece: int = 1 << 16) -> None:
        """Send what is encrypted, in pieces of that many bytes."""
        sent = self._outgoing.read()
        for at in range(0, len(sent), piece):
            self.socket.sendall(sent[at : at + piece])

    def write(self, data: bytes, piece: int = 1 << 16) -> None:
        """Send a record."""
        self.tls.write(data)
        self.flush(piece)

    def send(self, message: bytes) -> None:
        """Send a frame in a record."""
        self.write(frame(message))

    def recv(self) -> bytes:
        return self._read(*LENGTH.unpack(self._read(8)))

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += self._until_done(partial(self.tls.read, count - len(data)))
        return data

    def change_keys(self, how: int) -> None:
        plain = ctypes.c_void_p.from_address(id(self.tls._sslobj) + _SSL)  # type: ignore[attr-defined]
        assert _openssl.SSL_key_update(plain, how) == 1
        self.tls.do_handshake()
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def frame(message: bytes) -> bytes:
    return LENGTH.pack(len(message)) + message


@pytest.fixture
def by_the_machine(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets an item for each reception that passes the machine."""
    fed: list[int] = []
    decrypt = Connection._decrypt

    def counted(self: Connection) -> None:
        fed.append(1)
        decrypt(self)

    monkeypatch.setattr(Connection, "_decrypt", counted)
    return fed


def serve(rep: Rep) -> None:
    for request in rep:
        request.reply(request.body)


def counted_by(fed: list[int], request: Callable[[int], object]) -> int:
    """Return how many of 50 requests passed the machines of both ends, beside the first ones."""
    for number in range(10):
        request(number)
    before = len(fed)
    for number in range(50):
        request(number)
    return len(fed) - before


def test_requests_and_replies_pass_by_the_machine(shared_tls: TLS, by_the_machine: list[int]) -> None:
    with Rep(listen=URL, tls=shared_tls) as rep, Req(dial=rep.address, tls=shared_tls) as req:
        serving = Background(serve, rep)

        def ask(number: int) -> None:
            assert req.request(b"%d" % number, timeout=WAIT) == b"%d" % number

        assert counted_by(by_the_machine, ask) == 0
        rep.close()
        serving.result()


def test_eight_threads_share_both_ends(shared_tls: TLS) -> None:
    with Rep(listen=URL, tls=shared_tls) as rep, Req(dial=rep.address, tls=shared_tls) as req:

        def ask(thread: int) -> None:
            for number in range(100):
                body = b"%d %d" % (thread, number) + bytes(number * thread)
                assert req.request(body, timeout=WAIT) == body

        serving = [Background(serve, rep) for _ in range(8)]
        for asking in [Background(ask, thread) for thread in range(8)]:
            asking.result()
        assert (req.stats.left, req.stats.resent, req.stats.late, rep.stats.dropped) == (0, 0, 0, 0)
        rep.close()
        for thread in serving:
            thread.result()


# ---- what the peer may send beside messages --------------------------------------------------------------------------


@pytest.mark.parametrize("how", [0, REQUESTED])
def test_a_peer_that_changes_its_keys_is_understood(how: int, shared_tls: TLS) -> None:
    with Rep(listen=URL, tls=shared_tls) as rep, Peer(rep.address, REQ, shared_tls) as peer:
        for number in range(30):
            peer.send(HEADER + b"%d" % number)
            request = rep.recv(timeout=WAIT)
            assert request.body == b"%d" % number
            if number % 3 == 1:
                peer.change_keys(how)
            request.reply(request.body)
            assert peer.recv() == HEADER + b"%d" % number
            if number % 3 == 2:
                peer.change_keys(how)
        assert rep.stats.left == 0


def test_tickets_of_a_listener_are_taken_in(shared_tls: TLS) -> None:
    """A listener of another program sends them after the handshake, beside the first messages."""
    context = shared_tls.context(server=True)
    context.num_tickets = 3
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(WAIT)
        with Req(dial=f"tls+tcp://127.0.0.1:{server.getsockname()[1]}", tls=shared_tls) as req:
            with context.wrap_socket(server.accept()[0], server_side=True) as peer:
                peer.settimeout(WAIT)
                read(peer, 8)
                peer.sendall(hello(REP))
                for number in range(20):
                    asking = Background(req.request, b"%d" % number, timeout=WAIT)
                    peer.sendall(frame(read(peer, *LENGTH.unpack(read(peer, 8)))))
                    assert asking.result() == b"%d" % number
            assert req.stats.joined == 1


@pytest.mark.parametrize("how", ["in bytes", "in records", "two in a record"])
def test_messages_in_other_pieces_are_whole(how: str, shared_tls: TLS) -> None:
    with Pull(listen=URL, tls=shared_tls) as pull, Peer(pull.address, PUSH, shared_tls) as peer:
        got: list[bytes] = []
        for number in range(0, 60, 3):
            first, second, third = (b"%04d" % one for one in range(number, number + 3))
            peer.send(first)
            match how:
                case "in records":
                    for byte in frame(second) + frame(third):
                        peer.write(bytes([byte]))
                case "two in a record":
                    peer.write(frame(second) + frame(third))
                case _:
                    peer.write(frame(second), piece=1)
                    peer.write(frame(third), piece=7)
            got += [pull.recv(timeout=WAIT) for _ in range(3)]
        assert got == [b"%04d" % one for one in range(60)]


def test_what_follows_a_reception_that_was_full_is_read(shared_tls: TLS) -> None:
    """Its record, of one message, was as long as the reception: no event reports what had arrived behind it."""
    body = bytes(SHORT - TAG - 8)  # beside the head of a frame
    with Pull(listen=URL, tls=shared_tls) as pull, Peer(pull.address, PUSH, shared_tls) as peer:
        for number in range(5):
            peer.send(b"%d" % number)
            assert pull.recv(timeout=WAIT) == b"%d" % number
        for message in (body, b"behind it"):
            peer.tls.write(frame(message))
        peer.flush()
        assert (pull.recv(timeout=WAIT), pull.recv(timeout=WAIT)) == (body, b"behind it")


def test_the_notice_that_a_peer_closes_ends_its_connection(shared_tls: TLS) -> None:
    with Pull(listen=URL, tls=shared_tls) as pull, Peer(pull.address, PUSH, shared_tls) as peer:
        for number in range(5):
            peer.send(b"%d" % number)
            assert pull.recv(timeout=WAIT) == b"%d" % number
        with pytest.raises(ssl.SSLWantReadError):
            peer.tls.unwrap()
        peer.flush()  # the stream itself stays open
        eventually(lambda: not pull.pipes)
        assert not pull.cuts


def test_a_damaged_record_ends_its_connection(shared_tls: TLS) -> None:
    with Pull(listen=URL, tls=shared_tls) as pull, Peer(pull.address, PUSH, shared_tls) as peer:
        for number in range(5):
            peer.send(b"%d" % number)
            assert pull.recv(timeout=WAIT) == b"%d" % number
        peer.socket.sendall(b"\x17\3\3\0\x30" + bytes(48))
        eventually(lambda: pull.stats.cut == 1)
        assert ["tls" in one.reason for one in pull.cuts] == [True], pull.cuts
        assert not pull.pipes


# ---- signal handlers that raise --------------------------------------------------------------------------------------


def test_a_request_that_is_interrupted_anywhere_leaves_its_connection_whole(shared_tls: TLS) -> None:
    which, reached = 0, True
    with Rep(listen=URL, tls=shared_tls) as rep, Req(dial=rep.address, tls=shared_tls) as req:
        serving = Background(serve, rep)
        while reached:
            with interrupt(which, PROTOCOLS) as done:
                req.request(b"interrupted", timeout=WAIT)
            reached = bool(done)
            assert req.request(b"%d" % which, timeout=WAIT) == b"%d" % which, done
            which += 1
        assert (req.stats.left, rep.stats.left, req.stats.resent) == (0, 0, 0)
        rep.close()
        serving.result()
    assert which > 30


def test_a_reply_that_is_interrupted_anywhere_is_sent_whole_or_not_at_all(
    shared_tls: TLS, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_peer_queues, "BURST_GAP", 0.0)  # two replies in a row go past the queue too
    which, reached, sent = 0, True, 0
    with Rep(listen=URL, tls=shared_tls) as rep, Peer(rep.address, REQ, shared_tls) as peer:
        while reached:
            peer.write(frame(HEADER + b"first") + frame(HEADER + b"second"))
            first, second = rep.recv(timeout=WAIT), rep.recv(timeout=WAIT)
            with interrupt(which, PROTOCOLS) as done:
                first.reply(first.body)
            reached = bool(done)
            if rep.stats.sent > sent:
                assert peer.recv() == HEADER + b"first", done
            second.reply(second.body)
            assert peer.recv() == HEADER + b"second", done
            sent = rep.stats.sent
            which += 1
        assert rep.stats.left == 0
    assert which > 10


def interrupting(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``call``, but OpenSSL has done its part when a signal handler raises in it."""

    def interrupted(*arguments: Any) -> None:
        call(*arguments)
        raise Interrupted

    return interrupted


def test_an_encryption_that_is_interrupted_is_sent_once(shared_tls: TLS) -> None:
    with Rep(listen=URL, tls=shared_tls) as rep, Peer(rep.address, REQ, shared_tls) as peer:
        rep.wait_for_peers(1, WAIT)
        (connection,) = rep._state.joined()
        assert connection.tls is not None
        write = connection.tls.write
        for number in range(10):
            peer.send(HEADER + b"%d" % number)
            request = rep.recv(timeout=WAIT)
            connection.tls.write = interrupting(write)
            with pytest.raises(Interrupted):
                request.reply(b"%d" % number)
            connection.tls.write = write
            assert peer.recv() == HEADER + b"%d" % number
        assert (rep.stats.written, rep.stats.left) == (10, 0)


def test_a_decryption_that_is_interrupted_ends_its_connection(shared_tls: TLS) -> None:
    with Pull(listen=URL, tls=shared_tls) as pull, Peer(pull.address, PUSH, shared_tls) as peer:
        leave_reading_to_the_test(pull)
        (connection,) = pull._state.joined()
        assert connection.tls is not None
        connection.tls.read = interrupting(connection.tls.read)
        connection.small = False  # it is decrypted for the machine
        peer.send(b"lost")
        with pytest.raises(Interrupted):
            pull.recv(timeout=WAIT)
        eventually(lambda: not pull.pipes)
        assert ["interrupted the decryption" in one.reason for one in pull.cuts] == [True]
        with Peer(pull.address, PUSH, shared_tls) as other:
            other.send(b"next")
            assert pull.recv(timeout=WAIT) == b"next"
