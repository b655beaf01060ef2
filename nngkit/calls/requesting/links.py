"""Links: one asking socket for each provider that is wanted; which ones these are follows discovery.

A link reconnects by itself. It is closed once its provider has left, and no call is in progress.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Final, Protocol

import trio

from nngkit.background import WakeUp
from nngkit.calls.pool import Member
from nngkit.calls.requesting.caller import Caller
from nngkit.discovery.provider import Key, Provider, State, short_name
from nngkit.errors import ConfigError, Full, NngkitError
from nngkit.protocols import TLS, PeerEvent, Req
from nngkit.trust import Rights

log = logging.getLogger("nngkit.calls")

SETTLE: Final = 0.1
"""Seconds for the first connections: a provider on the same continent takes less."""
REFUSED_KEPT: Final = 1_024  # unusable addresses remembered, so that each is logged once


class Source(Protocol):
    """Discovery that a client follows: a ServiceDiscovery or Resolver, also of nngkit.aio or nngkit.blocking there."""

    def events(self) -> Any:
        """Yield the current state, then each change."""
        ...

    def snapshot(self) -> Mapping[str, frozenset[Provider]]:
        """Return the providers that can be called, by name."""
        ...


class Links:
    """Sockets of one client. `unusable`: addresses that cannot be dialed."""

    def __init__(self, caller: Caller, *, trust: Any, tls: TLS | None, recv_max_size: int) -> None:
        self._name = caller.name
        self._caller = caller
        self._pool = caller.pool
        self._trust = trust
        self.rights = Rights(trust, "calls", carry="calls")
        self._tls = tls
        self._recv_max_size = recv_max_size
        self.unusable: dict[str, None] = {}

    def open(self, fixed: Iterable[Provider]) -> None:
        """Connect to the fixed providers. `follow` and `keep` are tasks from then on."""
        self._resync = WakeUp()
        self._caller.on_idle = self._resync.wake_soon
        with self._caller.lock:
            for provider in fixed:
                self._pool.apply(provider, State.UP)
        self._connect_wanted()

    def close(self) -> None:
        """Close all sockets; they are not forgotten, so that their calls end as those of a closed client."""
        with self._caller.lock:
            links = [member.link for member in self._pool.members.values() if member.link is not None]
        for link in links:
            link.close(0.0)

    async def settle(self) -> None:
        """Wait until the providers known so far are connected, at most SETTLE seconds.

        Without this, the first call would go to the provider that connects first, whatever its lane.
        """
        with trio.move_on_after(SETTLE):
            while True:
                version = self._caller.changes.version
                with self._caller.lock:
                    wanted = self._pool.wanted()
                    settled = bool(wanted) and all(member.connected for member in wanted)
                if settled:
                    return
                await self._caller.changes.await_(version, SETTLE)

    async def follow(self, source: Source) -> None:
        """Apply discovery's events for ever."""
        while True:
            try:
                async with aclosing(source.events()) as events:
                    async for event in events:
                        if event.name == self._name:
                            with self._caller.lock:
                                self._pool.apply(event.provider, event.new)
                            self._resync.wake()
                return  # discovery was closed: the last known providers stay
            except Full:
                text = "%s: discovery changes faster than this program reads; starting again"
                log.warning(text, self._name, extra={"service": self._name})
                self._drop_all_but({provider.key for provider in source.snapshot().get(self._name, ())})

    def _drop_all_but(self, present: Collection[Key]) -> None:
        """Remove all other providers: the events of their departure were lost."""
        with self._caller.lock:
            for member in list(self._pool.members.values()):
                if member.provider.key not in present:
                    self._pool.apply(member.provider, State.DOWN)
        self._resync.wake()

    async def keep(self) -> None:
        """Connect to the providers that are wanted; disconnect from those that left, once no call is in progress."""
        while True:
            await self._resync.wait()
            self._connect_wanted()
            self._caller.changes.notify()

    def _connect_wanted(self) -> None:
        unneeded: list[Req] = []
        with self._caller.lock:
            wanted = self._pool.wanted()
            missing = [member for member in wanted if member.link is None]
            keep = set(wanted)
            for member in list(self._pool.members.values()):
                if member not in keep and not member.outstanding:
                    self._pool.connected(member, False)
                    if member.link is not None:
                        unneeded.append(member.link)
                        member.link = None
                    if member.leaving:
                        self._pool.forget(member)
        for link in unneeded:
            link.close(0.0)
        for member in missing:
            self._connect(member)

    def _connect(self, member: Member) -> None:
        address = member.provider.address
        link = Req(
            name=short_name(self._name),
            recv_max_size=self._recv_max_size,
            resend=None,
            lost="raise",
            tls=self._tls,
            trust=self._trust,
            peers=lambda who: self.rights.require(who, "offer", self._name),
        )
        changes, lock, pool = self._caller.changes, self._caller.lock, self._pool

        def peer(event: PeerEvent) -> None:  # on any thread
            with lock:
                if member.link is link:
                    member.joined = max(member.joined, event.time)
                    pool.connected(member, event.kind == "joined")
            changes.notify()

        with lock:
            member.link = link
        link.on_peer(peer)
        try:
            link.dial(address)
        except NngkitError as error:
            link.close(0.0)
            with lock:
                member.link = None
                member.move(State.DOWN)
                pool.forget(member)
            if address not in self.unusable and len(self.unusable) < REFUSED_KEPT:
                self.unusable[address] = None
                of = {"service": self._name, "peer": address}
                log.warning("%s: its provider at %s cannot be called: %s", self._name, address, error, extra=of)


def fixed_providers(name: str, addresses: str | Iterable[str] | None) -> tuple[Provider, ...]:
    """Return the providers of a client without discovery. Raises ConfigError."""
    if addresses is None:
        return ()
    several = (addresses,) if isinstance(addresses, str) else tuple(addresses)
    if not several:
        raise ConfigError("addresses", "no address", addresses)
    try:
        return tuple(Provider(name, address) for address in dict.fromkeys(several))
    except ValueError as error:
        raise ConfigError("addresses", str(error), addresses) from error
