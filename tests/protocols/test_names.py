"""Names and numbers: lookups, all addresses of a name, localhost, and sockets that wait for no DNS server.

Names under `.test` are answered by a table in place of the system's resolver; `test_silent_names.py` has a real one.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from textwrap import dedent
from typing import Any

import pytest
import trustme

from nngkit.errors import ConfigError, TimedOut, Unreachable
from nngkit.protocols import TLS, Pull, Push
from nngkit.protocols._nng import listener as _listener
from nngkit.protocols._nng import resolver as _resolver
from nngkit.protocols._wire import race as _race
from nngkit.testing import eventually
from tests.hosts import Host, Hosts, hosts
from tests.protocols.wires import ROOT, WAIT

__all__ = ["hosts"]

SOON = 1.0  # seconds, far below the 5 s after which a system resolver repeats a question


class Names:
    """The table: a name has addresses, or an event until which its lookup takes, or no entry and no address."""

    def __init__(self) -> None:
        self.table: dict[str, list[str] | threading.Event] = {}
        self.asked: Counter[str] = Counter()
        self.wanted = socket.getaddrinfo
        self.silences: list[threading.Event] = []

    def silent(self, *names: str) -> None:
        """Give the names no answer until the end of the test."""
        until = threading.Event()
        self.silences.append(until)
        self.table |= dict.fromkeys(names, until)

    def getaddrinfo(self, host: Any, port: Any, family: int = 0, *arguments: Any, **options: Any) -> Any:
        """Stand in for socket.getaddrinfo."""
        if not isinstance(host, str) or not host.endswith(".test"):
            return self.wanted(host, port, family, *arguments, **options)
        self.asked[host] += 1
        entry = self.table.get(host, [])
        if isinstance(entry, threading.Event):
            entry.wait(WAIT)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        if not entry:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        wanted = {socket.AF_INET: {4}, socket.AF_INET6: {6}}.get(socket.AddressFamily(family), {4, 6})
        numbers = [number for number in entry if (6 if ":" in number else 4) in wanted]
        return [answer for number in numbers for answer in self.wanted(number, port, family, *arguments, **options)]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    """Names under `.test`; silent ones get their answer at the end, and no lookup is left in progress."""
    table = Names()
    monkeypatch.setattr(socket, "getaddrinfo", table.getaddrinfo)
    yield table
    for silence in table.silences:
        silence.set()
    eventually(lambda: not _resolver._lookups, WAIT)


def threads() -> int:
    """Return the number of the resolver's threads."""
    return sum(thread.name == "nngkit-resolver" for thread in threading.enumerate())


def passes(push: Push, pull: Pull) -> None:
    push.send(b"x")
    assert pull.recv(timeout=WAIT) == b"x"


def port_of(pull: Pull) -> str:
    return pull.address.rpartition(":")[2]


# ---------------------------------------------------------------------- all addresses of a name


@pytest.mark.parametrize("place", [0, 1, 2])
def test_each_address_of_a_name_is_tried(names: Names, place: int) -> None:
    addresses = ["127.0.0.41", "::1", "127.0.0.42"]
    names.table["three.test"] = addresses
    host = addresses[place]
    listen = f"tcp://[{host}]:0" if ":" in host else f"tcp://{host}:0"
    with Pull(listen=listen) as pull, Push(dial=f"tcp://three.test:{port_of(pull)}") as push:
        passes(push, pull)
        assert push.pipes[0].address == pull.address


@pytest.fixture
def swallowing() -> Iterator[int]:
    """Port at 127.0.0.43 whose queue of connections is full: the kernel drops what comes, as a broken route does."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.43", 0), backlog=0))
        place = server.getsockname()
        stack.enter_context(socket.create_connection(place, WAIT))
        while True:  # until one is not answered
            more = stack.enter_context(socket.socket())
            more.settimeout(0.05)
            try:
                more.connect(place)
            except TimeoutError:
                break
        yield place[1]


def test_an_address_without_an_answer_does_not_hold_up_the_next(names: Names, swallowing: int) -> None:
    names.table["two.test"] = ["127.0.0.43", "127.0.0.44"]
    with Pull(listen=f"tcp://127.0.0.44:{swallowing}") as pull:
        began = time.monotonic()
        with Push(dial=f"tcp://two.test:{swallowing}") as push:
            push.wait_for_peers(1, SOON)
            assert time.monotonic() - began >= 0.25  # the attempt delay of RFC 8305
            passes(push, pull)


@pytest.mark.parametrize("scheme", ["tcp", "ws", "tls+tcp"])
def test_an_attempt_without_an_answer_ends_and_is_named(
    swallowing: int, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_race, "LIMIT", 0.1)
    url = f"{scheme}://127.0.0.43:{swallowing}"
    tls = TLS(verify=False)
    with (
        Push(dial=url, tls=tls, linger=0) as push,
        pytest.raises(TimedOut, match=f"{re.escape(url)}: no answer in 0.1 s"),
    ):
        push.wait_for_peers(1, 0.3)


def test_a_name_that_has_moved_is_found_at_the_next_try(names: Names) -> None:
    names.table["moving.test"] = ["127.0.0.45"]
    with (
        Pull(listen="tcp://127.0.0.45:0") as first,
        Pull(listen=f"tcp://127.0.0.46:{port_of(first)}") as second,
        Push(dial=f"tcp://moving.test:{port_of(first)}") as push,
    ):
        passes(push, first)
        names.table["moving.test"] = ["127.0.0.46"]
        first.close()
        second.wait_for_peers(1, WAIT)
        passes(push, second)


def test_a_name_that_gets_its_address_later_is_found(names: Names) -> None:
    with Pull(listen="tcp://127.0.0.1:0") as pull, Push(dial=f"tcp://later.test:{port_of(pull)}") as push:
        eventually(lambda: names.asked["later.test"] > 1, WAIT)
        names.table["later.test"] = ["127.0.0.1"]
        passes(push, pull)


def test_a_transport_of_one_ip_version_dials_the_addresses_of_that_version(names: Names) -> None:
    names.table["both.test"] = ["127.0.0.1", "::1"]
    with Pull(listen="tcp://localhost:0") as pull:
        for scheme, host in (("tcp4", "127.0.0.1"), ("tcp6", "[::1]")):
            with Push(dial=f"{scheme}://both.test:{port_of(pull)}") as push:
                push.wait_for_peers(1, WAIT)
                assert push.pipes[0].address == f"{scheme}://{host}:{port_of(pull)}"


def test_the_reason_why_no_address_is_reached_is_named(names: Names) -> None:
    names.table["two.test"] = ["127.0.0.47", "::1"]
    with Push(dial=["tcp://two.test:1", "tcp://none.test:1"], linger=0) as push:
        eventually(lambda: names.asked["none.test"] > 1, WAIT)
        with pytest.raises(TimedOut) as refused:
            push.wait_for_peers(1, 0.1)
    text = str(refused.value)
    assert "tcp://two.test:1: 127.0.0.47: connection refused; ::1: connection refused" in text
    assert "tcp://none.test:1: none.test has no address: Name or service not known" in text


def test_tls_requires_the_name_and_a_websocket_asks_for_it(names: Names, authority: trustme.CA) -> None:
    names.table |= {"service.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}
    certificate = authority.issue_cert("service.test")
    server = TLS(cert=certificate.cert_chain_pems[0].bytes(), key=certificate.private_key_pem.bytes())
    client = TLS(ca=authority.cert_pem.bytes())
    with Pull(listen="wss://service.test:0/x", tls=server) as pull:  # a listener at a name refuses other names in Host:
        port = pull.address.rpartition(":")[2].partition("/")[0]
        with Push(dial=f"wss://service.test:{port}/x", tls=client) as push:
            passes(push, pull)
        with Push(dial=f"wss://other.test:{port}/x", tls=client, linger=0) as stranger, pytest.raises(TimedOut):
            stranger.wait_for_peers(1, 0.3)


# ---------------------------------------------------------------------- names without an answer


def test_names_without_an_answer_hold_up_nothing(names: Names) -> None:
    silent = [f"silent{number}.test" for number in range(100)]
    names.silent(*silent)
    names.table["good.test"] = ["127.0.0.1"]
    began = time.monotonic()
    with Push(dial=[f"tcp://{name}:7000" for name in silent[:6]], linger=0):
        with Pull(listen="tcp://localhost:0") as pull, Push(dial=f"tcp://good.test:{port_of(pull)}") as push:
            passes(push, pull)  # another name, while there are threads
        with Push(dial=[f"tcp://{name}:7000" for name in silent], linger=0):
            eventually(lambda: threads() == _resolver.MOST, WAIT)
            with Pull(listen="tcp://127.0.0.1:0") as pull, Push(dial=pull.address) as push:
                passes(push, pull)
    assert time.monotonic() - began < SOON  # closing has not waited either
    assert threads() <= _resolver.MOST


def test_a_lookup_is_shared_by_all_who_ask_for_the_name(names: Names) -> None:
    names.silent("silent.test")
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(Push(dial="tcp://silent.test:7000", linger=0))
        stack.enter_context(Push(dial="tcp://marker.test:7000", linger=0))
        eventually(lambda: names.asked["marker.test"] > 1, WAIT)
    assert names.asked["silent.test"] == 1


def test_names_that_were_slow_leave_threads_for_the_others(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_resolver, "PATIENCE", 0.0)
    slow = [f"slow{number}.test" for number in range(_resolver.SLOW + 4)]
    with Push(dial=[f"tcp://{name}:7000" for name in slow], linger=0):
        eventually(lambda: all(names.asked[name] for name in slow), WAIT)  # each has been slow once
        monkeypatch.setattr(_resolver, "PATIENCE", 1.0)
        names.silent(*slow)
        eventually(lambda: _resolver._slow == _resolver.SLOW, WAIT)
        names.table["good.test"] = ["127.0.0.1"]
        with Pull(listen="tcp://127.0.0.1:0") as pull, Push(dial=f"tcp://good.test:{port_of(pull)}") as push:
            passes(push, pull)


def test_a_lookup_that_is_no_longer_wanted_is_not_begun(names: Names) -> None:
    names.silent(*(f"silent{number}.test" for number in range(_resolver.MOST)))
    with Push(dial=[f"tcp://silent{number}.test:7000" for number in range(_resolver.MOST)], linger=0):
        eventually(lambda: sum(names.asked.values()) == _resolver.MOST, WAIT)
        with Push(dial="tcp://waiting.test:7000", linger=0):
            eventually(lambda: ("waiting.test", 0) in _resolver._lookups, WAIT)
    for silence in names.silences:
        silence.set()
    eventually(lambda: not _resolver._lookups, WAIT)
    assert names.asked["waiting.test"] == 0


def test_listening_at_a_name_without_an_answer_fails_soon(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_listener, "LOOKUP", 0.1)
    names.silent("silent.test")
    with pytest.raises(Unreachable, match=r"cannot listen: silent\.test: no answer from the resolver in 0\.1 s"):
        Pull(listen="tcp://silent.test:0")
    with pytest.raises(Unreachable, match=r"cannot listen: none\.test has no address: Name or service not known"):
        Pull(listen="tcp://none.test:0")


# ---------------------------------------------------------------------- where a listener listens


def test_a_name_is_listened_at_in_all_its_addresses_on_this_host(names: Names) -> None:
    names.table["here.test"] = ["127.0.0.48", "203.0.113.9", "::1"]  # the second is for documentation (RFC 5737)
    with Pull(listen="tcp://here.test:0") as pull:
        assert pull.addresses == (f"tcp://here.test:{port_of(pull)}",)
        for host in ("127.0.0.48", "[::1]"):
            with Push(dial=f"tcp://{host}:{port_of(pull)}") as push:
                passes(push, pull)
    names.table["away.test"] = ["203.0.113.9"]
    with pytest.raises(Unreachable, match="not an address of this host"):
        Pull(listen="tcp://away.test:0")


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_localhost_is_both_loopback_addresses_at_one_port(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lookups: list[str] = []
    monkeypatch.setattr(_resolver, "_ask", lambda key: lookups.append(key[0]))
    with Pull(listen=f"{scheme}://localhost:0/x" if scheme == "ws" else f"{scheme}://localhost:0") as pull:
        port = pull.address.rpartition(":")[2].partition("/")[0]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, int(port)), WAIT).close()
        with Push(dial=pull.address) as push:
            passes(push, pull)
    for host in ("127.0.0.1", "::1"):  # free again
        socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    assert not lookups


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_localhost_reaches_a_listener_at_either_loopback_address(host: str) -> None:
    with Pull(listen=f"tcp://{host}:0") as pull, Push(dial=f"tcp://localhost:{port_of(pull)}") as push:
        passes(push, pull)


def test_a_port_in_use_at_one_of_the_addresses_is_refused() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unreachable, match="address in use"):
            Pull(listen=f"tcp://localhost:{port}")
        with Pull(listen=f"tcp://127.0.0.1:{port}"):
            pass  # the other address is free


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("tcp4://[::1]:7000", "tcp4 has no IPv6 addresses"),
        ("ws6://127.0.0.1:7000", "ws6 has no IPv4 addresses"),
        ("tls+tcp6://127.0.0.1:7000", "tls[+]tcp6 has no IPv4 addresses"),
    ],
)
def test_a_number_of_the_other_ip_version_is_refused(url: str, why: str) -> None:
    tls = TLS(verify=False)
    with pytest.raises(ConfigError, match=why):
        Push(dial=url, tls=tls)


@pytest.mark.parametrize("url", ["tcp6://*:0", "tcp6://:0", "ws6://*:0/x"])
def test_all_interfaces_of_ipv6_are_reported_as_such(url: str) -> None:
    with Pull(listen=url) as pull, Push(dial=pull.address) as push:
        assert pull.address.startswith(f"{url.partition(':')[0]}://[::]:")
        passes(push, pull)


def test_a_peer_of_ipv4_has_an_ipv4_address_whatever_the_listener() -> None:
    with Pull(listen="tcp://[::]:0") as pull, Push(dial=f"tcp://127.0.0.1:{port_of(pull)}") as push:
        passes(push, pull)
        assert pull.pipes[0].address.startswith("tcp://127.0.0.1:")


# ---------------------------------------------------------------------- hosts of their own kind

EVERYWHERE = """
    import sys
    from nngkit.protocols import Pull, Push
    from nngkit.trust import OPEN

    for listen, dial in zip(sys.argv[1::2], sys.argv[2::2]):
        with Pull(listen=listen, trust=OPEN) as pull:
            address = dial.replace("PORT", pull.address.rpartition(":")[2].partition("/")[0])
            with Push(dial=address, linger=0) as push:
                push.wait_for_peers(1, 5)
                push.send(b"x")
                pull.recv(timeout=5)
                print(pull.pipes[0].address.rpartition(":")[0], push.pipes[0].address.rpartition(":")[0])
"""


def outcome(host: Host, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return the addresses of both ends for each pair of a listener and a dialer, in a host."""
    urls = [url for pair in pairs for url in pair]
    done = host.run([sys.executable, "-X", "faulthandler", "-c", dedent(EVERYWHERE), *urls], cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_host_without_ipv4_but_loopback_listens_at_it_and_dials_it(hosts: Hosts) -> None:
    laptop = hosts.add("laptop")
    laptop.ip("addr", "del", f"{laptop.address}/32", "dev", "lo")
    for arguments in (
        ("link", "add", "v0", "type", "veth", "peer", "name", "v1"),
        ("addr", "add", "fe80::10/64", "dev", "v0", "nodad"),
        ("addr", "add", "fd00:10::1/64", "dev", "v0", "nodad"),
        ("link", "set", "v0", "up"),
        ("link", "set", "v1", "up"),
    ):
        laptop.ip(*arguments)
    pairs = {
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:PORT"): "tcp://127.0.0.1 tcp://127.0.0.1",
        ("tcp4://127.0.0.1:0", "tcp4://127.0.0.1:PORT"): "tcp4://127.0.0.1 tcp4://127.0.0.1",
        ("tcp://*:0", "tcp://127.0.0.1:PORT"): "tcp://127.0.0.1 tcp://127.0.0.1",
        ("tcp://*:0", "tcp://localhost:PORT"): "tcp://[::1] tcp://[::1]",
        ("tcp://0.0.0.0:0", "tcp6://[::1]:PORT"): "tcp://[::1] tcp6://[::1]",
        ("tcp4://0.0.0.0:0", "tcp4://127.0.0.1:PORT"): "tcp4://127.0.0.1 tcp4://127.0.0.1",
        ("tcp://localhost:0", "tcp://127.0.0.1:PORT"): "tcp://127.0.0.1 tcp://127.0.0.1",
        ("ws://127.0.0.1:0/x", "ws://127.0.0.1:PORT/x"): "ws://127.0.0.1 ws://127.0.0.1",
        ("tcp://[::1]:0", "tcp://[::1]:PORT"): "tcp://[::1] tcp://[::1]",
        ("tcp://[fe80::10%v0]:0", "tcp://[fe80::10%v0]:PORT"): "tcp://[fe80::10%v0] tcp://[fe80::10%v0]",
        ("ws://[fe80::10%v0]:0/x", "ws://[fe80::10%v0]:PORT/x"): "ws://[fe80::10%v0] ws://[fe80::10%v0]",
    }
    assert outcome(laptop, pairs) == list(pairs.values())


def test_a_host_without_ipv6_but_loopback_listens_at_localhost_and_dials_it(hosts: Hosts) -> None:
    hosts.add("old"), hosts.add("other")
    hosts.link("old", "other")
    old = hosts["old"]
    old.run(["sh", "-c", "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $f; done"])
    pairs = {
        ("tcp://localhost:0", "tcp://localhost:PORT"): "tcp://127.0.0.1 tcp://127.0.0.1",
        ("tcp://*:0", "tcp://localhost:PORT"): "tcp://127.0.0.1 tcp://127.0.0.1",
        ("tcp://[::]:0", "tcp://127.0.0.1:PORT"): "tcp://127.0.0.1 tcp://127.0.0.1",
    }
    assert outcome(old, pairs) == list(pairs.values())
