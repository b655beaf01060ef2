"""The address of this host as its peers reach it, for listeners at all interfaces.

::

    await reachable("tcp://0.0.0.0:7000", ["tcp://db.example:5555"])     # "tcp://10.0.0.5:7000"

It is the local address of the route to the first peer on another host whose name has an address; nothing is sent. It is
loopback if all peers are on this host. Without peers, it is the local address of the default route, or any other of
this host.

May not know: sockets of the six protocols, other rooms.
"""

from __future__ import annotations

import logging
import re
import socket as sockets
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from nngkit.errors import ConfigError
from nngkit.protocols._nng.addresses import parse
from nngkit.protocols._nng.names import EVERY, Number
from nngkit.protocols._nng.resolver import Question
from nngkit.protocols._nng.tls import TLS, exposed
from nngkit.protocols._waiting.waiters import task_waiter
from nngkit.trust.choice import Choice

log = logging.getLogger("nngkit.protocols")

PAUSE: Final = 0.5  # seconds until names without an address are looked up again
# Addresses for documentation (RFC 5737, RFC 3849): no host has them, and they are routed as all that are far away.
FAR: Final = (Number(4, "192.0.2.1"), Number(6, "2001:db8::1"))


def is_everywhere(listen: str) -> bool:
    """Return True if ``listen`` stands for all interfaces: others cannot dial it. Raises ConfigError."""
    address = parse("listen", listen)
    return address.ported and address.host in ("", "*", *EVERY)


def check_guarded(listen: Iterable[str], trust: Choice | None, tls: TLS | None) -> None:
    """Raise ConfigError for an address that other machines can reach if nothing keeps strangers out there."""
    for url in listen:
        if trust is None and (why := exposed(parse("listen", url), tls)) is not None:
            raise ConfigError("listen", f"{url}: {why}", url)


async def reachable(address: str, peers: Iterable[str]) -> str:
    """Return the bound ``address`` with this host's own in place of all interfaces; see ``own_host``."""
    return with_host(address, await own_host(peers, listen=address)) if is_everywhere(address) else address


def with_host(address: str, host: str) -> str:
    """Return ``address`` with another host."""
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=f"{host}:{parts.port}"))


async def own_host(peers: Iterable[str], *, listen: str | None = None) -> str:
    """Return the address of this host on the way to ``peers``, in brackets if it is IPv6.

    It is of an IP version that ``listen`` has, if there is one. It waits, and says so once in the log, while no name of
    a peer on another host has an address, or there is no route. Cancelling it has no effect. Raises ConfigError for an
    unusable peer.
    """
    addresses = [parse("dial", peer) for peer in peers]
    version = 0 if listen is None else _version(listen)
    names = [address for address in addresses if address.ported]
    here = "[::1]" if version == 6 else "127.0.0.1"
    if not names:
        alone = None if addresses else _local_address(FAR, version) or _local_address(_own_numbers(), version)
        return alone or here
    reported = False
    while True:
        local, reasons, waiter = 0, [], task_waiter()
        questions = [Question("dial", address, waiter.wake) for address in names]
        while questions:
            for question in [each for each in questions if each.closed]:
                questions.remove(question)
                if question.numbers and all(map(_is_here, question.numbers)):
                    local += 1
                elif found := _local_address(question.numbers, version):
                    return found
                else:
                    reasons.append(question.reason or f"there is no route to {question.host}")
            if questions:
                await waiter.wait()
        if local == len(names):
            return here
        if not reported:
            log.warning("waiting for an address of this host towards its peers: %s", "; ".join(reasons))
            reported = True
        await waiter.wait(time.monotonic() + PAUSE)


async def count_addresses(peer: str, timeout: float) -> int:
    """Return the number of addresses that a dialer of ``peer`` tries; 0 if its name has none in ``timeout`` seconds.

    Cancelling it has no effect. Raises ConfigError.
    """
    address = parse("dial", peer)
    if not address.ported:
        return 1
    waiter, deadline = task_waiter(), time.monotonic() + timeout
    question = Question("dial", address, waiter.wake)
    try:
        while not question.closed and await waiter.wait(deadline):
            pass
    finally:
        question.close()
    return len(question.numbers)


def _version(listen: str) -> int:
    address = parse("listen", listen)
    return address.version or (0 if address.host == EVERY[1] else 4)


def _is_here(number: Number) -> bool:
    return number.host.startswith("127.") or number.host in ("::1", *EVERY)


def _own_numbers() -> list[Number]:
    """Return the addresses of this host but loopback, as Linux lists them; none on other systems."""
    numbers = []
    with suppress(OSError):
        found = re.findall(r"-- (\S+)\n\s+/32 host LOCAL", Path("/proc/net/fib_trie").read_text("ascii"))
        numbers += [Number(4, host) for host in found]
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text("ascii").splitlines():
            digits, _, _, scope, *_ = line.split()
            if scope == "00":  # global
                numbers.append(Number(6, sockets.inet_ntop(sockets.AF_INET6, bytes.fromhex(digits))))
    return [number for number in numbers if not _is_here(number)]


def _local_address(numbers: Iterable[Number], version: int) -> str | None:
    """Return this host's address on the way to the first that has a route, one of ``version`` if it has one."""
    for number in sorted(numbers, key=lambda each: version not in (0, each.version)):
        with suppress(OSError), sockets.socket(number.family, sockets.SOCK_DGRAM) as probe:
            probe.connect((str(number), 9))  # sends nothing
            own: str = probe.getsockname()[0]
            return f"[{own}]" if ":" in own else own
    return None
