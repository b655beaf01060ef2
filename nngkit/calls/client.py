"""Client: calls a service by its name. Follows discovery, and asks one provider for each call.

::

    async with Client("answer", daemons=["tcp://daemon:5556"], prefer=["ny", "london"]) as answer:
        reply = await answer.request(b"...", timeout=1.0)
        reply = await answer.request(b"...", idempotent=True)      # another provider, if one is lost
        async for part in answer.stream({"from": 1}): ...          # with a codec

requesting/ has the way of a call, pool.py the choice of a provider.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, Self, TypeVar, cast

import trio

from nngkit import tracing
from nngkit.background import Background, UnderTrio
from nngkit.calls.budget import RetryBudget
from nngkit.calls.client_stats import ClientStats, ProviderStats, provider_stats
from nngkit.calls.health import Ejection
from nngkit.calls.messages import Codec, InfoRequest, check_codec
from nngkit.calls.middleware import ClientCall, Middleware, Reply, chain, check_middleware, run_plainly
from nngkit.calls.pool import RECENT, Policy, Pool, check_policy
from nngkit.calls.requesting.call import Call
from nngkit.calls.requesting.caller import Caller
from nngkit.calls.requesting.cancels import Cancels
from nngkit.calls.requesting.links import Links, Source, fixed_providers
from nngkit.calls.stream import Stream
from nngkit.calls.typed import Contract, Typed, interface_methods, read_parts, read_reply
from nngkit.chance import RandomSource
from nngkit.discovery.lanes import Suspects, make_preference
from nngkit.discovery.provider import check_name
from nngkit.discovery.resolver import Resolver
from nngkit.errors import ConfigError, TimedOut
from nngkit.headers import Headers, check_headers
from nngkit.protocols import DEFAULT, TLS, Default, Timeout
from nngkit.trust import Choice, chosen
from nngkit.trust.standing import told

T = TypeVar("T")

__all__ = ["Client", "ClientStats", "ProviderStats"]

MIB: Final = 1024 * 1024


class Client(UnderTrio):
    """Calls the providers of the service `name`. Use it with `async with`, under trio; calls may overlap.

    Where providers come from, one of:

    daemons     query addresses of discovery daemons; default: from the environment, as for `nngkit resolve`
    discovery   a ServiceDiscovery or Resolver of the program, already open; it stays the program's
    addresses   fixed addresses, without discovery

    How one is chosen:

    prefer, tags, version, suspects   see Resolver.resolve
    policy      among equals: "two-choices" (of two at random the one with fewer of this client's calls in progress, by
                weight), "random", "weighted", "latency" (of two, the one expected to reply first)
    failback    seconds for which a preferred lane must be usable again before calls return to it
    ejection    rules for providers that fail again and again
    connections cap on the providers that are connected; a subset of its own for each client

    What a call is:

    codec       "cbor" or "json" for values, methods, streams, errors, deadlines and cancellation; None: bytes
    timeout     seconds of a call, of its retries too, unless the call names its own; None: for ever
    idempotent  retry also what may have run; attempt_timeout: seconds after which such a call tries another provider.
                Other calls have no use for it: they wait for the whole timeout
    hedge       seconds after which an idempotent call asks a second provider too; the first reply wins
    retry_budget    cap on retries and hedges of all calls together; default: a fifth of the calls and 10 a second
    middleware  async functions around each call, the first one outermost, see nngkit.calls.middleware
    recv_max_size   bytes of the largest reply
    tls         for the providers' addresses; the host in an address must be in its certificate. daemon_tls: for daemons
    trust       for both, in place of tls and daemon_tls; default: NNGKIT_TRUST. Only providers whose pass has the right
                to `offer` the service are called
    domain      of the daemons, see Resolver; default: from the environment, with their addresses

    Raises ConfigError for an unusable value.
    """

    def __init__(
        self,
        name: str,
        *,
        daemons: str | Iterable[str] | None = None,
        discovery: Source | None = None,
        addresses: str | Iterable[str] | None = None,
        prefer: str | Iterable[str] = (),
        tags: str | Iterable[str] = (),
        version: str = "",
        suspects: Suspects = "last",
        policy: Policy = "two-choices",
        failback: float = 2.0,
        ejection: Ejection | None = None,
        connections: int = 128,
        codec: Codec | None = None,
        timeout: float | None = 5.0,
        idempotent: bool = False,
        attempt_timeout: float | None = None,
        hedge: float | None = None,
        retry_budget: RetryBudget | None = None,
        middleware: Iterable[Middleware] = (),
        recv_max_size: int = MIB,
        tls: TLS | None = None,
        trust: Choice | None = None,
        daemon_tls: TLS | None = None,
        domain: str = "",
        rng: RandomSource | None = None,
    ) -> None:
        try:
            self.name = check_name(name)
        except ValueError as error:
            raise ConfigError("name", str(error), name) from error
        if sum(given is not None for given in (daemons, discovery, addresses)) > 1:
            raise ConfigError("daemons", "give one of daemons, discovery and addresses")
        for what, seconds in (("failback", failback), ("attempt_timeout", attempt_timeout), ("hedge", hedge)):
            if seconds is not None and not 0 <= seconds < 1e9:
                raise ConfigError(what, f"{seconds!r} is not a number of seconds", seconds)
        if connections < 1:
            raise ConfigError("connections", f"{connections!r} is not 1 or more", connections)
        self._codec = check_codec(codec)
        self._timeout = timeout
        self._idempotent = idempotent
        self._attempt_timeout = attempt_timeout
        self._hedge = hedge
        own, spans = check_middleware(middleware), tracing.spans
        self._middleware = own if spans is None else (spans.client, *own)
        self._around = chain(self._middleware, self._proceed)
        self._spans = None if own else spans
        self._usual = codec is None and hedge is None and attempt_timeout is None and not self._middleware
        preference = make_preference(prefer, tags, version, suspects)
        self._fixed = fixed_providers(name, addresses)
        self._discovery = discovery
        self._resolver = None
        if discovery is None and addresses is None:
            self._resolver = Resolver(
                daemons, domain=domain, tls=daemon_tls, trust=trust if daemon_tls is None else None
            )
        self._pool = Pool(
            preference=preference,
            policy=check_policy(policy),
            failback=failback,
            ejection=ejection,
            most=connections,
            salt=os.urandom(16),
            rng=rng or random.Random(),
        )
        budget = retry_budget or RetryBudget()
        self._caller = Caller(name, self._pool, codec=self._codec, limit=recv_max_size, budget=budget)
        self._links = Links(self._caller, trust=chosen(trust, tls), tls=tls, recv_max_size=recv_max_size)
        self._caller.me = None if self._links.rights.trust is None else self._links.rights.trust.name
        self._caller.daemons = () if self._resolver is None else self._resolver.daemons
        self._background = Background()
        self._cancels = Cancels(name, self._background)
        self._caller.send_later = self._cancels.send_later
        self._requests = 0

    # Lifecycle

    async def __aenter__(self) -> Self:
        self._entering()
        self._source = self._discovery or self._resolver
        if isinstance(self._source, Resolver):
            self._caller.answering = self._source.answering
        if self._resolver is not None:
            await self._resolver.__aenter__()
        await self._background.open()
        self._links.open(self._fixed)
        if self._source is not None:
            self._background.start(self._links.follow, self._source)
        self._background.start(self._links.keep)
        self._cancels.open()
        try:
            await self._links.settle()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def _before_end(self) -> None:
        self._caller.failure = self._background.failure
        self._end()

    async def _after_end(self) -> None:
        self._links.close()
        if self._resolver is not None:
            await self._resolver.__aexit__(None, None, None)

    async def aclose(self) -> None:
        """Close before the block ends: calls in progress raise Closed. Idempotent."""
        self._end()
        self._links.close()
        await trio.lowlevel.checkpoint()

    def _end(self) -> None:
        self._caller.close()
        self._caller.changes.notify()
        self._background.end()

    # Calls

    async def request(
        self,
        body: Any,
        *,
        timeout: Timeout = DEFAULT,
        method: str = "",
        idempotent: bool | None = None,
        hedge: float | None = None,
        headers: Headers | None = None,
    ) -> Any:
        """Return the reply to `body`: bytes, or with a codec any value that it carries.

        timeout      seconds, from now to the reply, for all attempts; it travels with the request if there is a codec
        method       of the provider; needs a codec
        idempotent   running it twice does no harm: a call that may have run is sent to another provider
        hedge        seconds after which a second provider is asked too; implies `idempotent`
        headers      metadata beside the body; need a codec

        If cancelled, the request may have run; with a codec the provider is told to stop. Raises RemoteError (an error
        of the handler), Lost (the provider left; `sent` says if the request may have run), TimedOut, ServiceNotFound
        (no provider was found within `timeout`), AccessDenied (the policy does not grant the call, or no known provider
        may offer the service), BadMessage, Closed; TypeError or ValueError for an unusable body; ConfigError, TooLarge
        for headers.
        """
        if self._usual and not method and hedge is None and headers is None:
            # Nearly all calls get a reply to their first attempt, and leave nothing to decide. With one provider this
            # takes no lock: where no function is called, no other thread runs.
            caller, began = self._caller, time.monotonic()
            pool, balance = self._pool, caller.balance
            if (member := pool.only) is not None and began < balance.until and member.requests % RECENT:
                member.outstanding += 1
                member.requests += 1
                balance.calls += 1
            else:
                member = caller.first(began)
            if member is not None:
                self._requests += 1
                seconds = self._timeout if type(timeout) is Default else timeout
                try:
                    data = await member.link.arequest(body, seconds)
                except BaseException as error:
                    call = self._new(body, seconds, idempotent)
                    caller.first_failed(call, member, began, error)
                    return await caller.request(call)
                now = time.monotonic()
                took = (now - began,)
                if pool.only is member:
                    member.outstanding -= 1
                    member.health.failures = 0
                    member.last_reply = now
                    member.recent += took
                else:
                    caller.first_replied(member, now - began, now)
                return data
        around = self._around if self._middleware else None
        given: dict[str, str | bytes] | None = None
        if self._spans is not None:
            headers = given = {} if headers is None else check_headers(headers)
            around = self._spans.calling(self.name, method, None if self._codec is None else given, self._proceed)
        if around is not None:
            return (await around(self._outgoing(body, timeout, method, idempotent, hedge, headers))).body
        if given is None and headers is not None:
            given = check_headers(headers)
        call = self._call(body, timeout, method, idempotent, hedge, given)
        if call.hedge is None:
            return await self._caller.request(call)
        return (await self._caller.hedged_request(call))[0]

    async def call(
        self,
        body: Any,
        *,
        timeout: Timeout = DEFAULT,
        method: str = "",
        idempotent: bool | None = None,
        hedge: float | None = None,
        headers: Headers | None = None,
    ) -> Reply:
        """Like `request`; return the whole Reply: body, headers, and the address of the provider."""
        return await self._around(self._outgoing(body, timeout, method, idempotent, hedge, headers))

    def request_blocking(
        self, body: Any, *, timeout: Timeout = DEFAULT, method: str = "", idempotent: bool | None = None
    ) -> Any:
        """Like `request`, without hedging, for a thread other than the loop's; an interrupt (Ctrl-C) gives up the call.

        nngkit.blocking.Client.request calls it, if there is no middleware.
        """
        return self._caller.request_blocking(self._call(body, timeout, method, idempotent))

    def call_blocking(
        self,
        wait: Callable[[Callable[[Client], Awaitable[Reply]]], Reply],
        body: Any,
        *,
        timeout: Timeout = DEFAULT,
        method: str = "",
        idempotent: bool | None = None,
        hedge: float | None = None,
        headers: Headers | None = None,
    ) -> Reply:
        """Like `call`, in a thread other than the loop's, the middleware too. `wait` runs hedged calls in the loop."""

        async def proceed(outgoing: ClientCall) -> Reply:
            call = self._made(outgoing)
            if call.hedge is None:
                return call.reply(self._caller.request_blocking(call))
            return wait(lambda client: client._reply(call))

        outgoing = self._outgoing(body, timeout, method, idempotent, hedge, headers)
        return run_plainly(chain(self._middleware, proceed)(outgoing))

    def stream(
        self, body: Any, *, timeout: Timeout = DEFAULT, method: str = "", headers: Headers | None = None
    ) -> Stream:
        """Return the parts of a reply as an async iterator; needs a codec. `timeout`: seconds for all of it."""
        self._require_codec("stream")
        outgoing = self._outgoing(body, timeout, method, None, None, headers, stream=True)
        if not self._middleware:
            return Stream(self._caller, self._made(outgoing))
        self._check_open()
        stream = Stream(self._caller, Call(body, outgoing.timeout))
        stream.put_around(self._middleware, outgoing, self._made)
        return stream

    def typed(
        self,
        interface: Callable[..., T],
        *,
        timeout: Timeout = DEFAULT,
        idempotent: bool | None = None,
        hedge: float | None = None,
        headers: Headers | None = None,
    ) -> T:
        """Return an object with the methods of an interface, such as a Protocol, as calls; needs a codec.

        A method has one argument, the body, or none. Body and reply have the annotated types: those that msgspec
        reads, such as dataclasses. An async method is a `request`, one that returns an AsyncIterator a `stream`, both
        with these options. They raise what those raise, TypeError for a body of another type, and BadMessage for such a
        reply. Raises ConfigError for an unusable interface.
        """
        options: dict[str, Any] = {"timeout": timeout, "headers": headers}

        def request(body: Any, method: str, contract: Contract) -> Awaitable[Any]:
            call = self.call(body, method=method, idempotent=idempotent, hedge=hedge, **options)
            return read_reply(call, contract)

        def stream(body: Any, method: str, contract: Contract) -> AsyncIterator[Any]:
            return read_parts(self.stream(body, method=method, **options), contract)

        methods = interface_methods(interface, self._codec)
        return cast(T, Typed(interface, methods, request, stream))

    async def info(self, timeout: Timeout = DEFAULT) -> dict[str, Any]:
        """Return what a provider tells of itself: name, address, methods, and `schemas` of those with typed handlers.

        Needs a codec. Raises as `request`.
        """
        self._require_codec("info")
        call = self._call(None, timeout, "", True)
        call.asks = InfoRequest()
        found: dict[str, Any] = await self._caller.request(call)
        return found

    # Middleware

    def _outgoing(
        self,
        body: Any,
        timeout: Timeout,
        method: str,
        idempotent: bool | None,
        hedge: float | None,
        headers: Headers | None,
        stream: bool = False,
    ) -> ClientCall:
        seconds = self._timeout if isinstance(timeout, Default) else timeout
        given = {} if headers is None else check_headers(headers)
        return ClientCall(self.name, method, body, given, seconds, idempotent, hedge, stream, self._codec)

    def _proceed(self, outgoing: ClientCall) -> Coroutine[Any, Any, Reply]:
        return self._reply(self._made(outgoing))

    async def _reply(self, call: Call) -> Reply:
        if call.hedge is None:
            return call.reply(await self._caller.request(call))
        value, won = await self._caller.hedged_request(call)
        return won.reply(value)

    def _made(self, given: ClientCall) -> Call:
        headers = given.headers or None
        if headers is not None and self._spans is None:  # a program's middleware may have changed them
            headers = check_headers(headers)
        call = self._call(given.body, given.timeout, given.method, given.idempotent, given.hedge, headers)
        call.stream = given.stream
        if self._middleware:
            call.told, call.waits = given.attempts, given.waits
        return call

    @property
    def codec(self) -> Codec | None:
        """The codec."""
        return self._codec

    @property
    def plain(self) -> bool:
        """True if `request_blocking` is all of a call that does not ask for more."""
        return self._hedge is None and not self._middleware

    def _call(
        self,
        body: Any,
        timeout: Timeout,
        method: str,
        idempotent: bool | None,
        hedge: float | None = None,
        headers: dict[str, str | bytes] | None = None,
    ) -> Call:
        """Return a call. `headers`: checked ones, a copy."""
        if self._caller.closed or "_entered" not in self.__dict__:
            self._check_open()
        call = self._new(body, self._timeout if isinstance(timeout, Default) else timeout, idempotent)
        self._requests += 1
        if method:
            self._require_codec("method", method)
            call.method = method
        if hedge is not None or call.idempotent:
            call.hedge = self._hedge if hedge is None else hedge
        if headers:
            if self._codec is None:
                raise ConfigError("headers", "need a codec: codec='cbor' or 'json', at the server too", headers)
            if self._codec == "json" and any(isinstance(value, bytes) for value in headers.values()):
                raise ConfigError("headers", "JSON has no bytes: text is needed, or codec='cbor'", headers)
            call.headers = headers
        return call

    def _new(self, body: Any, seconds: float | None, idempotent: bool | None) -> Call:
        call = Call(body, seconds)
        if self._idempotent if idempotent is None else idempotent:
            call.idempotent = True
            call.attempt_timeout = self._attempt_timeout
        return call

    def _require_codec(self, what: str, value: Any = None) -> None:
        if self._codec is None:
            raise ConfigError(what, "needs a codec: codec='cbor' or 'json', at the server too", value)

    def _check_open(self) -> None:
        _ = self._source  # Closed, with the remedy, before the block
        if self._caller.closed:
            raise self._caller.ended()

    # State

    async def wait_for_providers(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until calls can go to `n` providers. Raises TimedOut after `timeout` seconds, AccessDenied, Closed."""
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        while True:
            self._check_open()
            version = self._caller.changes.version
            with self._caller.lock:
                usable = self._pool.usable(time.monotonic())
            if usable >= n:
                await trio.lowlevel.checkpoint()
                return
            left = deadline - time.monotonic()
            if not usable:
                self._caller.check_denied(final=left <= 0)
            if left <= 0:
                why = told([member.provider.address for member in self._pool.members.values()])
                raise TimedOut(f"{self.name}: {usable} of {n} providers connected in {timeout} s{why}", timeout)
            await self._caller.changes.await_(version, self._caller.pause(left))

    @property
    def stats(self) -> ClientStats:
        """Counters of calls, and of each provider. Any thread may read them."""
        now = time.monotonic()
        caller = self._caller
        with caller.lock:
            providers = {member.provider.address: provider_stats(member, now) for member in self._pool.members.values()}
            return ClientStats(
                requests=self._requests,
                failed=caller.failed,
                errors=caller.errors,
                retried=caller.retried,
                refused=caller.refused,
                hedged=caller.hedged,
                hedge_wins=caller.hedge_wins,
                over_budget=caller.over_budget,
                ejections=caller.ejected,
                failovers=self._pool.failovers,
                failbacks=self._pool.failbacks,
                unusable=len(self._links.unusable),
                cancels_dropped=self._cancels.dropped,
                denied=dict(self._links.rights.refusals),
                providers=providers,
            )
