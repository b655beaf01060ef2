"""Span of a question: what it asks, and how many providers have answered. The context travels in its headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

from nngkit import tracing
from nngkit.discovery.questions.messages import AskQuery, with_headers
from nngkit.discovery.questions.values import Outcome


async def trace_ask(
    outcomes: Callable[[AskQuery], Awaitable[tuple[Outcome, ...]]], ask: AskQuery, daemon: str = ""
) -> tuple[Outcome, ...]:
    """Return the outcomes, in a span if the process is instrumented. `daemon`: see nngkit.tracing.Spans.asking."""
    if (spans := tracing.spans) is None:
        return await outcomes(ask)
    with spans.asking("ask", ask.name, ask.headers or {}, daemon) as asking:
        found = await outcomes(with_headers(ask, asking.headers))
        kinds: Counter[str] = Counter(each.kind for each in found)
        asking.found(asked=len(found), **kinds)
    return found
