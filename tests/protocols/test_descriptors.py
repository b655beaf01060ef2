"""The descriptor of a stream is found among sockets of all kinds, which are only examined."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from nngkit.protocols import Pair0, Pull, Push
from nngkit.protocols._nng import descriptors as _descriptors
from nngkit.testing import eventually
from tests.protocols.wires import WAIT

pytestmark = pytest.mark.skipif(not _descriptors.available, reason="descriptors are looked up on Linux only")


@pytest.fixture
def others() -> Iterator[list[socket.socket]]:
    """Open sockets of all kinds, which must not be changed."""
    with ExitStack() as stack:
        made = [
            socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            socket.socket(socket.AF_INET6, socket.SOCK_STREAM),
            *socket.socketpair(),
        ]
        for one in made:
            stack.enter_context(one)
        yield made


def tcp_pair(stack: ExitStack, host: str = "127.0.0.1") -> tuple[socket.socket, socket.socket]:
    listener = stack.enter_context(
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    )
    dialed = stack.enter_context(socket.create_connection(listener.getsockname()[:2]))
    return dialed, stack.enter_context(listener.accept()[0])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_tcp_connection_is_found_by_its_two_ends(host: str, others: list[socket.socket]) -> None:
    with ExitStack() as stack:
        pairs = [tcp_pair(stack, host) for _ in range(_descriptors.NEAR)]  # the first is no longer near the end
        for pair in (pairs[0], pairs[-1]):
            for one in pair:
                local, remote = one.getsockname()[:2], one.getpeername()[:2]
                assert _descriptors.by_names(local, remote) == one.fileno()
        dialed, _ = pairs[0]
        names = dialed.getsockname()[:2], dialed.getpeername()[:2]
        dialed.close()
        assert _descriptors.by_names(*names) is None


def far_away(one: socket.socket) -> socket.socket:
    """Return the socket at a descriptor that is never near the lowest free one, whatever other threads open."""
    number = fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 500)
    one.close()
    return socket.socket(fileno=number)


def test_one_search_passes_all_that_were_connected_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = Mock(wraps=_descriptors._all)
    monkeypatch.setattr(_descriptors, "_all", searched)
    with ExitStack() as stack:
        ends = [stack.enter_context(far_away(one)) for _ in range(8) for one in tcp_pair(stack)]
        for one in ends:
            assert _descriptors.by_names(one.getsockname(), one.getpeername()) == one.fileno()
        assert searched.call_count == 1


def test_a_datagram_socket_between_the_same_ends_is_ignored() -> None:
    with ExitStack() as stack:
        dialed, _ = tcp_pair(stack)
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(dialed.getsockname())
        datagrams.connect(dialed.getpeername())
        assert _descriptors.by_names(dialed.getsockname(), dialed.getpeername()) == dialed.fileno()


def test_a_default_timeout_of_the_program_is_not_set_on_examined_sockets() -> None:
    one, other = socket.socketpair()
    with one, other:
        socket.setdefaulttimeout(5)
        try:
            assert _descriptors.by_names(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(one.fileno())


def test_a_unix_socket_is_found_as_the_only_newcomer(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "s")
    with ExitStack() as stack, _descriptors.one_at_a_time:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen()
        _descriptors.look(path, dialed=True)
        assert _descriptors.newcomer(path, dialed=False) is None
        first = stack.enter_context(socket.socket(socket.AF_UNIX))
        first.connect(path)
        assert _descriptors.newcomer(path, dialed=True) == first.fileno()
        assert _descriptors.newcomer(path, dialed=True) is None, "it is no newcomer any more"
        accepted = stack.enter_context(listener.accept()[0])
        assert _descriptors.newcomer(path, dialed=False) == accepted.fileno()
        for _ in range(2):
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(path)
        assert _descriptors.newcomer(path, dialed=True) is None, "which of the two?"


@pytest.mark.parametrize("scheme", ["tcp", "ipc", "abstract", "inproc", "ws"])
def test_every_connection_is_read_by_its_descriptor(scheme: str, tmp_path: Path) -> None:
    """Eight threads dial at once, and all sixteen ends are identified."""
    where = {"tcp": "tcp://127.0.0.1:0", "ws": "ws://127.0.0.1:0", "ipc": f"ipc://{tmp_path}/s"}
    address = where.get(scheme, f"{scheme}://nngkit-{os.getpid()}")
    with ExitStack() as stack:
        pull = stack.enter_context(Pull(listen=address))
        pushes: list[Push] = []
        threads = [threading.Thread(target=lambda: pushes.append(Push(dial=pull.address))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for push in pushes:
            stack.enter_context(push)
        for number, push in enumerate(pushes):
            push.send(b"%d" % number)
        assert sorted(int(pull.recv(timeout=WAIT)) for _ in range(8)) == list(range(8))

        def polled(sock: Any) -> list[int]:
            return [one.descriptor for one in sock._state.joined() if one.polled]

        numbers = set(eventually(lambda: len(polled(pull)) == 8 and polled(pull)) or ())
        for push in pushes:
            numbers.update(eventually(partial(polled, push)))
        assert len(numbers) == 16


def test_a_connection_whose_descriptor_is_not_found_is_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_descriptors, "by_names", lambda local, remote, expected=None: None)
    with Pair0(listen="tcp://127.0.0.1:0") as one, Pair0(dial=one.address) as other:
        other.send(b"to one")
        assert one.recv(timeout=WAIT) == b"to one"
        one.send(b"to the other")
        assert other.recv(timeout=WAIT) == b"to the other"
        assert not any(connection.polled for sock in (one, other) for connection in sock._state.joined())


def test_a_socket_that_only_sends_needs_no_descriptor_besides_its_connection() -> None:
    with ExitStack() as stack:
        pull = stack.enter_context(Pull(listen="tcp://127.0.0.1:0"))
        with Push(dial=pull.address) as push:  # the first one opens descriptors that all share
            push.send(b"x")
            assert pull.recv(timeout=WAIT) == b"x"
        eventually(lambda: not pull.pipes)
        before = len(os.listdir("/proc/self/fd"))
        for number in range(20):
            push = stack.enter_context(Push(dial=pull.address))
            push.send(b"%d" % number)
            assert pull.recv(timeout=WAIT) == b"%d" % number
        assert len(os.listdir("/proc/self/fd")) <= before + 2 * 20 + 2  # and the one that the Pull waits with


def test_a_listener_lets_more_connections_wait(others: list[socket.socket]) -> None:
    with ExitStack() as stack:
        expected = _descriptors.lowest_free()
        assert expected is not None
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1))
        host, port = listener.getsockname()
        assert _descriptors.raise_backlog(port, others[0].fileno())  # found although it is not the expected one
        for _ in range(50):  # none is accepted; over the queue's length the handshake would not complete
            stack.enter_context(socket.create_connection((host, port), timeout=WAIT))
        assert not _descriptors.raise_backlog(1, expected)


def test_any_number_of_descriptors_is_searched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_descriptors, "MOST", 4)
    with ExitStack() as stack:
        ends = [stack.enter_context(far_away(one)) for _ in range(3) for one in tcp_pair(stack)]
        index = _descriptors.Index()
        for one in ends:
            names = one.getsockname(), one.getpeername()
            assert _descriptors.by_names(*names) is None
            assert index.find(*names) == one.fileno()
        closed = ends[0]
        names = closed.getsockname(), closed.getpeername()
        closed.close()
        assert index.find(*names) is None
