"""Diagnosis of a listener from the evidence of a probe. Pure: probe.py collects the evidence, doctor.py prints.

::

    seen = Seen(Address.of("tcp://127.0.0.1:5555"), connected=Connected.YES, greeting=b"\\0SP\\0\\0\\x21\\0\\0")
    diagnose(seen, "push").findings     # (ok connected, problem mismatch)

The greeting of the scalability protocols (tcp, ipc, tls+tcp) is eight bytes: ``\\0SP\\0``, the protocol's number in two
bytes, and two zero bytes. Over WebSocket the subprotocol names the listener: ``pull.sp.nanomsg.org``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal
from urllib.parse import urlsplit

from nngkit.errors import ConfigError

NUMBERS: Final = {
    "pair0": 16,
    "pair1": 17,
    "pub": 32,
    "sub": 33,
    "req": 48,
    "rep": 49,
    "push": 80,
    "pull": 81,
    "surveyor": 98,
    "respondent": 99,
    "bus": 112,
}
NAMES: Final = {number: name for name, number in NUMBERS.items()}
_ENDS: Final = (("pub", "sub"), ("req", "rep"), ("push", "pull"), ("surveyor", "respondent"))
PEERS: Final = {
    **{name: name for name in ("pair0", "pair1", "bus")},
    **dict(_ENDS),
    **{second: first for first, second in _ENDS},
}
SUBPROTOCOL: Final = {name: f"{'pair' if name == 'pair0' else name}.sp.nanomsg.org" for name in NUMBERS}
HELLO: Final = struct.Struct(">4sHH")
ZEROMQ: Final = b"\xff\0\0\0\0\0\0\0"  # start of a ZMTP 2 or 3 greeting
MOST_PATH: Final = 107  # bytes of a Unix socket's path
SCHEMES: Final = {  # transport, TLS, and IP version if given
    **{f"tcp{version}": ("tcp", False, version) for version in ("", "4", "6")},
    **{f"tls+tcp{version}": ("tcp", True, version) for version in ("", "4", "6")},
    **{f"ws{version}": ("ws", False, version) for version in ("", "4", "6")},
    **{f"wss{version}": ("ws", True, version) for version in ("", "4", "6")},
    "ipc": ("ipc", False, ""),
    "unix": ("ipc", False, ""),
    "abstract": ("abstract", False, ""),
}
UNKNOWN_AUTHORITY: Final = {2, 18, 19, 20, 21}  # OpenSSL's X509_V_ERR_...: issuer missing or not trusted
NOT_YET, EXPIRED, WRONG_NAME, WRONG_IP = 9, 10, 62, 64


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed URL: `transport` is tcp, ws, ipc or abstract; `path` that of ws, or the socket's name."""

    url: str
    transport: str
    tls: bool
    version: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Parse a URL. Raises ConfigError if it cannot be probed."""
        scheme, _, rest = url.partition("://")
        if scheme == "inproc":
            raise ConfigError("URL", f"{url}: inproc does not reach another process", url)
        if scheme not in SCHEMES:
            raise ConfigError("URL", f"{url}: no transport {scheme!r}; there are {', '.join(SCHEMES)}", url)
        transport, tls, version = SCHEMES[scheme]
        if transport in ("ipc", "abstract"):
            return cls(url, transport, tls, version, "", 0, rest)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigError("URL", f"{url}: {error}", url) from error
        if port is None and transport == "ws":
            port = 443 if tls else 80
        if not port:
            raise ConfigError("URL", f"{url}: needs a port from 1 to 65535", url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        return cls(url, transport, tls, version, parts.hostname or "127.0.0.1", port, path or "/")


class Connected(Enum):
    """Result of the connection attempt."""

    YES = "yes"
    NOT_FOUND = "host not found"
    REFUSED = "refused"
    MISSING = "no such file"
    DENIED = "permission denied"
    TOO_LONG = "path too long"
    TIMED_OUT = "timed out"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class TlsTrouble:
    """A failed handshake: OpenSSL's reason, its text, and `verify`, its code of a certificate error.

    `spoke` is True if the listener sent TLS before.
    """

    reason: str
    text: str
    verify: int | None = None
    spoke: bool = True


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A WebSocket handshake: the protocol offered for the listener, and the HTTP status, None if not HTTP."""

    offered: str
    status: int | None


@dataclass(frozen=True, slots=True)
class Seen:
    """Evidence of a probe. `greeting`: bytes sent first by the listener; else `answer`: its reply to an HTTP request.

    `tls` is a failed handshake; `verified`: the certificate was checked; `shown`: the probe had one; `closed`: the
    listener closed without sending anything; `speaks_tls`: it answers TLS handshakes at an address without TLS.
    """

    address: Address
    connected: Connected = Connected.YES
    detail: str = ""
    tls: TlsTrouble | None = None
    verified: bool = True
    shown: bool = False
    speaks_tls: bool = False
    greeting: bytes = b""
    answer: bytes = b""
    closed: bool = False
    upgrades: tuple[Upgrade, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding: `code` for programs, `what` for people, and advice if there is any."""

    level: Literal["ok", "warning", "problem"]
    code: str
    what: str
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings, the listener's protocol, and the exit code of `nngkit doctor`."""

    findings: tuple[Finding, ...]
    peer: str | None
    exit_code: int

    @classmethod
    def of(cls, findings: Iterable[Finding], peer: str | None) -> Diagnosis:
        """Return the diagnosis of a listener that accepts connections."""
        listed = tuple(findings)
        worst = [finding.code for finding in problems(listed)]
        return cls(listed, peer, 0 if not worst else 4 if worst == ["silent"] else 1)

    @property
    def ok(self) -> bool:
        """Return True if no problem was found."""
        return self.exit_code == 0


def diagnose(seen: Seen, mine: str | None) -> Diagnosis:
    """Diagnose the evidence for a peer of protocol `mine` (None: any compatible one)."""
    if seen.connected is not Connected.YES:
        return Diagnosis((_no_connection(seen),), None, 3)
    findings = [Finding("ok", "connected", "accepts connections")]
    if seen.address.tls:
        findings.append(_tls(seen))
    peer = None
    if seen.upgrades or seen.greeting or seen.answer or seen.closed or not problems(findings):
        found, peer = _websocket(seen, mine) if seen.address.transport == "ws" else _hello(seen, mine)
        findings.append(found)
    return Diagnosis.of(findings, peer)


def problems(findings: Iterable[Finding]) -> list[Finding]:
    """Return those that are problems."""
    return [finding for finding in findings if finding.level == "problem"]


def _no_connection(seen: Seen) -> Finding:
    address = seen.address
    where = f"{address.host}:{address.port}" if address.port else address.path
    match seen.connected:
        case Connected.NOT_FOUND:
            return problem("host-not-found", f"there is no host {address.host!r} ({seen.detail})", "check its spelling")
        case Connected.REFUSED if address.transport == "ipc":
            return problem(
                "stale-socket", f"{where} exists without a listener", "the listener has ended: start it again"
            )
        case Connected.REFUSED:
            advice = "start the listener first, or check the port"
            if address.port:
                advice += "; a listener at 127.0.0.1 accepts only its own machine, one at 0.0.0.0 all"
            return problem("refused", f"no listener at {where}", advice)
        case Connected.MISSING:
            return problem(
                "no-socket", f"{where}: no such file", "start the listener first; use an absolute path: ipc:///"
            )
        case Connected.DENIED:
            return problem("denied", f"{where}: permission denied", "dialing needs write permission on the socket")
        case Connected.TOO_LONG:
            return problem(
                "path-too-long", f"the path of a socket has at most {MOST_PATH} bytes", "choose a shorter one"
            )
        case Connected.TIMED_OUT:
            return problem(
                "no-answer", f"{where} does not respond", "the host is down, or a firewall drops the packets"
            )
        case _:
            return problem("unreachable", f"{where} cannot be reached: {seen.detail}", "there is no route to it")


def _tls(seen: Seen) -> Finding:
    trouble = seen.tls
    if trouble is None:
        if not seen.verified:
            advice = "give --cacert to check it"
            return Finding("warning", "tls-unchecked", "TLS works; the certificate was not checked", advice)
        return Finding("ok", "tls", "TLS works, and the certificate is valid")
    match trouble.verify:
        case None:
            return _handshake(seen, trouble)
        case code if code in UNKNOWN_AUTHORITY:
            return problem(
                "tls-unknown-authority",
                f"the listener's certificate is not issued by the given authority ({trouble.text})",
                "give the issuer's certificate as --cacert",
            )
        case code if code in (NOT_YET, EXPIRED):
            expired = code == EXPIRED
            what = "has expired" if expired else "is not valid yet"
            return problem(
                "tls-expired" if expired else "tls-not-yet", f"the listener's certificate {what}", "renew it"
            )
        case code if code in (WRONG_NAME, WRONG_IP):
            return problem(
                "tls-name",
                f"the listener's certificate is for another name ({trouble.text})",
                "dial that name, or set --server-name",
            )
        case _:
            return problem("tls-certificate", f"the listener's certificate is rejected: {trouble.text}", None)


def _handshake(seen: Seen, trouble: TlsTrouble) -> Finding:
    reason = trouble.reason
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        plain = seen.address.url.replace("tls+tcp", "tcp").replace("wss", "ws")
        return problem("no-tls", "the listener does not speak TLS", f"dial {plain}")
    if "UNKNOWN_CA" in reason or "BAD_CERTIFICATE" in reason or "CERTIFICATE_EXPIRED" in reason:
        return problem(
            "tls-client-certificate-refused",
            f"the listener rejects the certificate shown ({reason})",
            "give one of its authority as --cert",
        )
    if reason == "CLOSED" and not trouble.spoke:
        advice = "it may not be a TLS listener, or may require a certificate (--cert and --key)"
        return problem("tls-closed", "the connection is closed in the TLS handshake", advice)
    if not seen.shown and ("ALERT" in reason or reason == "CLOSED"):
        return problem(
            "tls-client-certificate",
            f"the listener ends the handshake ({reason}): most likely it requires a certificate",
            "give --cert and --key",
        )
    if reason == "CLOSED":
        return problem(
            "tls-client-certificate-refused",
            "the listener ends the handshake: most likely it rejects the certificate shown",
            "give one of its authority as --cert",
        )
    if reason == "SILENT":
        return problem(
            "tls-silent", "no response to the TLS handshake", "it may not be a TLS listener: try without TLS"
        )
    return problem("tls-handshake", f"the TLS handshake failed: {trouble.text}", None)


def _hello(seen: Seen, mine: str | None) -> tuple[Finding, str | None]:
    greeting = seen.greeting
    if len(greeting) >= HELLO.size and greeting.startswith(b"\0SP\0"):
        _, number, reserved = HELLO.unpack_from(greeting)
        if reserved == 0:
            peer = NAMES.get(number)
            if peer is None:
                return problem("unknown-protocol", f"unknown scalability protocol: {number}", None), None
            return _meeting(peer, mine), peer
    said = greeting or seen.answer
    if said.startswith(b"HTTP/"):
        advice = "for a WebSocket listener dial ws:// (or wss://) with its path"
        return problem("http", "it is an HTTP server", advice), None
    if said.startswith(ZEROMQ):
        advice = "ZeroMQ's protocols are not compatible with these"
        return problem("zeromq", "it is a ZeroMQ socket", advice), None
    if seen.speaks_tls or (said[:2] in (b"\x15\x03", b"\x16\x03") and not seen.address.tls):
        return problem("tls-wanted", "it is a TLS server", "dial tls+tcp:// (or wss://)"), None
    if said:
        shown = ascii(said[:32].decode("latin-1"))
        return problem("not-sp", f"not a scalability protocol: it sends {shown}", None), None
    if seen.closed:
        what = "it accepts connections and closes them at once"
        return problem("closed", what, "another program than an SP peer, or a proxy without a backend"), None
    what = "it accepts connections and sends no greeting, as an SP peer would"
    return problem("silent", what, "another program, or an SP peer that is stopped or out of descriptors"), None


def _websocket(seen: Seen, mine: str | None) -> tuple[Finding, str | None]:
    opened = [upgrade.offered for upgrade in seen.upgrades if upgrade.status == 101]
    if opened:
        # compatible protocols were offered first: a listener that accepts any subprotocol counts as compatible
        return _meeting(opened[0], mine), opened[0]
    statuses = {upgrade.status for upgrade in seen.upgrades}
    path = seen.address.path
    if 404 in statuses:
        return problem(
            "ws-path",
            f"it is an HTTP server without a WebSocket at {path} (404)",
            "dial exactly the host and path of the listener's URL",
        ), None
    if statuses & {400, 426, 501}:
        return problem("ws-protocol", "it is a WebSocket server without scalability protocols (400)", None), None
    numbers = sorted(status for status in statuses if status is not None)
    if numbers:
        return problem("http", f"it is an HTTP server without a WebSocket at {path} ({numbers[0]})", None), None
    if seen.greeting.startswith(b"\0SP\0"):
        plain = "tls+tcp" if seen.address.tls else "tcp"
        where = f"{plain}://{seen.address.host}:{seen.address.port}"
        return problem("no-ws", "it is an SP peer without WebSocket", f"dial {where}"), None
    return _hello(seen, mine)


def _meeting(peer: str, mine: str | None) -> Finding:
    fits = PEERS[peer]
    if mine is None or mine == fits:
        return Finding("ok", "peer", f"a {peer.upper()} listens there, for a {fits.upper()}")
    if {mine, peer} == {"pair0", "pair1"}:
        return problem(
            "pair-version",
            f"a {peer.upper()} listens there, which is not compatible with a {mine.upper()}",
            f"use {fits}: nanomsg and nanocat have pair0 only, NNG has both",
        )
    return problem(
        "mismatch",
        f"a {peer.upper()} listens there, and a {mine.upper()} connects only to a {PEERS[mine].upper()}",
        f"use a {fits}, or check the address",
    )


def problem(code: str, what: str, advice: str | None) -> Finding:
    """Return a finding of that level."""
    return Finding("problem", code, what, advice)
