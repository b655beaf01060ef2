"""Commands that listen at all interfaces, on hosts of their own: the address that they tell others."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import Host, Hosts, hosts

__all__ = ["hosts"]

NNGKIT = [sys.executable, "-m", "nngkit"]
WAIT = 20.0


def started(host: Host, *arguments: str, inside: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start nngkit in a host; it is killed at the end of the test."""
    return host.popen(
        [*inside, *NNGKIT, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def event(process: subprocess.Popen[str], kind: str) -> dict[str, Any]:
    """Return the next event of that kind; the test's time limit ends the wait."""
    assert process.stdout is not None
    for line in process.stdout:
        found: dict[str, Any] = json.loads(line)
        if found["event"] == kind:
            return found
    raise AssertionError(f"ended without {kind}")


@pytest.fixture
def two(hosts: Hosts) -> tuple[Host, Host]:
    a, b = hosts.add("a"), hosts.add("b")
    hosts.link("a", "b")
    return a, b


@pytest.mark.slow
@pytest.mark.parametrize("listen", ["tcp://0.0.0.0:7000", "tcp://[::]:7000"])
def test_a_node_at_all_interfaces_advertises_its_address_towards_its_peer(two: tuple[Host, Host], listen: str) -> None:
    a, b = two
    host = started(a, "host", "render", "--listen", listen, "--token", "s3cret", "--json")
    assert event(host, "listening")["address"] == f"tcp://{a.address}:7000"
    join = ["join", "render", "--dial", f"tcp://{a.address}:7000", "--token", "s3cret", "--json"]
    member = started(b, *join, "--listen", listen)
    assert event(member, "listening")["address"] == f"tcp://{b.address}:7000"
    event(member, "member")


@pytest.fixture
def named(two: tuple[Host, Host], tmp_path: Path) -> tuple[Path, tuple[str, ...]]:
    """File of names, and what makes a command use it in place of /etc/hosts."""
    table = tmp_path / "hosts"
    table.write_text("127.0.0.1 localhost\n")
    mount = f'mount --bind {table} /etc/hosts && exec "$@"'
    return table, ("unshare", "-m", "sh", "-c", mount, "sh")


SERVE = ["serve", "echo", "--exec", "cat", "--discovery", "tcp://daemon.test:5555"]


def test_serve_waits_for_the_names_of_its_daemons(two: tuple[Host, Host], named: tuple[Path, tuple[str, ...]]) -> None:
    (a, b), (table, inside) = two, named
    server = started(b, *SERVE, inside=inside)
    assert server.stderr is not None
    assert "daemon.test has no address" in server.stderr.readline()
    table.write_text(f"{a.address} daemon.test\n")
    assert f"tcp://{b.address}:" in (open_listener := server.stderr.readline())
    assert "nothing keeps strangers out" in open_listener
    assert f"echo at tcp://{b.address}:" in server.stderr.readline()


def test_a_signal_ends_the_wait_for_names(two: tuple[Host, Host], named: tuple[Path, tuple[str, ...]]) -> None:
    server = started(two[1], *SERVE, inside=named[1])
    assert server.stderr is not None
    server.stderr.readline()
    server.send_signal(signal.SIGTERM)
    assert server.wait(WAIT) == 128 + signal.SIGTERM
