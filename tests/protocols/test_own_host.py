"""The address of this host as its peers reach it, on hosts with several addresses."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest
import trio

from nngkit.errors import ConfigError
from nngkit.protocols.own_host import is_everywhere, own_host, reachable
from nngkit.testing import aeventually
from tests.hosts import Host, Hosts, hosts
from tests.protocols.test_names import Names, names
from tests.protocols.wires import ROOT

__all__ = ["hosts", "names"]

ASK = """
    import sys, trio
    from nngkit.protocols.own_host import reachable

    for question in sys.argv[1:]:
        listen, *peers = question.split()
        print(trio.run(reachable, listen, peers))
"""


def ask(host: Host, *questions: str) -> list[str]:
    """Return what `reachable` returns in a host, for questions of a listener and peers."""
    done = host.run([sys.executable, "-c", dedent(ASK), *questions], cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("url", "everywhere"),
    [
        ("tcp://*:1", True),
        ("tcp://:1", True),
        ("ws://0.0.0.0:1/x", True),
        ("tls+tcp6://[::]:1", True),
        ("tcp://10.0.0.1:1", False),
        ("tcp://name:1", False),
        ("ipc:///x", False),
        ("inproc://0.0.0.0", False),
    ],
)
def test_an_address_of_all_interfaces_is_known(url: str, everywhere: bool) -> None:
    assert is_everywhere(url) == everywhere


@pytest.mark.parametrize(
    ("listen", "peers", "address"),
    [
        ("tcp://0.0.0.0:7000", ["tcp://127.0.0.1:1", "tcp://localhost:1"], "tcp://127.0.0.1:7000"),
        ("ws6://*:7000/x", ["tcp://localhost:1"], "ws6://[::1]:7000/x"),
        ("tcp://*:7000", ["ipc:///x", "inproc://x"], "tcp://127.0.0.1:7000"),
        ("tcp://10.0.0.1:7000", ["tcp://10.0.0.2:1"], "tcp://10.0.0.1:7000"),
        ("ipc:///x", [], "ipc:///x"),
    ],
)
async def test_the_address_towards_peers_on_this_host_is_loopback(listen: str, peers: list[str], address: str) -> None:
    assert await reachable(listen, peers) == address


async def test_a_peer_whose_name_has_no_address_yet_is_waited_for(
    names: Names, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nngkit.protocols.own_host.PAUSE", 0.01)
    found: list[str] = []

    async def find() -> None:
        found.append(await own_host(["tcp://later.test:1"]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(find)
        await aeventually(lambda: names.asked["later.test"] > 2)
        names.table["later.test"] = ["127.0.0.1"]
    assert found == ["127.0.0.1"]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "later.test has no address" in lines[0]


async def test_a_peer_that_cannot_be_dialed_is_refused() -> None:
    with pytest.raises(ConfigError):
        await own_host(["tcp://host:0"])


def test_the_address_is_that_of_the_route_to_the_peer(hosts: Hosts) -> None:
    host = hosts.add("a")
    for interface, address in (("v0", "10.1.0.1/24"), ("v2", "10.2.0.1/24"), ("v4", "fd00:3::1/64")):
        host.ip("link", "add", interface, "type", "veth", "peer", "name", f"{interface}p")
        host.ip("addr", "add", address, "dev", interface, *(["nodad"] if ":" in address else []))
        host.ip("link", "set", interface, "up")
        host.ip("link", "set", f"{interface}p", "up")
    peers = {"10.1.0.9": "10.1.0.1", "10.2.0.9": "10.2.0.1", "[fd00:3::9]": "[fd00:3::1]"}
    *towards, alone = ask(
        host, *(f"tcp://[::]:7000 tcp://127.0.0.1:1 tcp://{peer}:1" for peer in peers), "tcp://0.0.0.0:7000"
    )
    assert towards == [f"tcp://{own}:7000" for own in peers.values()]
    own_addresses = {f"tcp://{each}:7000" for each in (host.address, "10.1.0.1", "10.2.0.1")}
    assert alone in own_addresses  # without peers, and without a default route
    host.ip("route", "add", "default", "via", "10.2.0.9")
    assert ask(host, "tcp://0.0.0.0:7000") == ["tcp://10.2.0.1:7000"]
