"""Handshake of SP over WebSocket as pure functions: HTTP requests and responses, written and validated.

::

    client                                             listener
    ask(subprotocol, path, host, key)   -- GET -->     judge_request(head, ...) -> Request, token
    judge_response(head, ...)           <-- 101 --     acceptance(token, subprotocol), or refusal(status)

h11 parses; wsproto computes the accept token. The order of the checks and the statuses are NNG's.

May not know: frames, the state of a connection, sockets, time.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import h11
from wsproto.utilities import generate_accept_token

from nngkit.errors import AccessDenied, ConfigError

NAMELESS: Final = b"GET  HTTP/1.1\r\n"  # NNG's request for an address without a path
ANY_HOST: Final = frozenset(("", "*", "0.0.0.0", "::"))  # a listener on one of these accepts every host
WHY: Final = "Nngkit-Refused"  # field of a response that tells a member why it is refused
MOST_WHY: Final = 500  # bytes of its text
MOST_HEAD: Final = 16 * 1024  # bytes of a request or response; browsers send under 8 KiB, cookies included

REASONS: Final = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    505: "HTTP Version Not Supported",
}


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request: ``path`` with query, ``origin`` if a browser sent one, ``host`` with port."""

    path: str
    origin: str | None
    host: str | None


class Refusal(Exception):
    """Failed handshake: HTTP ``status`` and ``why``."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


# ---- the listener's side ---------------------------------------------------------------------------------------------


def judge_request(head: bytes, subprotocol: str, path: str, host: str | None) -> tuple[Request, bytes]:
    """Return the request and the token that accepts it. Raises Refusal; the order is NNG's.

    ``host``: the required host, without a port; None accepts every host.
    """
    http = h11.Connection(h11.SERVER)
    if head.startswith(NAMELESS):
        head = b"GET / HTTP/1.1\r\n" + head[len(NAMELESS) :]
    try:
        http.receive_data(head)
        event = http.next_event()
        rest = http.next_event()
    except h11.RemoteProtocolError as error:
        raise Refusal(400, str(error)) from None
    if not isinstance(event, h11.Request):
        raise Refusal(400, "not a request")
    fields = _Fields(event.headers)
    target = event.target.decode("latin-1")
    named = fields.one("host")
    if event.http_version != b"1.1":
        raise Refusal(505, f"HTTP/{event.http_version.decode()}")
    if path not in (target, target.partition("?")[0]):
        raise Refusal(404, f"path {target}")
    if host is not None and bare_host(named or "", port=True) != host:
        raise Refusal(404, f"host {named}")
    if event.method != b"GET":
        raise Refusal(405, f"method {event.method.decode()}")
    if "websocket" not in fields.tokens("upgrade") or "upgrade" not in fields.tokens("connection"):
        raise Refusal(426, "not an upgrade to websocket")
    version = fields.one("sec-websocket-version")
    if version != "13":
        raise Refusal(426 if version else 400, f"version {version}")
    key = (fields.one("sec-websocket-key") or "").encode("latin-1")
    if not _is_key(key):
        raise Refusal(400, "key is not 16 bytes")
    offers = fields.words("sec-websocket-protocol")
    if subprotocol not in offers:
        raise Refusal(400, f"{', '.join(offers) or 'no subprotocol'} instead of {subprotocol}")
    if not isinstance(rest, h11.EndOfMessage):
        raise Refusal(400, "request with a body")
    return Request(target, fields.one("origin"), named), generate_accept_token(key)


def acceptance(token: bytes, subprotocol: str) -> bytes:
    """Return the response that accepts a client."""
    return _head(
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {token.decode()}",
        f"Sec-WebSocket-Protocol: {subprotocol}",
    )


def refusal(status: int, why: str = "") -> bytes:
    """Return the response of HTTP ``status``, one of REASONS. ``why``: for a member that is refused."""
    more = [f"{WHY}: {' '.join(why.encode('ascii', 'replace').decode().split())[:MOST_WHY]}"] if why else []
    more += {
        405: ["Allow: GET"],
        426: ["Upgrade: websocket", "Sec-WebSocket-Version: 13"],
    }.get(status, [])
    connection = "Connection: Upgrade, close" if status == 426 else "Connection: close"
    return _head(f"HTTP/1.1 {status} {REASONS[status]}", *more, connection, "Content-Length: 0")


# ---- the dialer's side -----------------------------------------------------------------------------------------------


def ask(subprotocol: str, path: str, host: str, key: bytes) -> tuple[h11.Request, bytes]:
    """Return the request with this ``key``, and its bytes. Raises ConfigError for values that are invalid in HTTP."""
    fields = [
        ("Host", host),
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Key", key.decode()),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Protocol", subprotocol),
    ]
    try:
        asked = h11.Request(method="GET", target=path or "/", headers=fields)
        said = h11.Connection(h11.CLIENT).send(asked)
    except (h11.LocalProtocolError, UnicodeError) as error:
        raise ConfigError("WebSocket address", str(error), f"{host}{path}") from None
    return asked, said or b""


def judge_response(head: bytes, asked: h11.Request, key: bytes, subprotocol: str) -> None:
    """Check the listener's response to ``asked``. Raises Refusal, AccessDenied if the listener refuses our name."""
    http = h11.Connection(h11.CLIENT)
    http.send(asked)
    http.send(h11.EndOfMessage())
    try:
        http.receive_data(head)
        event = http.next_event()
    except h11.RemoteProtocolError as error:
        raise Refusal(400, str(error)) from None
    if isinstance(event, h11.Response) and (why := _Fields(event.headers).one(WHY.lower())):
        raise AccessDenied(why)
    if not isinstance(event, (h11.InformationalResponse, h11.Response)) or event.status_code != 101:
        raise Refusal(400, f"the listener answered {head[9:].splitlines()[0].decode('latin-1')}")
    fields = _Fields(event.headers)
    if "websocket" not in fields.tokens("upgrade") or "upgrade" not in fields.tokens("connection"):
        raise Refusal(400, "not an upgrade to websocket")
    if fields.one("sec-websocket-accept") != generate_accept_token(key).decode():
        raise Refusal(400, "accept token for another key")
    if fields.words("sec-websocket-protocol") != [subprotocol]:
        said = fields.one("sec-websocket-protocol") or "no subprotocol"
        raise Refusal(400, f"{said} instead of {subprotocol}")
    if fields.words("sec-websocket-extensions"):
        raise Refusal(400, "unrequested extension")


# ---- fields ----------------------------------------------------------------------------------------------------------


class _Fields:
    """Header fields of a request or response."""

    def __init__(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        self._fields = [(name.decode("ascii"), value.decode("latin-1")) for name, value in fields]

    def one(self, name: str) -> str | None:
        """Return the first value of ``name``."""
        values = [value for key, value in self._fields if key == name]
        return values[0] if values else None

    def words(self, name: str) -> list[str]:
        """Return the comma-separated parts of all values of ``name``."""
        parts = ",".join(value for key, value in self._fields if key == name).split(",")
        return [word for part in parts if (word := part.strip())]

    def tokens(self, name: str) -> list[str]:
        """Return them in lower case."""
        return [word.lower() for word in self.words(name)]


def bare_host(host: str, *, port: bool = False) -> str:
    """Return ``host`` in lower case, without brackets and, with ``port``, without its port."""
    if port and not host.endswith("]"):
        name, colon, _ = host.rpartition(":")
        host = name if colon else host
    return host.strip("[]").lower()


def _is_key(key: bytes) -> bool:
    try:
        return len(b64decode(key, validate=True)) == 16
    except ValueError:
        return False


def _head(*lines: str) -> bytes:
    return "\r\n".join((*lines, "", "")).encode("latin-1")
