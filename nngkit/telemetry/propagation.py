"""Context of a span in headers: written and read by the process's propagator.

OpenTelemetry's default one writes `traceparent`, `tracestate` and `baggage`. Where only the first is needed, as nearly
always, it is written and read here, as the propagator would (tests/telemetry/test_propagation.py), in a third of the
time; all else is left to the propagator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from opentelemetry import baggage, propagate, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context, get_current
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import Getter, TextMapPropagator
from opentelemetry.trace import INVALID_SPAN, Link, NonRecordingSpan, Span, SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nngkit.headers import MOST_BYTES, MOST_HEADERS

NO_CONTEXT: Final = Context()
_DEFAULT: Final = [TraceContextTextMapPropagator, W3CBaggagePropagator]
_FLAGS: Final = {f"{number:02x}": TraceFlags(number) for number in range(256)}
_TRACEPARENT: Final = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")

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
    """The process's propagator, which a program may replace at any time, and whether it is the default one."""

    def __init__(self) -> None:
        self._known: TextMapPropagator | None = None
        self._default = False

    def is_default(self) -> bool:
        current = propagate.get_global_textmap()
        if current is not self._known:
            parts = getattr(current, "_propagators", ())
            self._default = type(current) is CompositePropagator and [type(each) for each in parts] == _DEFAULT
            self._known = current
        return self._default


_PROPAGATOR: Final = _Propagator()


def inject(span: Span, headers: dict[str, str | bytes]) -> None:
    """Write the context of a span into headers, as far as there is room: the caps of headers hold for all of them."""
    trace_id, span_id, _, flags, state, valid = span.get_span_context()
    found: dict[str, str] = {}
    current = get_current()
    if _PROPAGATOR.is_default() and valid and not state and not (current and baggage.get_all(current)):
        found["traceparent"] = f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}"
    else:
        propagate.inject(found, trace.set_span_in_context(span))
    if headers or len(found) > 1:
        kept = [each for each in headers.items() if each[0] not in found]
        while found and (len(kept) + len(found) > MOST_HEADERS or _size(kept) + _size(found.items()) > MOST_BYTES):
            found.popitem()  # baggage is the last one
    headers.update(found)


def extract(headers: Headers, ambient: Context | None = NO_CONTEXT) -> tuple[Context, Span]:
    """Return the context in headers, within `ambient`, and the span of it."""
    if ambient is NO_CONTEXT and _PROPAGATOR.is_default() and "tracestate" not in headers and "baggage" not in headers:
        value = headers.get("traceparent")
        if value is None:
            return ambient, INVALID_SPAN
        if isinstance(value, str) and (found := _TRACEPARENT.fullmatch(value)):
            trace_id, span_id, flags = found.groups()
            context = SpanContext(int(trace_id, 16), int(span_id, 16), True, _FLAGS[flags])
            if context.is_valid:
                span = NonRecordingSpan(context)
                return trace.set_span_in_context(span, ambient), span
    within = propagate.extract(headers, ambient, _GETTER)
    return within, trace.get_current_span(within)


def links_to(headers: Headers) -> list[Link]:
    """Return a link to the span that the headers name, if they name one."""
    context = extract(headers)[1].get_span_context()
    return [Link(context)] if context.is_valid else []


def _size(headers: Iterable[tuple[str, str | bytes]]) -> int:
    return sum(len(name.encode()) + len(value.encode() if isinstance(value, str) else value) for name, value in headers)
