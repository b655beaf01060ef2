"""Why two ends do not talk: from what a probe saw to what it means. Pure: `probing.py` looks, `doctor.py` prints.

::

    seen = Seen(Address.of("tcp://127.0.0.1:5555"), connected=Connected.YES, greeting=b"\\0SP\\0\\0\\x21\\0\\0")
    diagnose(seen, "push").findings     # (ok connected, problem mismatch)

What two ends of the scalability protocols say first (tcp, ipc, tls+tcp): eight bytes, ``\\0SP\\0``, the protocol's
number in two, and two that are 0. Over WebSocket the subprotocol names the listener: ``pull.sp.nanomsg.org``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal
from urllib.parse import urlsplit

from nngkit.errors import ConfigError

__all__ = [
    "NUMBERS",
    "PEERS",
    "Address",
    "Connected",
    "Diagnosis",
    "Finding",
    "Seen",
    "TlsTrouble",
    "Upgrade",
    "diagnose",
]

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
PEERS: Final = {
    "pair0": "pair0",
    "pair1": "pair1",
    "pub": "sub",
    "sub": "pub",
    "req": "rep",
    "rep": "req",
    "push": "pull",
    "pull": "push",
    "surveyor": "respondent",
    "respondent": "surveyor",
    "bus": "bus",
}
SUBPROTOCOL: Final = {name: f"{'pair' if name == 'pair0' else name}.sp.nanomsg.org" for name in NUMBERS}
HELLO: Final = struct.Struct(">4sHH")
ZEROMQ: Final = b"\xff\0\0\0\0\0\0\0"  # how a ZMTP 2 or 3 greeting begins
MOST_PATH: Final = 107  # bytes of a path that a Unix socket can have
SCHEMES: Final = {  # its transport, whether by TLS, and the IP version if it says one
    **{f"tcp{version}": ("tcp", False, version) for version in ("", "4", "6")},
    **{f"tls+tcp{version}": ("tcp", True, version) for version in ("", "4", "6")},
    **{f"ws{version}": ("ws", False, version) for version in ("", "4", "6")},
    **{f"wss{version}": ("ws", True, version) for version in ("", "4", "6")},
    "ipc": ("ipc", False, ""),
    "unix": ("ipc", False, ""),
    "abstract": ("abstract", False, ""),
}
UNKNOWN_AUTHORITY: Final = {2, 18, 19, 20, 21}  # OpenSSL's X509_V_ERR_...: no issuer, or one that nobody trusts
NOT_YET, EXPIRED, WRONG_NAME, WRONG_IP = 9, 10, 62, 64


@dataclass(frozen=True, slots=True)
class Address:
    """A URL taken apart: `transport` is tcp, ws, ipc or abstract; `path` is what ws asks for, or a socket's name."""

    url: str
    transport: str
    tls: bool
    version: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises ConfigError for what cannot be looked at."""
        scheme, _, rest = url.partition("://")
        if scheme == "inproc":
            raise ConfigError("URL", f"{url}: inproc is inside one process, and this is another", url)
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
    """What became of the connection."""

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
    """A handshake that failed: OpenSSL's word for it, all it said, `verify` its number if it was the certificate.

    `spoke`: whether the other side said anything in TLS before.
    """

    reason: str
    text: str
    verify: int | None = None
    spoke: bool = True


@dataclass(frozen=True, slots=True)
class Upgrade:
    """One WebSocket handshake: the protocol offered as the listener's, and the status; None if it was not HTTP."""

    offered: str
    status: int | None


@dataclass(frozen=True, slots=True)
class Seen:
    """Evidence. `greeting`: what came unasked; `answer`: what came to an HTTP request, if nothing had.

    `tls` is what went wrong, `verified` whether the certificate was checked at all, `shown` whether we had one to show;
    `closed`: the other side closed without a word. `speaks_tls`: it answered a TLS handshake, where none was asked for.
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
    """One thing found: `code` for programs, `what` for people, `advice` if there is any."""

    level: Literal["ok", "warning", "problem"]
    code: str
    what: str
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What it comes to: `peer` is the protocol that listens there, `exit_code` what the shell is told."""

    findings: tuple[Finding, ...]
    peer: str | None
    exit_code: int

    @property
    def ok(self) -> bool:
        """Whether nothing stands in the way."""
        return self.exit_code == 0


def diagnose(seen: Seen, mine: str | None) -> Diagnosis:
    """What `seen` means for a side that would be `mine` (None: whatever fits)."""
    if seen.connected is not Connected.YES:
        return Diagnosis((_no_connection(seen),), None, 3)
    findings = [Finding("ok", "connected", "somebody listens there")]
    if seen.address.tls:
        findings.append(_tls(seen))
    peer = None
    if seen.upgrades or seen.greeting or seen.answer or seen.closed or not _problems(findings):
        found, peer = _websocket(seen, mine) if seen.address.transport == "ws" else _hello(seen, mine)
        findings.append(found)
    worst = [finding.code for finding in _problems(findings)]
    return Diagnosis(tuple(findings), peer, 0 if not worst else 4 if worst == ["silent"] else 1)


def _problems(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level == "problem"]


def _no_connection(seen: Seen) -> Finding:
    address = seen.address
    where = f"{address.host}:{address.port}" if address.port else address.path
    match seen.connected:
        case Connected.NOT_FOUND:
            return _problem(
                "host-not-found", f"there is no host {address.host!r} ({seen.detail})", "look at its spelling"
            )
        case Connected.REFUSED if address.transport == "ipc":
            return _problem(
                "stale-socket", f"{where} is there, and nobody listens at it", "its listener has gone: start it again"
            )
        case Connected.REFUSED:
            advice = "start the listener first, or look at the port"
            if address.port:
                advice += "; one at 127.0.0.1 is reached from its own machine only, 0.0.0.0 from everywhere"
            return _problem("refused", f"nobody listens at {where}", advice)
        case Connected.MISSING:
            return _problem(
                "no-socket", f"{where}: no such file", "start the listener first; a path is absolute: ipc:///"
            )
        case Connected.DENIED:
            return _problem(
                "denied", f"{where}: permission denied", "who dials has to be allowed to write to the socket"
            )
        case Connected.TOO_LONG:
            return _problem("path-too-long", f"a socket's path has at most {MOST_PATH} bytes", "choose a shorter one")
        case Connected.TIMED_OUT:
            return _problem(
                "no-answer", f"{where} does not answer at all", "a firewall drops what comes, or it is down"
            )
        case _:
            return _problem(
                "unreachable", f"{where} cannot be reached: {seen.detail}", "there is no way to that network"
            )


def _tls(seen: Seen) -> Finding:
    trouble = seen.tls
    if trouble is None:
        if not seen.verified:
            advice = "give --cacert to have it checked"
            return Finding("warning", "tls-unchecked", "TLS works; the certificate was not checked", advice)
        return Finding("ok", "tls", "TLS works, and the certificate is good")
    match trouble.verify:
        case None:
            return _handshake(seen, trouble)
        case code if code in UNKNOWN_AUTHORITY:
            return _problem(
                "tls-unknown-authority",
                f"the listener's certificate is not of the authority given ({trouble.text})",
                "give the one that issued it as --cacert",
            )
        case code if code in (NOT_YET, EXPIRED):
            expired = code == EXPIRED
            what = "has expired" if expired else "is not valid yet"
            return _problem(
                "tls-expired" if expired else "tls-not-yet", f"the listener's certificate {what}", "renew it"
            )
        case code if code in (WRONG_NAME, WRONG_IP):
            return _problem(
                "tls-name",
                f"the listener's certificate is for another name ({trouble.text})",
                "dial by the name in it, or set that (--server-name)",
            )
        case _:
            return _problem("tls-certificate", f"the listener's certificate is refused: {trouble.text}", None)


def _handshake(seen: Seen, trouble: TlsTrouble) -> Finding:
    reason = trouble.reason
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        plain = seen.address.url.replace("tls+tcp", "tcp").replace("wss", "ws")
        return _problem("no-tls", "what listens there does not speak TLS", f"dial {plain}")
    if "UNKNOWN_CA" in reason or "BAD_CERTIFICATE" in reason or "CERTIFICATE_EXPIRED" in reason:
        return _problem(
            "tls-client-certificate-refused",
            f"the listener refuses our certificate ({reason})",
            "show one of its authority",
        )
    if reason == "CLOSED" and not trouble.spoke:
        advice = "it may be no TLS listener, or want a certificate of us (--cert and --key)"
        return _problem("tls-closed", "the connection is closed in the TLS handshake", advice)
    if not seen.shown and ("ALERT" in reason or reason == "CLOSED"):
        return _problem(
            "tls-client-certificate",
            f"the listener ends the handshake ({reason}): most likely it wants a certificate of us",
            "give --cert and --key",
        )
    if reason == "SILENT":
        return _problem("tls-silent", "the TLS handshake is not answered", "it may be no TLS listener: try without")
    return _problem("tls-handshake", f"the TLS handshake failed: {trouble.text}", None)


def _hello(seen: Seen, mine: str | None) -> tuple[Finding, str | None]:
    greeting = seen.greeting
    if len(greeting) >= HELLO.size and greeting.startswith(b"\0SP\0"):
        _, number, reserved = HELLO.unpack_from(greeting)
        if reserved == 0:
            peer = NAMES.get(number)
            if peer is None:
                return _problem("unknown-protocol", f"a scalability protocol that nobody knows: {number}", None), None
            return _meeting(peer, mine), peer
    said = greeting or seen.answer
    if said.startswith(b"HTTP/"):
        advice = "for a WebSocket listener dial ws:// (or wss://) and its path"
        return _problem("http", "that is an HTTP server", advice), None
    if said.startswith(ZEROMQ):
        advice = "ZeroMQ's protocols and these do not talk to each other"
        return _problem("zeromq", "that is a ZeroMQ socket", advice), None
    if seen.speaks_tls or (said[:2] in (b"\x15\x03", b"\x16\x03") and not seen.address.tls):
        return _problem("tls-wanted", "that is a TLS server", "dial tls+tcp:// (or wss://)"), None
    if said:
        shown = ascii(said[:32].decode("latin-1"))
        return _problem("not-sp", f"no scalability protocol: it says {shown}", None), None
    if seen.closed:
        what = "it accepts the connection and closes it at once"
        return _problem("closed", what, "something that is no SP peer, or a proxy with nobody behind it"), None
    what = "it accepts the connection and says nothing, where an SP peer says hello at once"
    return _problem("silent", what, "another program, or one that is stopped or out of descriptors"), None


def _websocket(seen: Seen, mine: str | None) -> tuple[Finding, str | None]:
    opened = [upgrade.offered for upgrade in seen.upgrades if upgrade.status == 101]
    if opened:
        # what fits is asked for first: a listener that takes anything (nanomsg's does not, others may) is as we want it
        return _meeting(opened[0], mine), opened[0]
    statuses = {upgrade.status for upgrade in seen.upgrades}
    path = seen.address.path
    if 404 in statuses:
        return _problem(
            "ws-path",
            f"an HTTP server without a WebSocket at {path} (404)",
            "a listener answers to its own path and its own host only, both written as it listens",
        ), None
    if statuses & {400, 426, 501}:
        return _problem("ws-protocol", "a WebSocket server that knows none of the protocols (400)", None), None
    numbers = sorted(status for status in statuses if status is not None)
    if numbers:
        return _problem("http", f"an HTTP server that makes no WebSocket of {path} ({numbers[0]})", None), None
    if seen.greeting.startswith(b"\0SP\0"):
        plain = "tls+tcp" if seen.address.tls else "tcp"
        where = f"{plain}://{seen.address.host}:{seen.address.port}"
        return _problem("no-ws", "an SP peer without WebSocket", f"dial {where}"), None
    return _hello(seen, mine)


def _meeting(peer: str, mine: str | None) -> Finding:
    fits = PEERS[peer]
    if mine is None or mine == fits:
        return Finding("ok", "peer", f"a {peer.upper()} listens there, and a {fits.upper()} talks to it")
    if {mine, peer} == {"pair0", "pair1"}:
        return _problem(
            "pair-version",
            f"a {peer.upper()} listens there, and a {mine.upper()} does not talk to it",
            f"be a {fits}: nanomsg and nanocat speak pair0 only, NNG both",
        )
    return _problem(
        "mismatch",
        f"a {peer.upper()} listens there, and a {mine.upper()} talks to a {PEERS[mine].upper()} only",
        f"be a {fits}, or look at the address",
    )


def _problem(code: str, what: str, advice: str | None) -> Finding:
    return Finding("problem", code, what, advice)
