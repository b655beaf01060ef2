"""tests/hosts.py: hosts in network namespaces reach each other as their links allow, and leave nothing behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing

import pytest

from tests.hosts import Host, Hosts, How, hosts, unavailable

__all__ = ["hosts"]  # the fixture

LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], 7000)) as listener:
    print("listens", flush=True)
    while True:
        connection, peer = listener.accept()
        with connection:
            connection.sendall(peer[0].encode())
"""
ASK = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 7000), timeout=float(sys.argv[2])) as connection:
        print(connection.recv(100).decode())
except OSError as error:
    print(type(error).__name__)
"""


def listen(host: Host) -> None:
    process = host.popen([sys.executable, "-c", LISTEN, host.address], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listens\n"


def ask(host: Host, other: Host, timeout: float = 10.0) -> str:
    return host.run([sys.executable, "-c", ASK, other.address, str(timeout)]).stdout.strip()


def network() -> str:
    return os.readlink("/proc/thread-self/ns/net")


def namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=30).stdout


def test_linked_hosts_reach_each_other_from_their_one_address(hosts: Hosts) -> None:
    ny, london, tokyo = (hosts.add(name) for name in ("ny", "london", "tokyo"))
    hosts.link("ny", "london")
    hosts.link("ny", "tokyo")
    listen(ny)
    assert ask(london, ny) == london.address
    assert ask(tokyo, ny) == tokyo.address
    assert ask(london, tokyo) == "OSError"  # no route: nothing is forwarded
    assert hosts["ny"] is ny


@pytest.mark.slow
@pytest.mark.parametrize("how", ["dropped", "dropped one way", "unplugged", "address gone"])
def test_a_cut_ends_new_connections_until_it_is_healed(hosts: Hosts, how: How) -> None:
    ny, london = hosts.add("ny"), hosts.add("london")
    hosts.link("ny", "london")
    listen(ny)
    hosts.cut("ny", "london", how=how)
    assert ask(london, ny, timeout=0.2) == ("OSError" if how == "unplugged" else "TimeoutError")
    hosts.heal("ny", "london")
    assert ask(london, ny) == london.address


def test_packets_are_lost_in_the_share_given(hosts: Hosts) -> None:
    ny, london = hosts.add("ny"), hosts.add("london")
    hosts.link("ny", "london", loss=0.5)
    count = "import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM); "
    count += "[s.sendto(b'x', (sys.argv[1], 7001)) for _ in range(400)]"
    assert london.run([sys.executable, "-c", count, ny.address]).returncode == 0
    dropped = int(ny.iptables("-L", "nngkit-faults", "-v", "-n", "-x").splitlines()[-1].split()[0])
    assert 120 <= dropped <= 280  # 200 expected; 8 standard deviations of 10


def test_a_function_of_the_test_runs_in_a_host(hosts: Hosts) -> None:
    ny, london = hosts.add("ny"), hosts.add("london")
    hosts.link("ny", "london")
    listen(ny)

    def dialed() -> str:
        with closing(socket.create_connection((ny.address, 7000), timeout=10)) as connection:
            return connection.recv(100).decode()

    assert london.call(dialed) == london.address
    assert london.call(network) != network()
    with pytest.raises(ZeroDivisionError):
        london.call(lambda: 1 // 0)


def test_programs_and_namespaces_do_not_outlive_the_test() -> None:
    if (reason := unavailable()) is not None:
        pytest.skip(reason)
    made = Hosts()
    ny = made.add("ny")
    process = ny.popen(["sleep", "60"])
    assert ny.namespace in namespaces()
    made.close()
    assert process.poll() is not None
    assert ny.namespace not in namespaces()


def test_names_and_links_are_unique(hosts: Hosts) -> None:
    for name in ("ny", "london"):
        hosts.add(name)
    with pytest.raises(ValueError, match="already"):
        hosts.add("ny")
    hosts.link("ny", "london")
    for pair in (("london", "ny"), ("ny", "ny")):
        with pytest.raises(ValueError, match="one link"):
            hosts.link(*pair)


@pytest.mark.parametrize("missing", ["ip", "iptables", "root"])
def test_the_reason_is_said_where_hosts_cannot_be_made(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: None if program == missing else f"/sbin/{program}")
    monkeypatch.setattr(os, "geteuid", lambda: 1 if missing == "root" else 0)
    assert missing in str(unavailable())
