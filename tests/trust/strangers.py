"""Peers that are to be refused: TLS by hand, with any certificate, towards a listener or in place of one."""

from __future__ import annotations

import re
import ssl
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from nngkit.trust import passes
from nngkit.trust.realm import Realm, new_key, pem

HELLO: Final = b"\0SP\0\0\x51\0\0"  # of a PULL; what a peer is comes before what it says
ALERT: Final = b"\x15\x03\x03\0\2\2\x46"  # of TLS, fatal: protocol_version
DAY: Final = timedelta(days=1)


@dataclass
class Heard:
    """Bytes above TLS that a stranger has received, of all its connections, and why they ended."""

    connections: int = 0
    data: list[bytes] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)


def context(
    realm: Realm, *, server: bool, chain: str = "", key: str = "", low: bool = False, version: str = "TLSv1_3"
) -> ssl.SSLContext:
    """Return settings by which a stranger trusts the realm; `low`: with ciphers of long ago."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.load_verify_locations(cadata=realm.authorities)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made.minimum_version = made.maximum_version = ssl.TLSVersion[version]
    if low:
        made.set_ciphers("ALL:@SECLEVEL=0")
    if chain:
        with passes.as_file(chain + key) as path:
            made.load_cert_chain(path)
    return made


def issued(realm: Realm, name: str, **issue: Any) -> tuple[str, str]:
    """Return certificate and key of a pass, valid or not."""
    blocks = re.findall(r"-----BEGIN .*?-----END [A-Z ]+-----\n", realm.issue(name, **issue), re.DOTALL)
    return blocks[-2], blocks[-1]


def past(realm: Realm, name: str) -> tuple[str, str]:
    """Return certificate and key of a pass that has expired."""
    return issued(realm, name, start=datetime.now(UTC) - 10 * DAY, days=1)


def future(realm: Realm, name: str) -> tuple[str, str]:
    """Return certificate and key of a pass that is not valid yet."""
    return issued(realm, name, start=datetime.now(UTC) + 10 * DAY, days=1)


def certified(realm: Realm | None, *names: x509.GeneralName) -> tuple[str, str]:
    """Return a certificate of these names and its key, signed by the realm, or by itself."""
    key = new_key()
    title = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    signer: Any = key if realm is None else load_pem_private_key(realm.key.encode(), None)
    issuer = title if realm is None else x509.load_pem_x509_certificate(realm.certificate.encode()).subject
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(issuer, title, key.public_key(), x509.random_serial_number(), now - DAY, now + DAY)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM).decode(), pem(key)


async def knock(address: str, tls: ssl.SSLContext | None, heard: Heard, *, hello: bytes = HELLO) -> None:
    """Dial a listener, say hello, and read until the end."""
    host, port = address.rpartition("//")[2].rsplit(":", 1)
    await _talk(await trio.open_tcp_stream(host, int(port)), tls, heard, server=False, hello=hello)


@asynccontextmanager
async def waiting(tls: ssl.SSLContext | None, heard: Heard, *, hello: bytes = HELLO) -> AsyncIterator[str]:
    """Listen, and do as `knock` with each peer that connects; gives host and port."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def serve(stream: trio.SocketStream) -> None:
        await _talk(stream, tls, heard, server=True, hello=hello)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield f"127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def _talk(
    stream: trio.SocketStream, tls: ssl.SSLContext | None, heard: Heard, *, server: bool, hello: bytes
) -> None:
    talk = _Plain(stream) if tls is None else _Tls(stream, tls, server=server)
    heard.connections += 1
    data = b""
    end = "closed"
    try:
        await talk.send(hello)
        while more := await talk.receive():
            data += more
    except trio.BrokenResourceError:
        end = "reset"
    except ssl.SSLError as wrong:
        end = wrong.reason or str(wrong)
    finally:
        heard.data.append(data)
        heard.ends.append(end)
        await trio.aclose_forcefully(stream)


class _Plain:
    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def receive(self) -> bytes:
        return bytes(await self._stream.receive_some(4096))


class _Tls:
    """TLS that sends its alerts before it raises, which trio's does not."""

    def __init__(self, stream: trio.SocketStream, tls: ssl.SSLContext, *, server: bool) -> None:
        self._stream = stream
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._in, self._out, server_side=server)

    async def _do(self, step: Callable[[], Any]) -> Any:
        while True:
            waits = False
            try:
                return step()
            except ssl.SSLWantReadError:
                waits = True
            except ssl.SSLZeroReturnError:
                return b""
            finally:
                if staged := self._out.read():
                    with suppress(trio.BrokenResourceError):  # the peer's alert, which is read next, says why
                        await self._stream.send_all(staged)
            if waits:
                more = await self._stream.receive_some(4096)
                if not more:
                    return b""
                self._in.write(more)

    async def send(self, data: bytes) -> None:
        await self._do(self._tls.do_handshake)
        await self._do(lambda: self._tls.write(data))

    async def receive(self) -> bytes:
        return bytes(await self._do(lambda: self._tls.read(4096)))
