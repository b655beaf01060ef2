"""Clients of the services that a gateway calls: one for each name and codec, opened by the first call, and capped.

A name that discovery does not know costs a look-up and nothing else: no client, no memory. A client that is one too
many takes the place of the one that was not used for the longest time, if that has no call in progress.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from contextlib import aclosing
from typing import Any, Final

import trio

from nngkit.calls import Client
from nngkit.discovery.provider import check_name
from nngkit.discovery.resolver import Resolver
from nngkit.errors import Full, NngkitError
from nngkit.web.gateway.problems import Problem

MOST: Final = 256  # clients: each has a few sockets and tasks
MOST_NAMES: Final = 10_000  # of services without a provider now, that had one since the start

Key = tuple[str, bool]  # a service, and whether it is called with values


class OpenClient:
    """A client and its task. `release` follows each call."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.calls = 0
        self.ready = trio.Event()
        self.failure: NngkitError | None = None
        self.end = trio.Event()

    def release(self) -> None:
        """Say that a call has ended."""
        self.calls -= 1

    async def keep(self) -> None:
        """Keep the client open until `end`."""
        try:
            async with self.client:
                self.ready.set()
                await self.end.wait()
        except NngkitError as failure:
            self.failure = failure
        finally:
            self.ready.set()


class Callers:
    """Clients by service and codec. `options`: of every Client; `json`: services whose codec is JSON, not CBOR.

    `start` starts a task that ends with the gateway.
    """

    def __init__(
        self, resolver: Resolver, options: dict[str, Any], json: Collection[str], start: Callable[..., object]
    ) -> None:
        self._resolver = resolver
        self._options = options
        self._json = frozenset(json)
        self._start = start
        self._open: OrderedDict[Key, OpenClient] = OrderedDict()
        self._seen: OrderedDict[str, None] = OrderedDict()
        start(self._follow)

    @property
    def clients(self) -> dict[Key, Client]:
        """The open clients."""
        return {key: opened.client for key, opened in self._open.items()}

    async def hold(self, name: str, *, values: bool) -> OpenClient:
        """Return a client for one call, to be released. `values`: with a codec.

        Raises Problem for an unknown name, NngkitError.
        """
        key = name, values
        opened = self._open.get(key)
        if opened is None:
            self.check_known(name)
            self._make_room()
            codec: Any = None if not values else "json" if name in self._json else "cbor"
            opened = self._open[key] = OpenClient(Client(name, discovery=self._resolver, codec=codec, **self._options))
            self._start(opened.keep)
        self._open.move_to_end(key)
        if not opened.ready.is_set():
            await opened.ready.wait()
        if opened.failure is not None:
            self._open.pop(key, None)
            raise opened.failure.again()
        opened.calls += 1
        return opened

    def check_known(self, name: str) -> None:
        """Raise Problem unless discovery has a provider of `name`, or had one."""
        if name in self._seen:
            return
        try:
            check_name(name)
        except ValueError as error:
            raise Problem(404, "not-found", f"not the name of a service: {error}", ran=False) from error
        if not self._resolver.fresh:
            raise Problem(503, "unavailable", f"no discovery daemon answers, and {name} is not known", ran=False)
        raise Problem(404, "not-found", f"service not found: {name}", ran=False)

    async def _follow(self) -> None:
        """Remember the names of all services that discovery tells of."""
        while True:
            try:
                async with aclosing(self._resolver.events()) as events:
                    async for event in events:
                        self._seen[event.name] = None
                        if len(self._seen) > MOST_NAMES:
                            self._seen.popitem(last=False)
                return
            except Full:
                continue  # the next subscription begins with the whole state

    def _make_room(self) -> None:
        while len(self._open) >= MOST:
            unused = next((key for key, opened in self._open.items() if not opened.calls), None)
            if unused is None:
                raise Problem(503, "busy", f"calls of {MOST} services are in progress", ran=False)
            self._open.pop(unused).end.set()
