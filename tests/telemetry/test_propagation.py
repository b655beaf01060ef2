"""Contexts in headers are those of the process's propagator, by whichever way they are written and read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, propagate, trace
from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nngkit.telemetry.propagation import extract, inject

hexadecimal = st.text("0123456789abcdef", min_size=32, max_size=32)
parents = st.builds(
    lambda version, both, flags, rest: f"{version}-{both}-{both[:16]}-{flags}{rest}",
    st.sampled_from(["00", "01", "ff"]),
    hexadecimal | st.just("0" * 32),
    st.sampled_from(["00", "01", "02", "03", "ff", "0", "0G", "_1"]),
    st.sampled_from(["", "", "", "-x", " ", "\n"]),
)
texts = parents | st.text(st.characters(codec="latin-1"), max_size=70)
carriers = st.fixed_dictionaries(
    {},
    optional={
        "traceparent": texts | parents.map(str.encode),
        "tracestate": st.sampled_from(["a=1", "=", ""]),
        "baggage": st.sampled_from(["a=1", "%", ""]),
    },
)
contexts = st.builds(
    SpanContext,
    st.integers(0, (1 << 128) - 1),
    st.integers(0, (1 << 64) - 1),
    st.booleans(),
    st.integers(0, 255).map(TraceFlags),
    st.sampled_from([None, TraceState([("a", "1")])]),
)


@given(carriers)
def test_a_context_is_read_as_by_the_propagator(carrier: dict[str, Any]) -> None:
    as_text = {name: value.decode() if isinstance(value, bytes) else value for name, value in carrier.items()}
    expected = propagate.extract(as_text, Context())
    found, span = extract(carrier)
    assert trace.get_current_span(found) is span
    assert span.get_span_context() == trace.get_current_span(expected).get_span_context()
    assert baggage.get_all(found) == baggage.get_all(expected)
    sent: dict[str, str] = {}
    propagate.inject(sent, expected)
    passed_on: dict[str, str | bytes] = {}
    inject(span, passed_on, found)
    assert passed_on == sent


@given(contexts, st.booleans())
def test_a_context_is_written_as_by_the_propagator(context: SpanContext, with_baggage: bool) -> None:
    span = NonRecordingSpan(context)
    token = attach(baggage.set_baggage("tenant", "oslo") if with_baggage else Context())
    try:
        expected: dict[str, str] = {}
        propagate.inject(expected, trace.set_span_in_context(span))
        found: dict[str, str | bytes] = {}
        inject(span, found, get_current())
    finally:
        detach(token)
    assert found == expected


SPAN = NonRecordingSpan(SpanContext(1, 2, False))


@pytest.fixture
def _propagators_kept() -> Iterator[None]:
    before = propagate.get_global_textmap()
    yield
    propagate.set_global_textmap(before)


@pytest.mark.usefixtures("_propagators_kept")
def test_another_propagator_of_the_program_is_used() -> None:
    class Own(TraceContextTextMapPropagator):
        def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
            carrier["own"] = "1"

        def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Context:
            return trace.set_span_in_context(SPAN, Context())

    propagate.set_global_textmap(Own())
    headers: dict[str, str | bytes] = {}
    inject(SPAN, headers, Context())
    assert headers == {"own": "1"}
    assert extract(headers)[1] is SPAN


def test_the_default_propagator_is_not_called_for_a_traceparent_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError

    monkeypatch.setattr(TraceContextTextMapPropagator, "inject", fail)
    monkeypatch.setattr(TraceContextTextMapPropagator, "extract", fail)
    headers: dict[str, str | bytes] = {}
    inject(SPAN, headers, Context())
    assert headers == {"traceparent": f"00-{1:032x}-{2:016x}-00"}
    assert extract(headers)[1].get_span_context() == SpanContext(1, 2, True)
