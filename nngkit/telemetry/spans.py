"""Spans of OpenTelemetry: of calls, discovery, published messages, jobs, and a gateway's requests. Needs its API alone.

::

    from nngkit.telemetry import instrument
    instrument()                            # once, before clients and servers are made; the SDK is the program's

Names and attributes are those of OpenTelemetry's semantic conventions for RPC, messaging and HTTP; docs/telemetry.md
has the table. A span's context travels in the headers that the program's propagator writes: `traceparent` by default.

The span of a call is around all its attempts, as the conventions say: if there are several, they are its events. At the
server, and for a job, the context of the message is the parent, whatever was current when the task began.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import lru_cache, partial
from importlib.metadata import version
from typing import Any, Final

from nngkit import tracing
from nngkit.errors import ConfigError, RemoteError
from nngkit.headers import check_headers

try:
    from opentelemetry import trace
    from opentelemetry.context import Context, attach, detach, get_current
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        Span,
        SpanKind,
        Status,
        StatusCode,
        TraceFlags,
        Tracer,
        TracerProvider,
    )

    from nngkit.telemetry.propagation import NO_CONTEXT, Headers, Unsampled, extract, inject, links_to, put
except ImportError as error:
    raise ConfigError("telemetry", "spans need opentelemetry-api: pip install 'nngkit[telemetry]'") from error

SYSTEM: Final = "nngkit"
MOST_TEXT: Final = 256  # characters of a name, an attribute or a description
EVERY: Final = 1 << 64  # the values of those bits of a trace's id by which the SDK samples
METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"))


class Spans:
    """See nngkit.tracing.Spans."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._known: tuple[object, object] | None = None
        self._drops = False
        self._bound = EVERY
        self._flags = "00"

    def _start(
        self,
        name: str,
        context: Context,
        kind: SpanKind,
        attributes: dict[str, Any],
        links: Sequence[Link] | None = None,
        began: int | None = None,
    ) -> Span:
        """Return a span in `context`: if it is surely not sampled, its context alone, which is all that is made of it.

        A sampler of the SDK that leaves the choice to the parent need not be asked below one that is not sampled, whose
        context says the same to those further below.
        """
        tracer: Any = None
        if context:
            parent = trace.get_current_span(context)
            if type(parent) is Unsampled and self._drops_unsampled():
                return parent
            _, _, _, flags, _, valid = above = parent.get_span_context()
            if valid:
                if not flags & TraceFlags.SAMPLED and self._drops_unsampled():
                    return NonRecordingSpan(above)
                tracer = self._tracer
        if tracer is None and type(tracer := self._drawn()) is str:
            return Unsampled(tracer, False)
        span: Span = tracer.start_span(name, context, kind, attributes, links, began)
        return span

    def _drawn(self) -> Any:
        """Begin a trace: return its `traceparent` if it is surely not sampled, else the tracer for its first span.

        Where the SDK's sampler chooses by the id of the trace, that is drawn here, and the span, if any, is made of it.
        """
        tracer: Any = self._tracer
        if not self._drops_unsampled() or self._bound == EVERY:
            return tracer
        ids = tracer.id_generator
        trace_id = ids.generate_trace_id()
        if trace_id & (EVERY - 1) >= self._bound:
            return f"00-{trace_id.to_bytes(16).hex()}-{ids.generate_span_id().to_bytes(8).hex()}-{self._flags}"
        tracer = copy(tracer)
        tracer.id_generator = _Drawn(ids, trace_id)
        return tracer

    def _drops_unsampled(self) -> bool:
        """Return True if the sampler surely makes no span below one that is not sampled."""
        tracer: Any = self._tracer
        sampler, config = getattr(tracer, "sampler", None), getattr(tracer, "_tracer_config", None)
        if self._known is None or sampler is not self._known[0] or config is not self._known[1]:
            self._drops, self._bound = _leaves_it_to_parents(tracer, sampler), EVERY
            if self._drops and hasattr(tracer.id_generator, "is_trace_id_random"):
                self._bound = _bound_of(getattr(sampler, "_root", None))
                self._flags = f"{2 * tracer.id_generator.is_trace_id_random():02x}"  # RANDOM_TRACE_ID
            self._known = sampler, config
        return self._drops

    # Calls

    def calling(self, service: str, method: str, headers: dict[str, str | bytes] | None, proceed: Any) -> Any:
        """See nngkit.tracing.Spans."""
        within = get_current()
        tracer: Any = None
        if not within and type(tracer := self._drawn()) is str:
            if headers is not None:
                put(tracer, headers)
            return None
        name = f"{service}/{method}" if method else service
        attributes = {"rpc.system.name": SYSTEM, "rpc.method": name}
        if tracer is None:
            span = self._start(name, within, SpanKind.CLIENT, attributes)
        else:
            span = tracer.start_span(name, within, SpanKind.CLIENT, attributes)
        if headers is not None:
            inject(span, headers, within)
        if type(span) is Unsampled or not (span.is_recording() or not self._drops_unsampled()):
            return None
        return partial(self._call, span, proceed)

    async def client(self, call: Any, proceed: Any) -> Any:
        """See nngkit.tracing.Spans."""
        headers = None if call.codec is None else call.headers
        return await (self.calling(call.service, call.method, headers, proceed) or proceed)(call)

    async def _call(self, span: Span, proceed: Any, call: Any) -> Any:
        provider = ""
        try:
            reply = await proceed(call)
            provider = reply.provider
        except BaseException as error:
            _fail(span, error)
            raise
        finally:
            if span.is_recording():
                _tell_attempts(span, call.attempts, provider)
            if call.waits:
                self._tell_waits(span, call.service, call.waits, failed=not provider)
            span.end()
        return reply

    def _tell_waits(self, call: Span, service: str, waits: Sequence[Any], failed: bool) -> None:
        """Make a span below that of a call for each period in which it had no connected provider."""
        now = time.monotonic()
        wall = time.time() - now
        below = trace.set_span_in_context(call)
        for each in waits:
            found = {"daemons": each.daemons, "provider": each.provider, "reason": each.reason}
            attributes = _discovery(service=service, **{name: fact for name, fact in found.items() if fact})
            span = self._start(
                _name("resolve", service), below, SpanKind.INTERNAL, attributes, None, int((wall + each.began) * 1e9)
            )
            if each.ended is None and failed:
                span.set_status(Status(StatusCode.ERROR, "no provider"))
            span.end(int((wall + (each.ended or now)) * 1e9))

    def serving(self, service: str, method: str, headers: Headers, peer: Any) -> _Current:
        """See nngkit.tracing.Spans."""
        parent, caller = extract(headers)
        if type(caller) is Unsampled and self._drops_unsampled():
            return _Current(None, parent)
        name = f"{service}/{method}" if method else service
        attributes: dict[str, str | int] = {"rpc.system.name": SYSTEM, "rpc.method": name}
        if peer is not None:
            attributes |= _endpoint("network.peer", peer.address)
        span = self._start(name, parent, SpanKind.SERVER, attributes)
        return _Current(span, trace.set_span_in_context(span, parent))

    async def server(self, call: Any, proceed: Any) -> Any:
        """See nngkit.tracing.Spans."""
        with self.serving(call.service, call.method, call.headers, call.peer):
            return await proceed(call)

    # Discovery

    @contextmanager
    def asking(
        self, operation: str, service: str | None, headers: Headers | None = None, daemon: str = ""
    ) -> Generator[_Asking, None, None]:
        """See nngkit.tracing.Spans."""
        attributes = _discovery(service=service) if service else {}
        attributes |= _endpoint("server", daemon) if daemon else {}
        kind = SpanKind.INTERNAL if headers is None else SpanKind.CLIENT
        within = get_current()
        span = self._start(_name(operation, service), within, kind, attributes)
        given = dict(headers or ())
        if headers is not None:
            inject(span, given, within)
        with _ending(span):
            yield _Asking(given, span)

    @contextmanager
    def answering(self, operation: str, service: str | None, headers: Headers | None) -> Generator[_Asking, None, None]:
        """See nngkit.tracing.Spans."""
        given = dict(headers or ())
        parent, _ = extract(given)
        attributes = _discovery(service=service) if service else {}
        span = self._start(_name(operation, service), parent, SpanKind.SERVER, attributes)
        with _Current(span, trace.set_span_in_context(span, parent)):
            yield _Asking(given, span)

    # Messages

    @contextmanager
    def sending(
        self, operation: str, destination: str | bytes | None, headers: Headers | None, count: int = 1
    ) -> Generator[_Sending, None, None]:
        """See nngkit.tracing.Spans."""
        given = check_headers(headers) if headers else {}
        own = links_to(given)  # the program's own context of the message is left as it is
        within = get_current()
        span = self._start(
            _name(operation, destination),
            within,
            SpanKind.CLIENT if own else SpanKind.PRODUCER,
            _messaging(operation, "send", destination, count),
            own,
        )
        if not own:
            inject(span, given, within)
        with _ending(span):
            yield _Sending(given, span)

    def received(self, messages: Sequence[Any]) -> None:
        """See nngkit.tracing.Spans."""
        traced = [each for each in messages if each.headers and "traceparent" in each.headers]
        if not traced:
            return
        links = [link for each in traced for link in links_to(each.headers)]
        topics = {each.topic for each in traced}
        topic = topics.pop() if len(topics) == 1 else None
        attributes = _messaging("receive", "receive", topic, len(traced))
        self._start(_name("receive", topic), get_current(), SpanKind.CLIENT, attributes, links).end()

    @contextmanager
    def trying(self, run: Any) -> Generator[Span, None, None]:
        """See nngkit.tracing.Spans."""
        attributes = _messaging("process", "process", run.kind, 1)
        attributes |= {"messaging.message.id": str(run.id), "nngkit.job.try": run.try_number}
        with self.processing(run.kind, run.headers, attributes, NO_CONTEXT) as span:
            yield span

    @contextmanager
    def processing(
        self, destination: str | bytes | None, headers: Headers, attributes: dict[str, Any], ambient: Context | None
    ) -> Generator[Span, None, None]:
        """Make a span of the block. Its parent: the span of `ambient`, else that of the headers, to which it links."""
        parent = ambient
        if not trace.get_current_span(ambient).get_span_context().is_valid:
            parent, _ = extract(headers, ambient)
        within = get_current() if parent is None else parent
        span = self._start(_name("process", destination), within, SpanKind.CONSUMER, attributes, links_to(headers))
        with _Current(span, trace.set_span_in_context(span, within)):
            yield span

    # HTTP

    async def http(self, request: Any, proceed: Any) -> Any:
        """See nngkit.tracing.Spans."""
        known = request.method if request.method in METHODS else "_OTHER"
        attributes: dict[str, Any] = {
            "http.request.method": known,
            "url.path": request.path[:MOST_TEXT],
            "url.scheme": request.scheme,
            "client.address": request.client,
            "network.protocol.version": "1.0" if request.old else "1.1",
        }
        if agent := request.headers.get("user-agent"):
            attributes["user_agent.original"] = agent[:MOST_TEXT]
        parent, _ = extract(request.headers)
        verb = "HTTP" if known == "_OTHER" else known
        span = self._start(verb, parent, SpanKind.SERVER, attributes)
        token = attach(trace.set_span_in_context(span, parent))
        response: Any = None
        try:
            response = await proceed(request)
        except BaseException as error:
            _fail(span, error)
            raise
        finally:
            detach(token)
            if request.route:
                span.update_name(f"{verb} {request.route}")
                span.set_attribute("http.route", request.route)
            if response is None or not hasattr(response, "run"):
                _end_http(span, response)

        if not hasattr(response, "run"):
            return response

        async def run(channel: Any) -> Any:
            try:
                return await response.run(channel)
            finally:
                _end_http(span, response)

        return replace(response, run=run)


class _Current:
    """Makes a span current in a block, by its context, and ends it after the block, if it is of this process."""

    def __init__(self, span: Span | None, context: Context) -> None:
        self._span = span
        self._context = context

    def __enter__(self) -> None:
        self._token = attach(self._context)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None and self._span is not None:
            _fail(self._span, error)
        detach(self._token)
        if self._span is not None:
            self._span.end()


class _Sending:
    """See nngkit.tracing.Sending."""

    def __init__(self, headers: dict[str, str | bytes], span: Span) -> None:
        self.headers = headers
        self._span = span

    def sent(self, id: str) -> None:
        """Note the id that it has got."""
        self._span.set_attribute("messaging.message.id", id)


class _Asking:
    """See nngkit.tracing.Asking."""

    def __init__(self, headers: dict[str, str | bytes], span: Span) -> None:
        self.headers = headers
        self._span = span

    def found(self, **facts: str | int | Sequence[str]) -> None:
        """Note what came of it."""
        self._span.set_attributes(_discovery(**facts))


def instrument(tracer_provider: TracerProvider | None = None) -> None:
    """Make spans of calls, discovery, published and received messages, jobs, and a gateway's requests in this process.

    Call it before clients, servers and gateways are made: those that are there already make none. `tracer_provider`:
    default: the process's, also one that is set later.
    """
    tracing.spans = Spans(trace.get_tracer(SYSTEM, version(SYSTEM), tracer_provider))


def uninstrument() -> None:
    """Make no spans of what begins from now on, but of clients and servers that were made meanwhile."""
    tracing.spans = None


class Instrumentor:
    """Entry point `opentelemetry_instrumentor`: the command `opentelemetry-instrument` loads it."""

    def instrument(self, **options: Any) -> None:
        """Call `instrument`, with the option `tracer_provider`."""
        instrument(options.get("tracer_provider"))

    def uninstrument(self, **_: Any) -> None:
        """Call `uninstrument`."""
        uninstrument()


@contextmanager
def process(message: Any) -> Generator[None, None, None]:
    """Make a span of what the block does with a received message: a Published, Record or Delivery.

    Its parent is the span that is current, or if there is none that of the message's sender; it links to the latter.
    Does nothing unless the process is instrumented.
    """
    spans = tracing.spans
    if not isinstance(spans, Spans):
        yield
        return
    attributes = _messaging("process", "process", message.topic, 1)
    with spans.processing(message.topic, dict(message.headers or ()), attributes, None):
        yield


class _Drawn:
    """A tracer's generator of ids, when the id of the trace was drawn."""

    def __init__(self, ids: Any, trace_id: int) -> None:
        self.generate_span_id = ids.generate_span_id
        self.is_trace_id_random = ids.is_trace_id_random
        self._trace_id = trace_id

    def generate_trace_id(self) -> int:
        """Return the id."""
        return self._trace_id


def _leaves_it_to_parents(tracer: Any, sampler: Any) -> bool:
    """Return True for the SDK's own tracer with its ParentBased, as it is by default for parents without a sample.

    One that is disabled makes other spans, and one that counts them in the SDK's own metrics has to make them.
    """
    sdk: Any = sys.modules.get("opentelemetry.sdk.trace")
    if sdk is None or type(tracer) is not sdk.Tracer or not isinstance(sampler, sdk.sampling.ParentBased):
        return False
    if type(sampler).should_sample is not sdk.sampling.ParentBased.should_sample:
        return False
    if not getattr(getattr(tracer, "_tracer_config", None), "is_enabled", True):
        return False
    if type(getattr(tracer, "_tracer_metrics", None)).__name__ not in ("NoneType", "NoOpTracerMetrics"):
        return False
    below = [getattr(sampler, f"_{where}_parent_not_sampled", None) for where in ("remote", "local")]
    return all(each is sdk.sampling.ALWAYS_OFF for each in below)


def _bound_of(root: Any) -> int:
    """Return what a trace's id, modulo EVERY, has to be below for the SDK's sampler of roots to sample it.

    EVERY if that is not known: for any but ALWAYS_OFF and TraceIdRatioBased, which is asked at both sides of its bound.
    """
    sampling: Any = sys.modules["opentelemetry.sdk.trace.sampling"]
    if root is sampling.ALWAYS_OFF:
        return 0
    if type(root) is not sampling.TraceIdRatioBased:
        return EVERY
    bound = int(root.bound)
    for trace_id in (bound - 1, bound, EVERY + bound - 1, EVERY + bound, EVERY - 1):
        decided = root.should_sample(NO_CONTEXT, trace_id % EVERY**2, "").decision
        if decided.is_sampled() != (trace_id % EVERY < bound):
            return EVERY
    return bound


# ---- parts of spans --------------------------------------------------------------------------------------------------


def _fail(span: Span, error: BaseException) -> None:
    if span.is_recording():
        kind = type(error)
        remote = isinstance(error, RemoteError) and error.kind
        span.set_attribute("error.type", remote or f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."))
        span.set_status(Status(StatusCode.ERROR, str(error)[:MOST_TEXT]))


@contextmanager
def _ending(span: Span) -> Generator[None, None, None]:
    try:
        yield
    except BaseException as error:
        _fail(span, error)
        raise
    finally:
        span.end()


def _end_http(span: Span, response: Any) -> None:
    if response is not None:
        span.set_attribute("http.response.status_code", response.status)
        if response.status >= 500:
            span.set_attribute("error.type", str(response.status))
            span.set_status(Status(StatusCode.ERROR))
    span.end()


def _tell_attempts(span: Span, attempts: Sequence[Any], provider: str) -> None:
    """Add the provider that replied, or was asked last, and each attempt if there were several."""
    if len(attempts) > 1:
        wall = time.time() - time.monotonic()
        for each in attempts:
            told = {
                **_endpoint("server", each.provider),
                "nngkit.attempt.outcome": each.outcome,
                "nngkit.attempt.duration": each.seconds,
            }
            span.add_event("nngkit.attempt", told, int((wall + each.began) * 1e9))
    if chosen := provider or (attempts[-1].provider if attempts else ""):
        span.set_attributes(_endpoint("server", chosen))


@lru_cache(maxsize=1024)
def _endpoint(what: str, address: str) -> dict[str, str | int]:
    """Return the attributes of an address, as tcp://10.0.0.7:9000 or ipc:///run/a.sock. `what`: their prefix."""
    place = address.partition("://")[2] or address
    host, colon, port = place.partition("/")[0].rpartition(":")
    if colon and port.isdigit():
        return {f"{what}.address": host.strip("[]"), f"{what}.port": int(port)}
    return {f"{what}.address": place}


def _discovery(**facts: str | int | Sequence[str]) -> dict[str, Any]:
    return {f"nngkit.discovery.{name}": fact for name, fact in facts.items()}


def _text(destination: str | bytes) -> str:
    return (destination.decode(errors="replace") if isinstance(destination, bytes) else destination)[:MOST_TEXT]


def _name(operation: str, destination: str | bytes | None) -> str:
    return operation if not destination else f"{operation} {_text(destination)}"


def _messaging(operation: str, type: str, destination: str | bytes | None, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": type,
    }
    if destination:
        found["messaging.destination.name"] = _text(destination)
    if count != 1:
        found["messaging.batch.message_count"] = count
    return found
