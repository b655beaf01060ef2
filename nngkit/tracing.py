"""Tracing hook: what makes spans of the rooms' work, None until `nngkit.telemetry.instrument` is called.

Imports no other module of nngkit, so every room may know it. `Client` and `Server` look at it when they are made, and
put its spans around their middleware: without it, a call is as before. What has no middleware looks at each operation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Sending(Protocol):
    """A message, or a job, that is being sent: with `headers`, which have the context of its span."""

    headers: dict[str, str | bytes]

    def sent(self, id: str) -> None:
        """Note the id that it has got."""


class Asking(Protocol):
    """A question of discovery, or its answer. `headers` have the context of its span."""

    headers: dict[str, str | bytes]

    def found(self, **facts: str | int | Sequence[str]) -> None:
        """Note what came of it: attributes of `nngkit.discovery`."""


class Spans(Protocol):
    """Makes spans."""

    async def client(self, call: Any, proceed: Any) -> Any:
        """Make the span of a call, in a client's middleware."""

    def calling(self, service: str, method: str, headers: dict[str, str | bytes] | None, proceed: Any) -> Any:
        """Begin the span of a call, and write its context into headers that can be sent: None if there are none.

        Return `proceed` with the span around it; None if nothing would be told of the call.
        """

    async def server(self, call: Any, proceed: Any) -> Any:
        """Make the span of a handler, in a server's middleware."""

    def serving(
        self, service: str, method: str, headers: Mapping[str, str | bytes], peer: Any
    ) -> AbstractContextManager[object]:
        """Return the span of a handler, for a block. `headers`: of the call; `peer`: its connection, if it is there."""

    async def http(self, request: Any, proceed: Any) -> Any:
        """Make the span of a request to a web application; of a streamed response until it has ended."""

    def sending(
        self, operation: str, destination: str | bytes | None, headers: Mapping[str, str | bytes] | None, count: int = 1
    ) -> AbstractContextManager[Sending]:
        """Return the span of `count` messages with these headers. `destination`: None if there are several.

        Raises ConfigError, TooLarge for the headers.
        """

    def received(self, messages: Sequence[Any]) -> None:
        """Make a span of published messages that a program has just received, if they have headers."""

    def trying(self, run: Any) -> AbstractContextManager[object]:
        """Return the span of a try of a job."""

    def asking(
        self, operation: str, service: str | None, headers: Mapping[str, str | bytes] | None = None, daemon: str = ""
    ) -> AbstractContextManager[Asking]:
        """Return the span of what discovery does for a caller. `service`: None for all.

        `headers`: of a question that is sent; None: nothing is sent that could carry the context. `daemon`: the address
        that it is sent to; "": services are asked.
        """

    def answering(
        self, operation: str, service: str | None, headers: Mapping[str, str | bytes] | None
    ) -> AbstractContextManager[Asking]:
        """Return the span of the answer to a question with these headers."""


spans: Spans | None = None
