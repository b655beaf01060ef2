"""Messages of daemons to a service manager: ready once they listen, alive from their loop, stopping at the signal."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nngkit.cli.commands import DAEMONS
from tests.cli.commands import WAIT, nngkit
from tests.cli.processes import Running

COMMANDS = {
    "discoverd": "discoverd --listen tcp://127.0.0.1:0 --query tcp://127.0.0.1:0 --no-history",
    "serve": "serve a --exec cat --discovery tcp://127.0.0.1:1",
    "host": "host a --listen tcp://127.0.0.1:0",
    "join": "join a --dial tcp://127.0.0.1:1",
    "record": "record {folder}/journal --stream a=pull,listen=tcp://127.0.0.1:0",
    "consume": "consume --serve --journal {folder}/journal --listen tcp://127.0.0.1:0",
    "gateway": "gateway --http 127.0.0.1:0 --daemon tcp://127.0.0.1:1",
    "device": "device queue --front-listen tcp://127.0.0.1:0 --back-listen tcp://127.0.0.1:0",
    "doc serve": "doc serve {folder}/docs --listen tcp://127.0.0.1:0 --no-page --no-token",
    "trust serve": "trust serve --realm {folder}/realm --listen tls+tcp://127.0.0.1:0",
}


def _words(name: str, folder: Path) -> list[str]:
    return [word.replace("pull,", "pull ") for word in COMMANDS[name].format(folder=folder).split()]


class Manager:
    """The socket of a service manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(WAIT)

    def hears(self) -> str:
        return self._socket.recv(4096).decode()

    def hears_within(self, seconds: float) -> list[str]:
        """Return what comes in that time."""
        found, until = [], time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                found.append(self.hears())
            except TimeoutError:
                break
        self._socket.settimeout(WAIT)
        return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.close()


def test_every_daemon_is_tried() -> None:
    assert set(COMMANDS) == set(DAEMONS)


@pytest.mark.slow
@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_is_ready_alive_and_stopping(name: str, manager: Manager, tmp_path: Path) -> None:
    if name == "trust serve":
        assert nngkit("trust", "new", "farm", "--realm", str(tmp_path / "realm")).returncode == 0
    if name == "consume":
        with Running(*_words("record", tmp_path)) as recorder:
            recorder.says()
    words = _words(name, tmp_path)
    with Running(*words, NOTIFY_SOCKET=str(manager.path), WATCHDOG_USEC="1000000") as daemon:
        first = manager.hears().split("\n")
        assert first[0] == "READY=1"
        assert first[1].startswith("STATUS=")
        assert {manager.hears(), manager.hears()} == {"WATCHDOG=1"}
        daemon.process.send_signal(signal.SIGTERM)
        while (told := manager.hears()) == "WATCHDOG=1":
            pass
        assert told == "STOPPING=1"
        assert daemon.process.wait(WAIT) == 143


def test_a_loop_that_does_not_run_says_nothing(manager: Manager) -> None:
    words = COMMANDS["serve"].split()
    with Running(*words, NOTIFY_SOCKET=str(manager.path), WATCHDOG_USEC="200000") as daemon:
        assert manager.hears().startswith("READY=1\n")
        assert manager.hears() == "WATCHDOG=1"
        daemon.process.send_signal(signal.SIGSTOP)
        manager.hears_within(0.2)  # sent before it stopped
        assert manager.hears_within(0.5) == []
        daemon.process.send_signal(signal.SIGCONT)
        assert manager.hears() == "WATCHDOG=1"
