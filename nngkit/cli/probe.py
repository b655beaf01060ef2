"""Probe an address with plain sockets, without NNG: the evidence for `nngkit doctor`.

NNG's dialers report neither why they cannot connect nor what the listener sent. Over tcp, ipc and TLS the probe waits
for the listener's greeting and sends nothing, so it never becomes a peer; a silent listener gets one HTTP request. A
WebSocket listener shows its protocol only to a peer, so there the probe is one for a moment.

HTTP is limited to one request and the status line, which needs no library.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from nngkit.cli.diagnosis import MOST_PATH, NUMBERS, PEERS, SUBPROTOCOL, Address, Connected, Seen, TlsTrouble, Upgrade
from nngkit.errors import ConfigError

KEPT: Final = 0.1  # seconds that an accepted WebSocket stays: NNG's PUSH does not survive a peer that leaves at once
REQUEST: Final = b"GET / HTTP/1.0\r\n\r\n"
MOST: Final = 4096  # bytes of a response that are read


@dataclass(frozen=True)
class Credentials:
    """TLS files, the expected name, and whether to skip the check."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None
    insecure: bool = False

    def context(self, *, check: bool) -> ssl.SSLContext:
        """Return the SSL context. Raises ConfigError that names the option of a bad file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = check
        context.verify_mode = ssl.CERT_REQUIRED if check else ssl.CERT_NONE
        try:
            if check and self.ca is not None:
                context.load_verify_locations(self.ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError("--cacert", f"{self.ca}: {error.strerror or error}") from error
        try:
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError("--cert", f"{self.cert}: {error.strerror or error}") from error
        return context


def look(address: Address, mine: str | None, credentials: Credentials, timeout: float) -> Seen:
    """Probe `address`; `timeout` is in seconds for each step. Raises ConfigError."""
    check = not credentials.insecure and credentials.ca is not None
    seen = Seen(address, verified=check, shown=credentials.cert is not None)
    if not address.tls:
        seen = _probe(seen, None, "", mine, timeout)
        if seen.connected is Connected.YES and not (seen.greeting or seen.answer or seen.closed or _answered(seen)):
            seen = replace(seen, speaks_tls=_speaks_tls(address, timeout))
        return seen
    name = credentials.server_name or address.host
    seen = _probe(seen, credentials.context(check=check), name, mine, timeout)
    trouble = seen.tls
    if trouble is not None and trouble.verify is not None:  # find further problems without the check
        rest = _probe(seen, credentials.context(check=False), name, mine, timeout)
        return replace(rest, tls=trouble)
    if seen.closed or (trouble is not None and trouble.spoke):
        # In TLS 1.3 the handshake ends here before the listener rejects it. Its alert may be lost as it closes, and
        # OpenSSL cannot read mbedTLS's. In TLS 1.2, if it admits that, the rejection is part of the handshake.
        context = credentials.context(check=check)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        older = _probe(replace(seen, tls=None, closed=False), context, name, mine, timeout).tls
        if older is not None and "PROTOCOL_VERSION" not in older.reason:
            return replace(seen, tls=replace(older, spoke=True), closed=False)
        if older is not None and seen.closed:  # without a word, after a handshake that is complete here
            return replace(seen, tls=TlsTrouble("CLOSED", "no greeting", spoke=True), closed=False)
    return seen


def look_with(address: Address, mine: str | None, context: ssl.SSLContext, timeout: float) -> Seen:
    """Probe `address` with these settings of TLS; `timeout` is in seconds for each step."""
    return _probe(Seen(address, shown=True), context, address.host, mine, timeout)


def certificate_at(address: Address, context: ssl.SSLContext, timeout: float) -> tuple[dict[str, Any], bytes]:
    """Return the listener's certificate: what it says if it is verified, and its bytes; nothing without a handshake."""
    try:
        with _connected(address, context, address.host, timeout) as stream:
            assert isinstance(stream, ssl.SSLSocket)
            return dict(stream.getpeercert() or {}), stream.getpeercert(binary_form=True) or b""
    except (OSError, _NotConnected):
        return {}, b""


def reach(address: Address, timeout: float) -> Seen:
    """Connect to `address` within `timeout` seconds; nothing is sent or read."""
    try:
        with _connect(address, timeout):
            return Seen(address)
    except _NotConnected as trouble:
        return Seen(address, connected=trouble.how, detail=str(trouble))


def _answered(seen: Seen) -> bool:
    return any(upgrade.status is not None for upgrade in seen.upgrades)


def _speaks_tls(address: Address, timeout: float) -> bool:
    try:
        with _connected(address, Credentials().context(check=False), "localhost", timeout):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (OSError, _NotConnected):
        return False


def _probe(seen: Seen, context: ssl.SSLContext | None, name: str, mine: str | None, timeout: float) -> Seen:
    """Probe once; a WebSocket once for each protocol it may have."""
    address, upgrades = seen.address, []
    if address.transport == "ws":
        offers = sorted(NUMBERS, key=lambda each: mine is None or each != PEERS[mine])
        for offered in offers:
            status: int | None = None
            spoke = False
            try:
                with _connected(address, context, name, timeout) as stream:
                    spoke = True
                    stream.sendall(_upgrade(address, SUBPROTOCOL[offered]))
                    answer = _read(stream, timeout, b"\r\n")
                    if answer.startswith(b"HTTP/") and answer[9:12].isdigit():
                        status = int(answer[9:12])
                    if status == 101:
                        time.sleep(KEPT)
            except _NotConnected as trouble:
                return replace(seen, connected=trouble.how, detail=str(trouble))
            except ssl.SSLError as error:
                return replace(seen, tls=_trouble(error, spoke))
            except OSError:  # connection lost: no response
                pass
            upgrades.append(Upgrade(offered, status))
            if status in (101, 404, None):  # other offers would not change the result
                break
        seen = replace(seen, upgrades=tuple(upgrades))
        if upgrades[-1].status is not None:
            return seen
    return _listen(seen, context, name, timeout)


def _listen(seen: Seen, context: ssl.SSLContext | None, name: str, timeout: float) -> Seen:
    """Read the greeting, or else the response to an HTTP request."""
    try:
        with _connected(seen.address, context, name, timeout) as stream:
            try:
                greeting = _read(stream, timeout, None, enough=8)
                if greeting:
                    return replace(seen, greeting=greeting)
                with suppress(ConnectionError):
                    stream.sendall(REQUEST)
                    return replace(seen, answer=_read(stream, timeout, b"\r\n"))
                return seen
            except ssl.SSLError as error:
                return replace(seen, tls=_trouble(error, True))
            except ConnectionError:
                return replace(seen, closed=True)
    except _NotConnected as trouble:
        return replace(seen, connected=trouble.how, detail=str(trouble))
    except ssl.SSLError as error:
        return replace(seen, tls=_trouble(error, False))
    except ConnectionError as error:  # in the TLS handshake
        return replace(seen, tls=TlsTrouble("CLOSED", str(error), spoke=False))
    except TimeoutError as error:
        return replace(seen, tls=TlsTrouble("SILENT", str(error), spoke=False))


class _NotConnected(Exception):
    def __init__(self, how: Connected, detail: str) -> None:
        super().__init__(detail)
        self.how = how


class _Ended(ConnectionError):
    """The listener closed without sending anything."""


@contextmanager
def _connected(address: Address, context: ssl.SSLContext | None, name: str, timeout: float) -> Iterator[socket.socket]:
    with _connect(address, timeout) as plain:
        if context is None:
            yield plain
        else:
            with context.wrap_socket(plain, server_hostname=name) as secured:
                yield secured


def _connect(address: Address, timeout: float) -> socket.socket:
    places: list[tuple[socket.AddressFamily, object]] = []
    if address.transport in ("ipc", "abstract"):
        path = ("\0" if address.transport == "abstract" else "") + address.path
        if len(os.fsencode(path)) > MOST_PATH:
            raise _NotConnected(Connected.TOO_LONG, path)
        places.append((socket.AF_UNIX, path))
    else:
        versions = {"": socket.AF_UNSPEC, "4": socket.AF_INET, "6": socket.AF_INET6}
        try:
            found = socket.getaddrinfo(address.host, address.port, versions[address.version], socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise _NotConnected(Connected.NOT_FOUND, getattr(error, "strerror", None) or str(error)) from error
        places += [(each[0], each[4]) for each in found]
    trouble = _NotConnected(Connected.UNREACHABLE, "")
    for family, place in places:
        stream = socket.socket(family, socket.SOCK_STREAM)
        stream.settimeout(timeout)
        try:
            stream.connect(place)  # type: ignore[arg-type]
            return stream
        except OSError as error:
            stream.close()
            trouble = _NotConnected(_how(error), error.strerror or str(error))
    raise trouble


def _how(error: OSError) -> Connected:
    match error:
        case ConnectionRefusedError():
            return Connected.REFUSED
        case FileNotFoundError() | NotADirectoryError():
            return Connected.MISSING
        case PermissionError():
            return Connected.DENIED
        case TimeoutError():
            return Connected.TIMED_OUT
        case _:
            return Connected.UNREACHABLE


def _upgrade(address: Address, subprotocol: str) -> bytes:
    host = f"[{address.host}]" if ":" in address.host else address.host
    lines = [
        f"GET {address.path} HTTP/1.1",
        f"Host: {host}:{address.port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: bm5na2l0IGRvY3RvcjotKQ==",
        f"Sec-WebSocket-Protocol: {subprotocol}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")


def _read(stream: socket.socket, timeout: float, until: bytes | None, enough: int = MOST) -> bytes:
    """Read for `timeout` seconds, up to `until` or `enough` bytes; b"" if none. Raises _Ended at end of file."""
    deadline, read = time.monotonic() + timeout, b""
    while len(read) < enough and (until is None or until not in read):
        stream.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            more = stream.recv(MOST)
        except TimeoutError:
            break
        if not more:
            if not read:
                raise _Ended
            break
        read += more
    return read


def _trouble(error: ssl.SSLError, spoke: bool) -> TlsTrouble:
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsTrouble(error.reason or "", error.verify_message or str(error), error.verify_code)
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return TlsTrouble("CLOSED", str(error), spoke=spoke)
    return TlsTrouble(error.reason or "", str(error), spoke=spoke)
