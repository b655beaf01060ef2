"""Answers compared with their OpenAPI document by schemathesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

STREAMED = {"/sub", "/v1/events"}
"""Paths whose responses do not end."""


def conforming(
    url: str,
    document: dict[str, Any],
    *,
    examples: int = 25,
    checks: Sequence[Callable[..., Any]] | None = None,
    change: Callable[[Any], None] = lambda case: None,
) -> set[tuple[str, str]]:
    """Ask each operation of a document, without the STREAMED; return methods and paths.

    The same requests at each run, up to `examples` of an operation. `checks`: of schemathesis, default all; `change`
    changes a request before it is sent. Raises what a check finds.
    """
    import schemathesis  # a second to import
    from hypothesis import HealthCheck, given, settings

    asked = set()
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]
        if operation.path in STREAMED:
            continue

        @given(case=operation.as_strategy())
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: Any) -> None:
            change(case)
            case.call_and_validate(base_url=url, timeout=10, checks=checks)

        ask()
        asked.add((operation.method.upper(), operation.path))
    return asked
