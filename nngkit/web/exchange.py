"""Requests and responses of the web server, as programs that answer them see them.

::

    class Clock:
        async def respond(self, request: Request) -> Response | Streamed:
            return Response.of(200, "text/plain", b"12:00\n")

`Site` is one such program, `nngkit.web.gateway.Gateway` another; `nngkit.web.server.serve` serves either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

MOST_FIELDS: Final = 64  # of a query
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of metrics."""
STATUSES: Final = (
    *(101, 200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 413, 415, 417, 421, 422, 426, 429),
    *(431, 500, 501, 502, 503, 504, 505),
)
REASONS: Final = {  # those of RFC 9110, of which Python has two since 3.13 only
    **{status: HTTPStatus(status).phrase for status in STATUSES},
    413: "Content Too Large",
    422: "Unprocessable Content",
}

Headers = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Request:
    """A whole request. `headers`: names in lower case, lines of one name joined by ", "; all of it is untrusted.

    `client`: address of the other end of the connection; `old`: of HTTP/1.0, which has no streamed responses; `scheme`:
    "http" or "https"; `params`: what a router found in the path; `route`: the path as it was added there.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    client: str
    old: bool = False
    scheme: str = "http"
    params: Mapping[str, str] = field(default_factory=dict)
    route: str = ""

    @property
    def path(self) -> str:
        """The target without its query, still with "%" escapes."""
        return self.target.partition("?")[0]

    def query(self) -> dict[str, list[str]]:
        """Return the values of the query by name. Raises ValueError for one that is not UTF-8, or has many fields."""
        query = self.target.partition("?")[2]
        return parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS) if query else {}


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response; `size` is the Content-Length, which for a HEAD is not that of `body`."""

    status: int
    headers: Headers
    body: bytes
    size: int

    @classmethod
    def of(cls, status: int, kind: str, body: bytes, headers: Headers = ()) -> Response:
        """Return a response with a body of the media type `kind`, which is not kept by caches."""
        return cls(status, (("Content-Type", kind), ("Cache-Control", "no-store"), *headers), body, len(body))


class Channel(Protocol):
    """The client's end of a streamed response. Every method raises trio.BrokenResourceError once the client is gone."""

    def write_now(self, data: bytes) -> int:
        """Write what the kernel takes at once, and return how many bytes; 0 under TLS. `write` is to write the rest."""

    async def write(self, data: bytes) -> None:
        """Write these bytes, within the server's `writing` seconds."""

    async def read(self) -> bytes:
        """Return what the client sends; b"" at its end."""

    def count(self, sent: int) -> None:
        """Count bytes of a streamed body."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """A response that `run` writes, as long as it likes, by a `Channel`; then the connection ends.

    `headers` say how the body ends: `Transfer-Encoding: chunked`, see `chunk`. With the status 101 bytes are those of
    another protocol. `run` is cancelled when the client leaves; with `reads` it reads by itself, and notices. `ends`:
    it ends by itself, and a server that is drained waits for it; any other it cancels between two writes, and then
    writes `last`.
    """

    status: int
    headers: Headers
    run: Callable[[Channel], Awaitable[Any]]
    reads: bool = False
    ends: bool = False
    last: bytes = b""


CHUNKED: Final = ("Transfer-Encoding", "chunked")
LAST_CHUNK: Final = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """Return one chunk of a chunked body (RFC 9112, 7.1); `data` is not empty."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class App(Protocol):
    """A program that answers requests."""

    async def respond(self, request: Request) -> Response | Streamed:
        """Return the response to a request. An exception is a bug, and ends the server."""

    def refusal(self, status: int, why: str) -> Response:
        """Return the response to a request that the server itself refuses."""

    def drain(self) -> None:
        """Answer at once what waits for something to come, as the server is drained."""
