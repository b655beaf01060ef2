"""Discovery of peers by the names of their documents, through discovery daemons. Trio.

A peer registers a service for each open document: `document/minutes`, at its BUS address. It dials all other providers
of the same service, each once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Final
from urllib.parse import quote

import trio

from nngkit.discovery import Resolver, Service
from nngkit.discovery.provider import State
from nngkit.discovery.settings import query_address
from nngkit.errors import ConfigError
from nngkit.protocols import TLS
from nngkit.trust import Choice

log = logging.getLogger("nngkit.documents")

ROOM: Final = 1024  # documents queued for registration or removal
LONGEST: Final = 128  # bytes of a service name


def service_name(doc: str) -> str:
    """Return the name of the service for a document. Raises ConfigError if the name is too long for discovery."""
    name = "document/" + quote(doc, safe="/ ").strip()
    if len(name) > LONGEST:
        raise ConfigError("document name", f"{doc!a} is too long for discovery ({LONGEST} bytes when quoted)", doc)
    return name


class DocumentDiscovery:
    """Registers documents, and dials their providers. `addresses`: our BUS; `daemons`: their survey addresses."""

    def __init__(
        self,
        daemons: Iterable[str],
        addresses: Iterable[str],
        *,
        dial: Callable[[str], None],
        tls: TLS | None,
        trust: Choice | None,
    ) -> None:
        self._daemons = tuple(daemons)
        self._addresses = tuple(addresses)
        if not self._addresses:
            raise ConfigError("discovery", "a peer that does not listen cannot be discovered: set listen=", None)
        self._dial = dial
        self._tls = tls
        self._trust = trust
        self._wanted: dict[str, trio.CancelScope] = {}
        self._give, self._take = trio.open_memory_channel[str](ROOM)

    def offer(self, doc: str) -> None:
        """Register a document."""
        service_name(doc)
        self._wanted[doc] = trio.CancelScope()
        self._give.send_nowait(doc)

    def withdraw(self, doc: str) -> None:
        """Remove a document."""
        self._wanted.pop(doc).cancel()

    async def run(self) -> None:
        """Run until cancelled."""
        daemons = [query_address(daemon) for daemon in self._daemons]
        async with (
            Resolver(daemons, timeout=0.2, tls=self._tls, trust=self._trust) as known,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(self._follow, known)
            async for doc in self._take:
                nursery.start_soon(self._provide, doc, known)

    async def _provide(self, doc: str, known: Resolver) -> None:
        for provider in known.snapshot().get(service_name(doc), ()):  # providers from before our query
            self._meet(provider.address)
        with self._wanted[doc]:
            async with trio.open_nursery() as nursery:
                for address in self._addresses:
                    nursery.start_soon(self._serve, doc, address)

    async def _serve(self, doc: str, address: str) -> None:
        try:
            async with Service(
                service_name(doc), address, discovery=self._daemons, sigterm=False, tls=self._tls, trust=self._trust
            ):
                await trio.sleep_forever()
        except ConfigError as error:  # an address that others cannot dial, such as 0.0.0.0
            log.warning("%s is not registered at %s: %s", doc, address, error)

    async def _follow(self, known: Resolver) -> None:
        async with aclosing(known.events()) as events:
            async for event in events:
                if event.provider.name in map(service_name, self._wanted) and event.new is State.UP:
                    self._meet(event.provider.address)

    def _meet(self, address: str) -> None:
        if address not in self._addresses:
            self._dial(address)
