"""Context of a span in headers: written and read by the process's propagator.

OpenTelemetry's default one writes `traceparent`, `tracestate` and `baggage`. Where only the first is needed, as nearly
always, it is written and read here, as the propagator would (tests/telemetry/test_propagation.py), in a third of the
time; all else is left to the propagator. A context that is not sampled stays the text that it is on the wire.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

from opentelemetry import baggage, propagate, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import Getter, TextMapPropagator
from opentelemetry.trace import INVALID_SPAN, Link, NonRecordingSpan, Span, SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nngkit.headers import MOST_BYTES, MOST_HEADERS

NO_CONTEXT: Final = Context()
_DEFAULT: Final = [TraceContextTextMapPropagator, W3CBaggagePropagator]
_FLAGS: Final = {f"{number:02x}": TraceFlags(number) for number in range(256)}
_TRACEPARENT: Final = re.compile("00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_UNSAMPLED: Final = "02468ace"  # the last digit of the flags
_KEY: Final = next(iter(trace.set_span_in_context(INVALID_SPAN, NO_CONTEXT)))  # of the span in a context

Headers = Mapping[str, str | bytes]


class _Getter(Getter[Headers]):
    """Reads headers of a peer: values may be bytes, and the propagators expect text."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        value = carrier.get(key)
        if value is None:
            return None
        return [value if isinstance(value, str) else value.decode("latin-1")]

    def keys(self, carrier: Headers) -> list[str]:
        return list(carrier)


_GETTER: Final = _Getter()


class _Propagator:
    """The process's propagator, which a program may replace at any time. `default`: it, if it is the default one."""

    def __init__(self) -> None:
        self._known: TextMapPropagator | None = None
        self.default: TextMapPropagator | None = None

    def is_default(self) -> bool:
        current = propagate.get_global_textmap()
        if current is not self._known:
            parts = getattr(current, "_propagators", ())
            usual = type(current) is CompositePropagator and [type(each) for each in parts] == _DEFAULT
            self.default = current if usual else None
            self._known = current
        return current is self.default


_PROPAGATOR: Final = _Propagator()


class Unsampled(NonRecordingSpan):
    """Span that is not sampled, without a tracestate: its `traceparent`, which is taken apart only if it is asked for.

    Most of them are sent on, or end, as the text that they are.
    """

    def __init__(self, traceparent: str, remote: bool) -> None:
        self.traceparent = traceparent
        self._remote = remote

    @cached_property
    def _context(self) -> SpanContext:  # type: ignore[override]
        _, trace_id, span_id, flags = self.traceparent.split("-")
        return SpanContext(int(trace_id, 16), int(span_id, 16), self._remote, _FLAGS[flags])

    def get_span_context(self) -> SpanContext:
        return self._context


def inject(span: Span, headers: dict[str, str | bytes], current: Context) -> None:
    """Write the context of a span into headers, as far as there is room: the caps of headers hold for all of them.

    `current`: the context that is current, for its baggage.
    """
    found: dict[str, str] = {}
    default = propagate.get_global_textmap() is _PROPAGATOR.default or _PROPAGATOR.is_default()
    if default and type(span) is Unsampled and (not current or not baggage.get_all(current)):
        found["traceparent"] = span.traceparent
    else:
        trace_id, span_id, _, flags, state, valid = span.get_span_context()
        if default and valid and not state and (not current or not baggage.get_all(current)):
            found["traceparent"] = f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}"
        else:
            propagate.inject(found, trace.set_span_in_context(span, current))
    if headers or len(found) > 1:
        kept = [each for each in headers.items() if each[0] not in found]
        while found and (len(kept) + len(found) > MOST_HEADERS or _size(kept) + _size(found.items()) > MOST_BYTES):
            found.popitem()  # baggage is the last one
    headers.update(found)


def put(traceparent: str, headers: dict[str, str | bytes]) -> None:
    """Write the context of a trace that begins, and is not sampled."""
    if not headers and propagate.get_global_textmap() is _PROPAGATOR.default:
        headers["traceparent"] = traceparent
    else:
        inject(Unsampled(traceparent, False), headers, NO_CONTEXT)


def extract(headers: Headers, ambient: Context | None = NO_CONTEXT) -> tuple[Context, Span]:
    """Return the context in headers, within `ambient`, and the span of it."""
    if (
        ambient is NO_CONTEXT
        and (propagate.get_global_textmap() is _PROPAGATOR.default or _PROPAGATOR.is_default())
        and "tracestate" not in headers
        and "baggage" not in headers
    ):
        value = headers.get("traceparent")
        if value is None:
            return ambient, INVALID_SPAN
        if isinstance(value, str) and (found := _TRACEPARENT.fullmatch(value)):
            if value[-1] in _UNSAMPLED:
                span: Span = Unsampled(value, True)
            else:
                trace_id, span_id, flags = found.groups()
                span = NonRecordingSpan(SpanContext(int(trace_id, 16), int(span_id, 16), True, _FLAGS[flags]))
            return Context({_KEY: span}), span
    within = propagate.extract(headers, ambient, _GETTER)
    return within, trace.get_current_span(within)


def links_to(headers: Headers) -> list[Link]:
    """Return a link to the span that the headers name, if they name one."""
    context = extract(headers)[1].get_span_context()
    return [Link(context)] if context.is_valid else []


def _size(headers: Iterable[tuple[str, str | bytes]]) -> int:
    return sum(len(name.encode()) + len(value.encode() if isinstance(value, str) else value) for name, value in headers)
