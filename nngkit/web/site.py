"""Responses of the web server: files of one folder and a few JSON values, with their headers. No sockets.

    site = Site.load(folder, json={"config.json": lambda: {"documents": ["minutes"]}}, connect=["ws://*:4712/repair"])
    response = site.answer("GET", "/", host="127.0.0.1:8080", etag=None)      # Response(200, headers, body)

The files are read once, at `load`. A request is looked up in a dict by its whole name, so no path can lead out of the
folder. Nothing here may come from a peer.

Text is compressed once too, and sent with gzip to clients that accept it. JSON values are computed for each request and
not compressed.

The Content-Security-Policy lets a page load resources of this site, and connect to it and to the WebSocket addresses in
`connect`, and nothing else. In an address "ws://*:4712/x", "*" stands for the host that the browser requested.
"""

from __future__ import annotations

import gzip
import hashlib
import json as json_module
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from nngkit.errors import ConfigError
from nngkit.file_modes import checked_path
from nngkit.web.exchange import Headers, Request, Response, Streamed

MOST_FILES: Final = 256  # a page has five; more means the wrong folder
MOST_BYTES: Final = 32 << 20  # they are all kept in memory
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")  # no hidden files, nothing that a URL would escape
COMPRESSED: Final = frozenset({".html", ".js", ".css", ".json", ".txt", ".svg"})  # other types are compressed already
SMALLEST: Final = 1024  # bytes: below that gzip saves no packet
QUALITY: Final = re.compile(r"[qQ]=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")  # RFC 9110, 12.4.2
# "_" is in no name of a machine, but browsers ask for such names, and so can those of a page that wants to be let in
HOST: Final = re.compile(r"(?P<host>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?")
SOCKET: Final = re.compile(r"(?P<scheme>wss?)://(?P<host>\*|[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?P<port>:\d+)?(?:/.*)?")
COMMON_HEADERS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("X-Frame-Options", "DENY"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
)


@dataclass(frozen=True, slots=True)
class _Body:
    """One representation of a file: plain or compressed."""

    data: bytes
    headers: Headers


@dataclass(frozen=True, slots=True)
class _File:
    kind: str
    plain: _Body
    gzip: _Body | None

    @classmethod
    def of(cls, suffix: str, data: bytes) -> _File:
        tag = hashlib.sha256(data).hexdigest()[:32]
        kind = TYPES.get(suffix, "application/octet-stream")
        packed = gzip.compress(data, mtime=0) if suffix in COMPRESSED and len(data) >= SMALLEST else data
        if len(packed) >= len(data):
            return cls(kind, _Body(data, (("ETag", f'"{tag}"'),)), None)
        varies = ("Vary", "Accept-Encoding")  # on both: a cache must not mix them up
        plain = _Body(data, (varies, ("ETag", f'"{tag}"')))
        return cls(kind, plain, _Body(packed, (varies, ("Content-Encoding", "gzip"), ("ETag", f'"{tag}-gzip"'))))

    def body(self, encodings: str | None) -> _Body:
        """Return the representation for a client with this Accept-Encoding."""
        return self.gzip if self.gzip is not None and _accepts_gzip(encodings) else self.plain


class Site:
    """Files and JSON values by name. Create it with `load`."""

    def __init__(
        self, files: Mapping[str, _File], json: Mapping[str, Callable[[], object]], connect: Sequence[str]
    ) -> None:
        self._files = files
        self._json = json
        self._connect = tuple(map(_socket, connect))

    @classmethod
    def load(
        cls, folder: Path, *, json: Mapping[str, Callable[[], object]] | None = None, connect: Sequence[str] = ()
    ) -> Site:
        """Read `folder`, one level deep. `json`: functions called at each request, by name. `connect`: ws addresses.

        Symbolic links and hidden files are skipped. Raises ConfigError for a missing folder, one with too many files or
        bytes, or an address that is no WebSocket address.
        """
        files: dict[str, _File] = {}
        total = 0
        try:
            for path in sorted(checked_path("web folder", folder).iterdir()):
                if path.is_symlink() or not path.is_file() or not NAME.fullmatch(path.name):
                    continue
                body = path.read_bytes()
                total += len(body)
                if len(files) == MOST_FILES or total > MOST_BYTES:
                    raise ConfigError("web folder", f"{folder} holds over {MOST_FILES} files or {MOST_BYTES} bytes")
                files[path.name] = _File.of(path.suffix, body)
        except OSError as error:
            raise ConfigError("web folder", f"{folder}: {error.strerror or error}", str(folder)) from error
        return cls(files, dict(json or {}), connect)

    @property
    def paths(self) -> frozenset[str]:
        """Paths of the files and values."""
        names = {*self._files, *self._json}
        return frozenset(f"/{name}" for name in names) | ({"/"} if "index.html" in names else set())

    def drain(self) -> None:
        """Do nothing: no response waits."""

    def refusal(self, status: int, why: str) -> Response:
        """Return the response to a request that the server refuses: a line of text."""
        return refusal(status, why)

    async def respond(self, request: Request) -> Response | Streamed:
        """Return the response to a request, of which only some headers matter."""
        headers = request.headers
        return self.answer(
            request.method,
            request.target,
            host=headers.get("host"),
            etag=headers.get("if-none-match"),
            encodings=headers.get("accept-encoding"),
        )

    def answer(
        self, method: str, target: str, *, host: str | None, etag: str | None, encodings: str | None = None
    ) -> Response:
        """Return the response to a request; never raises.

        `host`, `etag` and `encodings` are the request's Host, If-None-Match and Accept-Encoding.
        """
        if method not in ("GET", "HEAD"):
            return refusal(405, "only GET and HEAD are allowed", (("Allow", "GET, HEAD"),))
        asked = HOST.fullmatch(host or "")
        if not target.startswith("/") or asked is None:
            return refusal(400, "invalid request target or host")
        name = target.partition("?")[0][1:] or "index.html"
        if name in self._json:
            body = json_module.dumps(self._json[name]()).encode()
            headers: Headers = (("Content-Type", TYPES[".json"]), ("Cache-Control", "no-store"))
        elif name in self._files:
            file = self._files[name]
            chosen = file.body(encodings)
            body = chosen.data
            headers = (("Content-Type", file.kind), ("Cache-Control", "no-cache"), *chosen.headers)
            if etag is not None and _matches(etag, dict(chosen.headers)["ETag"]):
                unchanged = [header for header in headers if not header[0].startswith("Content-")]
                return Response(304, (*unchanged, *COMMON_HEADERS), b"", 0)
        else:
            return refusal(404, "not found")
        headers += (("Content-Security-Policy", self._policy(asked["host"])), *COMMON_HEADERS)
        return Response(200, headers, body if method == "GET" else b"", len(body))

    def _policy(self, host: str) -> str:
        named = ((scheme, host if name == "*" else name, port) for scheme, name, port in self._connect)
        sockets = sorted({f"{scheme}://{name}{port}" for scheme, name, port in named})
        return "; ".join(
            [
                "default-src 'none'",
                "script-src 'self'",
                "style-src 'self'",
                "img-src 'self'",
                "font-src 'self'",
                " ".join(["connect-src 'self'", *sockets]),
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            ]
        )


def misdirected(
    host: str | None, origin: str | None, names: Collection[str] | None, origins: Collection[str] = ()
) -> tuple[int, str] | None:
    """Return status and reason if a request is for another server, or from a page of another site; else None.

    `names`: those of the server. "localhost" and IP addresses are too: a page of another site cannot have its own name
    point here (DNS rebinding) and be asked under it. None: browsers compare the name with the server's
    certificate. `origins`: other sites whose pages may ask; "*": those of all.
    """
    if host is None:
        return None  # of HTTP/1.0, which no browser speaks
    asked = HOST.fullmatch(host)
    if asked is None:
        return 400, "invalid host"
    name = asked["host"].lower().rstrip(".")
    if names is not None and name not in names and name != "localhost" and not _is_address(name):
        return 421, "this server does not have that name"
    if origin is None or origin in origins or "*" in origins:
        return None
    if origin.partition("://")[2].lower() != host.lower():
        return 403, "requests of other sites are refused"
    return None


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def refusal(status: int, why: str, more: Headers = ()) -> Response:
    """Return an error response of one line of text."""
    body = f"{why}\n".encode()
    headers = (("Content-Type", TYPES[".txt"]), ("Cache-Control", "no-store"), *more, *COMMON_HEADERS)
    return Response(status, headers, body, len(body))


def _matches(tags: str, etag: str) -> bool:
    """Return True if an If-None-Match header names `etag`."""
    return etag in (tag.strip().removeprefix("W/") for tag in tags.split(","))


def _accepts_gzip(header: str | None) -> bool:
    """Return True if an Accept-Encoding header prefers gzip to no compression. Unknown syntax is not accepted.

    RFC 9110, 12.5.3: "*" stands for every coding not named, a quality of 0 refuses.
    """
    qualities: dict[str, float] = {}
    for part in (header or "").split(","):
        coding, *parameters = (word.strip() for word in part.split(";"))
        found = QUALITY.fullmatch(parameters[0]) if len(parameters) == 1 else None
        quality = 1.0 if not parameters else float(found[1]) if found else 0.0
        qualities[coding.lower()] = quality
    wanted = qualities.get("gzip", qualities.get("x-gzip", qualities.get("*", 0.0)))
    return wanted > 0 and wanted >= qualities.get("identity", 0.0)


def _socket(address: str) -> tuple[str, str, str]:
    found = SOCKET.fullmatch(address)
    if found is None:
        raise ConfigError("connect", f"{address!r} is not a WebSocket address, ws://host:port/path", address)
    return found["scheme"], found["host"], found["port"] or ""
