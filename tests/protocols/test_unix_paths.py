"""Paths of Unix sockets: files of others are never removed, and of several listeners one has the path."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from nngkit.errors import ConfigError, Unreachable
from nngkit.protocols import Pull, Push
from nngkit.protocols._nng import unix_paths as _unix_paths
from tests.protocols.wires import WAIT

MANY = 8  # listeners that start at once


@pytest.fixture
def place(sockets: Path, request: pytest.FixtureRequest) -> Path:
    """A path at which there is nothing, in a folder of its own."""
    folder = sockets / f"{os.getpid()}-{abs(hash(request.node.nodeid)) % 10**8}"
    folder.mkdir()
    return folder / "s"


def bound(path: Path, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """Return a socket of another program's, bound at ``path``."""
    one = socket.socket(socket.AF_UNIX, kind)
    one.bind(str(path))
    return one


def dead(path: Path) -> None:
    """Leave a socket as a killed listener does."""
    with bound(path) as one:
        one.listen()


def regular(path: Path) -> None:
    path.write_text("precious")


def link_to_file(path: Path) -> None:
    regular(path.with_name("target"))
    path.symlink_to(path.with_name("target"))


def link_to_dead(path: Path) -> None:
    dead(path.with_name("target"))
    path.symlink_to(path.with_name("target"))


def identities(folder: Path) -> dict[str, tuple[int, int]]:
    return {one.name: (one.lstat().st_ino, one.lstat().st_mode) for one in folder.iterdir()}


NO_SOCKETS: list[Callable[[Path], object]] = [regular, Path.mkdir, os.mkfifo, link_to_file, link_to_dead]


@pytest.mark.parametrize("scheme", ["ipc", "unix"])
@pytest.mark.parametrize("make", NO_SOCKETS, ids=lambda make: make.__name__)
def test_what_is_no_socket_is_refused_and_stays(place: Path, make: Callable[[Path], object], scheme: str) -> None:
    make(place)
    before = identities(place.parent)
    with pytest.raises(Unreachable, match="no socket"):
        Pull(listen=f"{scheme}://{place}")
    assert identities(place.parent) == before


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET], ids=str)
def test_a_live_socket_of_another_program_is_refused_and_stays(place: Path, kind: int) -> None:
    with bound(place, kind) as other:
        if kind != socket.SOCK_DGRAM:
            other.listen(0)
        before = identities(place.parent)
        for _ in range(3):  # which fill its queue
            with pytest.raises(Unreachable, match="in use"):
                Pull(listen=f"ipc://{place}")
        assert identities(place.parent) == before


def test_a_live_listener_of_ours_goes_on(place: Path) -> None:
    with Pull(listen=f"ipc://{place}") as first:
        for _ in range(3):
            with pytest.raises(Unreachable, match="in use"):
                Pull(listen=f"unix://{place}")
        with Push(dial=first.address) as push:
            push.send(b"still")
            assert first.recv(timeout=WAIT) == b"still"
    assert not place.exists()


def test_a_dead_listeners_socket_is_replaced(place: Path) -> None:
    dead(place)
    with Pull(listen=f"ipc://{place}") as pull, Push(dial=pull.address) as push:
        push.send(b"came")
        assert pull.recv(timeout=WAIT) == b"came"
    assert identities(place.parent) == {}


def test_a_listener_whose_path_was_taken_leaves_the_others_socket(place: Path) -> None:
    first = Pull(listen=f"ipc://{place}")
    place.unlink()
    with Pull(listen=f"ipc://{place}") as second:
        first.close()
        with Push(dial=second.address) as push:
            push.send(b"still")
            assert second.recv(timeout=WAIT) == b"still"
    assert identities(place.parent) == {}


@pytest.mark.parametrize("make", [dead, *NO_SOCKETS], ids=lambda make: make.__name__)
def test_a_closed_listener_leaves_any_file_that_took_its_path(place: Path, make: Callable[[Path], object]) -> None:
    with Pull(listen=f"ipc://{place}"):
        place.unlink()
        make(place)
        before = identities(place.parent)
    assert identities(place.parent) == before


def listening_at_once(url: str) -> int:
    """Start listeners at ``url`` at once; return how many listen."""
    start, listening = threading.Barrier(MANY), list[Pull]()

    def listen() -> None:
        start.wait(WAIT)
        with suppress(Unreachable):
            listening.append(Pull(listen=url))

    threads = [threading.Thread(target=listen) for _ in range(MANY)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(WAIT)
    try:
        if len(listening) == 1:
            with Push(dial=url) as push:
                push.send(b"came")
                assert listening[0].recv(timeout=WAIT) == b"came"
    finally:
        for pull in listening:
            pull.close()
    return len(listening)


def test_of_listeners_that_start_at_once_one_has_the_path(place: Path) -> None:
    for _ in range(20):
        dead(place)
        assert listening_at_once(f"ipc://{place}") == 1


def test_of_listeners_that_start_at_once_one_has_the_abstract_name() -> None:
    for turn in range(5):
        assert listening_at_once(f"abstract://nngkit-once-{os.getpid()}-{turn}") == 1


LISTEN = """
import sys
from nngkit.errors import Unreachable
from nngkit.protocols import Pull
print("ready", flush=True)
sys.stdin.readline()
try:
    pull = Pull(listen=sys.argv[1])
    print("listens", flush=True)
except Unreachable:
    print("refused", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_of_processes_that_start_at_once_one_has_the_path(place: Path) -> None:
    for _ in range(5):
        with suppress(FileNotFoundError):
            place.unlink()
        dead(place)
        command = [sys.executable, "-c", LISTEN, f"ipc://{place}"]
        processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
        ]
        try:
            for one in processes:
                assert one.stdout is not None
                assert one.stdout.readline() == "ready\n"
            for one in processes:
                assert one.stdin is not None
                one.stdin.write("\n")
                one.stdin.flush()
            said = [one.stdout.readline() for one in processes if one.stdout is not None]
            assert sorted(said) == ["listens\n", "refused\n", "refused\n", "refused\n"]
        finally:
            for one in processes:
                one.kill()  # which leaves a dead listener's socket
                one.communicate()


def test_a_folder_that_another_program_has_locked(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_unix_paths, "PATIENCE", 0.02)
    with Pull(listen=f"ipc://{place}") as pull:
        folder = os.open(place.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            with pytest.raises(Unreachable, match="folder is locked"):
                pull.listen(f"ipc://{place}2")
            pull.close()  # waits no longer, and removes its socket
        finally:
            os.close(folder)
    assert identities(place.parent) == {}


# ---- permissions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o777, 0o000])
def test_permissions(place: Path, mode: int) -> None:
    with Pull(listen=f"ipc://{place}", ipc_mode=mode):
        assert stat.S_IMODE(place.lstat().st_mode) == mode


def test_permissions_of_several_addresses(place: Path) -> None:
    with Pull(listen=["tcp://127.0.0.1:0", f"unix://{place}"], ipc_mode=0o600) as pull:
        pull.listen(f"ipc://{place}2")
        assert [stat.S_IMODE(one.lstat().st_mode) for one in place.parent.iterdir()] == [0o600] * 2


@pytest.mark.parametrize("mode", [-1, 0o1777, 0o100600, "600", True])
def test_permissions_that_are_refused(place: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match="ipc_mode"):
        Pull(listen=f"ipc://{place}", ipc_mode=mode)
    assert not place.exists()


def test_an_abstract_name_has_no_permissions() -> None:
    with pytest.raises(ConfigError, match="ipc_mode"):
        Pull(listen=f"abstract://nngkit-mode-{os.getpid()}", ipc_mode=0o600)


CONNECT = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
print("ready", flush=True)
while True:
    one = socket.socket(socket.AF_UNIX)
    one.setblocking(False)
    if one.connect_ex(sys.argv[1]) == 0:
        print("connected", flush=True)
        break
    one.close()
"""


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may run a program of another user"
)
def test_another_user_never_connects(place: Path) -> None:
    """Permissions hold from the first moment: a program that tries all the time is never let in."""
    place.parent.parent.chmod(0o755)
    before = os.umask(0)
    stranger = subprocess.Popen([sys.executable, "-c", CONNECT, str(place)], stdout=subprocess.PIPE, text=True)
    try:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "ready\n"
        for _ in range(100):
            Pull(listen=f"ipc://{place}", ipc_mode=0o600).close()
        assert stranger.poll() is None
        with Pull(listen=f"ipc://{place}"):  # open to all with this umask: the program does try
            assert stranger.stdout.readline() == "connected\n"
    finally:
        os.umask(before)
        stranger.kill()
        stranger.communicate()
