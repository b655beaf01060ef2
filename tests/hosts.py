"""Hosts and links on one machine: network namespaces joined by veth pairs. The fixture is `hosts`; it needs root.

::

    from tests.hosts import Hosts, hosts

    def test_failover(hosts: Hosts) -> None:
        ny, london = hosts.add("ny"), hosts.add("london")
        hosts.link("ny", "london", loss=0.01)
        listen = f"tcp://{ny.address}:5555"
        daemon = ny.popen([sys.executable, "-m", "nngkit", "discoverd", "--listen", listen, "--trust", "open"])
        london.run(["nngcat", ...])
        hosts.cut("ny", "london")                # packets vanish, as on a broken route; no reset
        hosts.heal("ny", "london")
        hosts.cut("ny", "london", how="unplugged")   # the interface loses its carrier

A host has one address whatever the number of its links. Linked hosts reach each other, others do not: nothing is
forwarded. Two hosts may have one link. Programs that still run at the end are killed, and namespaces are deleted.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import pytest

__all__ = ["Host", "Hosts", "How", "hosts", "unavailable"]

R = TypeVar("R")
How = Literal["dropped", "dropped one way", "unplugged", "address gone"]

LIMIT: Final = 30.0
"""Seconds for one command of `ip` or `iptables`, and by default for a program of `run`."""
_CHAIN: Final = "nngkit-faults"
_NETWORK: Final = 0x40000000  # CLONE_NEWNET of <linux/sched.h>
_counter = itertools.count(1)


def _do(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def _move(namespace: int) -> None:
    """Move the calling thread into a namespace, given by its descriptor. os.setns came with Python 3.12."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def unavailable() -> str | None:
    """Return the reason why hosts cannot be made here; None if they can."""
    for program, package in (("ip", "iproute2"), ("iptables", "iptables")):
        if shutil.which(program) is None:
            return f"the program {program} is not installed (Debian: {package})"
    if os.geteuid():
        return "network namespaces need root"
    name = f"nk{os.getpid()}-try"
    try:
        _do("ip", "netns", "add", name)
    except RuntimeError as error:
        return f"no network namespaces: {error}"
    try:
        _do("ip", "-n", name, "link", "add", "try0", "type", "veth", "peer", "name", "try1")
        _do("ip", "netns", "exec", name, "iptables", "-w", "-A", "INPUT", "-j", "DROP")
    except RuntimeError as error:
        return f"no links or faults in network namespaces: {error}"
    finally:
        _do("ip", "netns", "delete", name)
    return None


class Host:
    """One host. `name` is the test's, `namespace` the kernel's, `address` its only IPv4 address besides loopback."""

    def __init__(self, name: str, namespace: str, address: str) -> None:
        self.name = name
        self.namespace = namespace
        self.address = address
        self._running: list[subprocess.Popen[Any]] = []

    def ip(self, *arguments: str) -> str:
        """Run `ip` in the host; return its output."""
        return _do("ip", "-n", self.namespace, *arguments)

    def iptables(self, *arguments: str) -> str:
        """Run `iptables` in the host; return its output."""
        return _do("ip", "netns", "exec", self.namespace, "iptables", "-w", *arguments)

    def run(self, argv: Sequence[str], *, timeout: float = LIMIT, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a program in the host until it ends, as subprocess.run with captured text."""
        options = {"capture_output": True, "text": True, **options}
        done: subprocess.CompletedProcess[str] = subprocess.run(self._inside(argv), timeout=timeout, **options)
        return done

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program in the host. It is killed at the end of the test, with all that it has started."""
        process = subprocess.Popen(self._inside(argv), start_new_session=True, **options)
        self._running.append(process)
        return process

    def _inside(self, argv: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, *argv]  # execs the program: its pid is the process's

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Move the calling thread into the host for the block: its new sockets belong to the host.

        NNG opens sockets in threads of its own, so programs with NNG sockets are run with `run` and `popen`.
        """
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            there = os.open(f"/run/netns/{self.namespace}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _move(there)
            finally:
                os.close(there)
            try:
                yield
            finally:
                _move(home)
        finally:
            os.close(home)

    def call(self, function: Callable[[], R]) -> R:
        """Call a function in a thread of this process that lives in the host; return or raise its outcome."""
        outcome: list[R] = []
        failure: list[BaseException] = []

        def there() -> None:
            try:
                with self.inside():
                    outcome.append(function())
            except BaseException as error:  # passed on to the caller, whatever it is
                failure.append(error)

        thread = threading.Thread(target=there, daemon=True)
        thread.start()
        thread.join(LIMIT)
        if failure:
            raise failure[0]
        if not outcome:
            raise TimeoutError(f"the call in {self.name} did not return in {LIMIT} s")
        return outcome[0]

    def end(self) -> None:
        """Kill the programs that `popen` has started, and wait for them."""
        for process in self._running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(LIMIT)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with suppress(OSError):  # unsent input of a program that is dead
                        stream.close()
        self._running.clear()


@dataclass(frozen=True)
class _Link:
    ends: tuple[Host, Host]
    interfaces: tuple[str, str]


class Hosts:
    """The hosts of one test, by name, and the links between them."""

    def __init__(self) -> None:
        self._prefix = f"nk{os.getpid()}-{next(_counter)}"
        self._hosts: dict[str, Host] = {}
        self._links: dict[frozenset[str], _Link] = {}

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def add(self, name: str) -> Host:
        """Add a host without links."""
        if name in self._hosts:
            raise ValueError(f"there is a host {name} already")
        number = len(self._hosts) + 1
        host = Host(name, f"{self._prefix}-{number}", f"10.99.{number >> 8}.{number & 255}")
        _do("ip", "netns", "add", host.namespace)
        self._hosts[name] = host
        host.ip("link", "set", "lo", "up")
        host.ip("address", "add", f"{host.address}/32", "dev", "lo")
        host.iptables("-N", _CHAIN)
        host.iptables("-A", "INPUT", "-j", _CHAIN)
        return host

    def link(self, a: str, b: str, *, delay: float = 0.0, loss: float = 0.0) -> None:
        """Join two hosts. `delay`: seconds each way, needs the kernel's netem; `loss`: share of packets lost each way.

        Raises RuntimeError if the kernel cannot delay.
        """
        key = frozenset((a, b))
        if key in self._links or len(key) != 2:
            raise ValueError(f"{a} and {b} cannot be joined: each pair of hosts has one link at most")
        ends = self._hosts[a], self._hosts[b]
        number = len(self._links)
        names = f"to{number}a", f"to{number}b"
        ends[0].ip("link", "add", names[0], "type", "veth", "peer", "name", names[1], "netns", ends[1].namespace)
        self._links[key] = _Link(ends, names)
        self._connect(a, b)
        for host, interface in zip(ends, names, strict=True):
            if delay:
                _do("tc", "-n", host.namespace, *f"qdisc add dev {interface} root netem delay {delay:.6f}s".split())
        if loss:
            self.lose(a, b, loss)

    def _connect(self, a: str, b: str) -> None:
        link = self._links[frozenset((a, b))]
        for host, peer, interface in zip(link.ends, reversed(link.ends), link.interfaces, strict=True):
            host.ip("link", "set", interface, "up")
            host.ip("route", "replace", peer.address, "dev", interface, "src", host.address)

    def lose(self, a: str, b: str, loss: float) -> None:
        """Lose this share of packets on the link, in each direction, until `heal`."""
        rule = ["-m", "statistic", "--mode", "random", "--probability", f"{loss:.6f}"]
        self._fault(a, b, rule)

    def cut(self, a: str, b: str, *, how: How = "dropped") -> None:
        """Cut the link. "dropped": packets vanish; "dropped one way": those from a to b; "unplugged": the interface is
        down, and so is the route; "address gone": a has lost its address, on all its links."""
        if how == "dropped":
            self._fault(a, b, [])
        elif how == "dropped one way":
            self._drop(b, a, [])
        elif how == "address gone":
            self._hosts[a].ip("address", "del", f"{self._hosts[a].address}/32", "dev", "lo")
        else:
            link = self._links[frozenset((a, b))]
            for host, interface in zip(link.ends, link.interfaces, strict=True):
                host.ip("link", "set", interface, "down")

    def heal(self, a: str, b: str) -> None:
        """Undo all cuts and losses of the link."""
        link = self._links[frozenset((a, b))]
        for host, interface in zip(link.ends, link.interfaces, strict=True):
            host.ip("address", "replace", f"{host.address}/32", "dev", "lo")
            for rule in reversed(host.iptables("-S", _CHAIN).splitlines()):
                if f"-i {interface} " in rule:
                    host.iptables("-D", *rule.split()[1:])
        self._connect(a, b)

    def _fault(self, a: str, b: str, rule: list[str]) -> None:
        self._drop(a, b, rule)
        self._drop(b, a, rule)

    def _drop(self, at: str, sent_by: str, rule: list[str]) -> None:
        """Drop packets that arrive at one host from the other."""
        link = self._links[frozenset((at, sent_by))]
        interface = link.interfaces[link.ends.index(self._hosts[at])]
        self._hosts[at].iptables("-I", _CHAIN, "-i", interface, *rule, "-j", "DROP")

    def close(self) -> None:
        """Kill all programs and delete all hosts."""
        try:
            for host in self._hosts.values():
                host.end()
        finally:
            for host in self._hosts.values():
                _do("ip", "netns", "delete", host.namespace)
            self._hosts.clear()
            self._links.clear()


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Hosts of the test, deleted after it. Skips where namespaces are unavailable; in CI that is a failure."""
    reason = unavailable()
    if reason is not None:
        pytest.skip(reason)
    made = Hosts()
    try:
        yield made
    finally:
        made.close()
