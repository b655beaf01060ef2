"""Discovery of peers by the names of their documents, through discovery daemons. Trio.

A peer registers a service for each open document: `document/minutes`, at its BUS address. It dials all other providers
of the same service, each once, until the daemons have lost it and it is not connected: each may be cut off alone. One
that is still connected then is parted from with the next that is lost.

With a token, it is a REP address, where peers join and prove the token. Any peer may register another. So the providers
are asked a question first (nngkit.discovery), and only those are joined that answer with a MAC, under the token, of the
service, their address and the question's random number: a stranger can neither make one nor use another address's.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress
from typing import Final
from urllib.parse import quote

import trio

from nngkit.background import WakeUp
from nngkit.discovery import Question, Resolver, Service, deadline
from nngkit.discovery.provider import State
from nngkit.discovery.settings import query_address
from nngkit.errors import Closed, ConfigError, NngkitError
from nngkit.log_lines import LogLines
from nngkit.protocols import TLS
from nngkit.trust import Choice

log = logging.getLogger("nngkit.documents")

ROOM: Final = 1024  # documents queued for registration or removal
LONGEST: Final = 128  # bytes of a service name
PROVE: Final = b"nngkit document 1\0"  # begins a question for a proof; a random number follows
NONCE: Final = 16  # bytes
ANSWER: Final = 2.0  # seconds for the answers
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0  # seconds until a provider without a proof is asked again


def service_name(doc: str) -> str:
    """Return the name of the service for a document. Raises ConfigError if the name is too long for discovery."""
    name = "document/" + quote(doc, safe="/ ").strip()
    if len(name) > LONGEST:
        raise ConfigError("document name", f"{doc!a} is too long for discovery ({LONGEST} bytes when quoted)", doc)
    return name


class DocumentDiscovery:
    """Registers documents, and has `meet` connect to their providers. `daemons`: their survey addresses.

    `addresses`: our BUS, which others dial; with a `token` our REP, which they join. `meet` returns True for an address
    that was not dialed or joined before; `part` ends that, but returns False while the peer is connected.
    """

    def __init__(
        self,
        daemons: Iterable[str],
        addresses: Iterable[str],
        *,
        meet: Callable[[str], bool],
        part: Callable[[str], bool],
        tls: TLS | None,
        trust: Choice | None,
        token: str | None,
    ) -> None:
        self._daemons = tuple(daemons)
        self._addresses = tuple(addresses)
        if not self._addresses:
            raise ConfigError("discovery", "a peer that does not listen cannot be discovered: set listen=", None)
        self._connect = meet
        self._part = part
        self._met: set[str] = set()
        self._tls = tls
        self._trust = trust
        self._token = token
        self._key = b"" if token is None else hashlib.sha256(b"nngkit discovery\0" + token.encode()).digest()
        self._log_lines = LogLines()
        self._wanted: dict[str, trio.CancelScope] = {}
        self._news: dict[str, WakeUp] = {}
        self._give, self._take = trio.open_memory_channel[str](ROOM)

    def offer(self, doc: str) -> None:
        """Register a document."""
        service_name(doc)
        self._wanted[doc] = trio.CancelScope()
        self._news[doc] = WakeUp()
        self._give.send_nowait(doc)

    def withdraw(self, doc: str) -> None:
        """Remove a document."""
        self._wanted.pop(doc).cancel()
        del self._news[doc]

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
        wanted = self._wanted.get(doc)
        if wanted is None:
            return  # it was closed at once
        if self._token is None:
            for provider in known.snapshot().get(service_name(doc), ()):  # providers from before our query
                self._meet(provider.address)
        with wanted:
            async with trio.open_nursery() as nursery:
                for address in self._addresses:
                    nursery.start_soon(self._serve, doc, address)
                if self._token is not None:
                    nursery.start_soon(self._meet_proven, doc, known)

    async def _serve(self, doc: str, address: str) -> None:
        name = service_name(doc)

        async def prove(question: Question) -> bytes | None:
            asked = question.body.startswith(PROVE) and len(question.body) == len(PROVE) + NONCE
            return self._proof(name, address, question.body) if asked else None

        on_question = None if self._token is None else prove
        try:
            async with Service(
                name,
                address,
                discovery=self._daemons,
                tls=self._tls,
                trust=self._trust,
                sigterm=False,
                on_question=on_question,
            ):
                await trio.sleep_forever()
        except ConfigError as error:  # an address that others cannot dial, such as 0.0.0.0
            log.warning("%s is not registered at %s: %s", doc, address, error)

    async def _follow(self, known: Resolver) -> None:
        async with aclosing(known.events()) as events:
            async for event in events:
                if event.new is State.DOWN and event.provider.address in self._met:
                    self._leave(known)
                if event.new is not State.UP:
                    continue
                for doc in [doc for doc in self._wanted if service_name(doc) == event.provider.name]:
                    if self._token is None:
                        self._meet(event.provider.address)
                    else:
                        self._news[doc].wake()

    def _meet(self, address: str) -> None:
        try:
            if address not in self._addresses and self._connect(address):
                self._met.add(address)
        except Closed:
            log.debug("%s is not met: this peer is leaving", address)
        except ConfigError as error:  # anything may be registered
            line = f"a provider that cannot be dialed: {error}"
            if (said := self._log_lines.add(line, trio.current_time())) is not None:
                log.warning("%s", said)

    def _leave(self, known: Resolver) -> None:
        """Part from the providers that are lost: those that come and go for a year would be dialed for ever."""
        there = {provider.address for providers in known.snapshot().values() for provider in providers}
        with suppress(Closed):
            self._met -= {address for address in self._met - there if self._part(address)}

    # With a token

    def _proof(self, name: str, address: str, question: bytes) -> bytes:
        return hmac.digest(self._key, b"\0".join((name.encode(), address.encode(), question)), "sha256")

    async def _meet_proven(self, doc: str, known: Resolver) -> None:
        """Join the providers that prove the token as they come; ask the others again, ever more rarely."""
        name, news = service_name(doc), self._news[doc]
        met, pause = set(self._addresses), FIRST_PAUSE
        while True:
            there = {provider.address for provider in known.snapshot().get(name, ())}
            met &= there | self._met | set(self._addresses)
            unmet = there - met
            if unmet:
                for address in await self._proven(name, unmet, known):
                    met.add(address)
                    self._meet(address)
                unmet -= met
                await trio.sleep(FIRST_PAUSE)  # strangers that come and go cause no more than that
            pause = min(LONGEST_PAUSE, 2 * pause) if unmet else FIRST_PAUSE
            with trio.move_on_after(pause if unmet else float("inf")):
                await news.wait()

    async def _proven(self, name: str, addresses: set[str], known: Resolver) -> set[str]:
        """Return those of the providers' addresses that prove the token."""
        question = PROVE + secrets.token_bytes(NONCE)
        try:
            result = await known.ask(question, name, until=deadline(ANSWER))
        except NngkitError as error:
            log.debug("%s: not asked for proofs: %s", name, error)
            return set()
        found = {
            answer.provider.address
            for answer in result.answers
            if hmac.compare_digest(answer.body, self._proof(name, answer.provider.address, question))
        }
        for address in sorted(addresses - found):
            line = f"{name}: the provider at {address} does not prove the token, and is not joined"
            if (said := self._log_lines.add(line, trio.current_time(), line)) is not None:
                log.warning("%s", said)
        return addresses & found
