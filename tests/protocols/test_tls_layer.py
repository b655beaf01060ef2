"""TLS as a layer between bytes and a machine: what it brings through, whatever the chunks, and what damage becomes."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pynng
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from nngkit.errors import AccessDenied, BadMessage, Broken
from nngkit.protocols import TLS, Pull, Push, Rep, Req
from nngkit.protocols._nng.addresses import parse
from nngkit.protocols._nng.tls import Contexts, contexts
from nngkit.protocols._wire.tls_layer import Layer, seconds, trouble
from nngkit.testing import Background, eventually
from tests.protocols.sp_machines import cut
from tests.protocols.wires import WAIT

AUTHORITY = trustme.CA()
ADDRESS = parse("dial", "tls+tcp://localhost:1")
HOUR = timedelta(hours=1)


def issue(authority: trustme.CA = AUTHORITY, name: str = "localhost") -> TLS:
    one = authority.issue_cert(name, common_name=name)
    chain, key = b"".join(pem.bytes() for pem in one.cert_chain_pems), one.private_key_pem.bytes()
    return TLS(ca=authority.cert_pem.bytes(), cert=chain, key=key)


def layers(tls: TLS, what: str) -> Contexts:
    """Return what makes the layers of one side."""
    made = contexts(tls, ADDRESS, what)
    assert made is not None
    return made


OWN = issue()
SIDES = layers(OWN, "dial"), layers(OWN, "listen")


def taken(layer: Layer) -> bytes:
    """Return all plaintext that the layer has. Raises NngkitError."""
    parts = []
    try:
        while layer.unread:
            parts.append(layer.read(1 << 14))
    except ssl.SSLWantReadError:
        pass
    except ssl.SSLError as error:
        raise trouble(error, shaking=False) from None
    return b"".join(parts)


def shaken(sizes: list[int]) -> tuple[Layer, Layer]:
    client, server = (side.layer() for side in SIDES)
    client.shake()
    for _ in range(4):
        for one, other in ((client, server), (server, client)):
            for piece in cut(one.outgoing.read(), sizes):
                other.feed(piece)
                if not other.open:
                    other.shake()
    assert client.open
    assert server.open
    return client, server


@given(
    sizes=st.lists(st.integers(1, 4000), min_size=1, max_size=5), messages=st.lists(st.binary(min_size=1), max_size=8)
)
def test_whatever_the_chunks_all_bytes_arrive_in_order(sizes: list[int], messages: list[bytes]) -> None:
    client, server = shaken(sizes)
    for one, other in ((client, server), (server, client)):
        for message in messages:
            assert one.write(message) == len(message)
        arrived = []
        for piece in cut(one.outgoing.read(), sizes):
            other.feed(piece)
            arrived.append(taken(other))
        assert b"".join(arrived) == b"".join(messages)
        assert not one.unsent
        assert not other.unread


def converse(client: Layer, server: Layer, spoil: Callable[[int, bytearray], None]) -> None:
    """Let both sides say something in turn, through ``spoil``. Raises NngkitError."""
    sent = {client: b"", server: b""}
    client.shake()
    for turn in range(10):
        one, other = (client, server) if turn % 2 == 0 else (server, client)
        if one.open and other.open:
            one.write(b"message %d" % turn)
            sent[one] += b"message %d" % turn
        wire = bytearray(one.outgoing.read())
        spoil(turn, wire)
        other.feed(bytes(wire))
        if not other.open:
            other.shake()
        if other.open:
            assert sent[one].endswith(taken(other)), "something that was not sent"


@settings(max_examples=300)
@given(
    when=st.integers(0, 9),
    where=st.floats(0, 1, exclude_max=True),
    how=st.sampled_from(["flip", "remove", "repeat", "insert"]),
    extra=st.binary(min_size=1, max_size=40),
)
def test_damaged_bytes_raise_our_errors_only(when: int, where: float, how: str, extra: bytes) -> None:
    """Flip, remove, repeat or insert bytes anywhere in a conversation."""

    def spoil(turn: int, wire: bytearray) -> None:
        if turn != when or not wire:
            return
        at = int(where * len(wire))
        match how:
            case "flip":
                wire[at] ^= extra[0] or 1
            case "remove":
                del wire[at : at + len(extra)]
            case "repeat":
                wire[at:at] = wire[at : at + len(extra)]
            case _:
                wire[at:at] = extra

    with suppress(BadMessage, Broken, AccessDenied):
        converse(SIDES[0].layer(), SIDES[1].layer(), spoil)


@given(st.binary(max_size=200))
def test_bytes_that_are_not_tls_are_refused(data: bytes) -> None:
    server = SIDES[1].layer()
    server.feed(data)
    with suppress(Broken):
        server.shake()
    assert not server.open


def test_the_end_is_announced_after_the_last_bytes() -> None:
    client, server = shaken([1000])
    client.end(b"bye")
    server.feed(client.staged)
    assert server.read(100) == b"bye"
    assert server.read(100) == b"", "a notice that the peer closes"


# ---- settings --------------------------------------------------------------------------------------------------------


def test_the_names_of_a_certificate_have_types() -> None:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")])
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.DNSName("alice.example")]
    names += [x509.UniformResourceIdentifier("spiffe://farm/alice"), x509.IPAddress(ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 7, now - HOUR, now + HOUR)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
        .public_bytes(Encoding.PEM)
    )
    certificate = TLS(ca=made, cert=made, key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with Rep(listen="tls+tcp://127.0.0.1:0", tls=certificate) as rep, Req(dial=rep.address, tls=certificate) as req:
        for socket in (rep, req):
            socket.wait_for_peers(1, WAIT)
        for (pipe,) in (rep.pipes, req.pipes):
            assert (pipe.peer_name, pipe.verified) == ("alice", True)
            assert pipe.alt_names == ("localhost", "alice.example")
            assert pipe.alt_uris == ("spiffe://farm/alice",)
            assert pipe.alt_ips == ("127.0.0.1",)


def files(folder: Path, given: TLS) -> TLS:
    for name in ("ca", "cert", "key"):
        (folder / name).write_bytes(getattr(given, name))
    return TLS(ca=folder / "ca", cert=folder / "cert", key=folder / "key")


def test_changed_files_are_used_for_new_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new authority, and then a file that is no certificate: the last good ones stay."""
    other = trustme.CA()
    with Pull(listen="tls+tcp://localhost:0", tls=files(tmp_path, OWN)) as pull:
        with Push(dial=pull.address, tls=OWN) as push:
            push.wait_for_peers(1, WAIT)
        files(tmp_path, issue(other))
        with Push(dial=pull.address, tls=issue(other)) as push:
            push.wait_for_peers(1, WAIT)
        with Push(dial=pull.address, tls=OWN, reconnect=0.02) as push:
            eventually(lambda: push.stats.cut >= 2)
            assert push.stats.joined == 0
        for content in (b"nonsense", b""):
            (tmp_path / "cert").write_bytes(content)
            with Push(dial=pull.address, tls=issue(other)) as push:
                push.wait_for_peers(1, WAIT)
    assert [record.levelname for record in caplog.records if "last good" in record.message] == ["WARNING"] * 2


def shake(client: Layer, server: Layer) -> None:
    """Raises NngkitError."""
    client.shake()
    for _ in range(3):
        for one, other in ((client, server), (server, client)):
            other.feed(one.outgoing.read())
            other.shake()


def test_tls_12_is_spoken_only_if_it_is_admitted() -> None:
    admitting = TLS(ca=OWN.ca, cert=OWN.cert, key=OWN.key, tls12=True)
    old = admitting.context(server=False)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    shake(Layer(old, server=False, name="localhost"), layers(admitting, "listen").layer())
    with pytest.raises(Broken, match="tls12=True"):
        shake(Layer(old, server=False, name="localhost"), SIDES[1].layer())


@pytest.mark.parametrize("size", [10, 100_000, 3_000_000])
def test_nngs_own_tls_is_a_peer(size: int, tmp_path: Path) -> None:
    """Both ways, with NNG's mbedTLS at the other end."""
    own = files(tmp_path, OWN)
    pems = {name: (tmp_path / name).read_text("ascii") for name in ("ca", "cert", "key")}
    config = {"ca_string": pems["ca"], "own_cert_string": pems["cert"], "own_key_string": pems["key"]}
    server = pynng.TLSConfig(pynng.TLSConfig.MODE_SERVER, **config)
    client = pynng.TLSConfig(pynng.TLSConfig.MODE_CLIENT, server_name="localhost", **config)
    message = os.urandom(size)
    with (
        Rep(listen="tls+tcp://localhost:0", tls=own, recv_max_size=size) as rep,
        pynng.Req0(tls_config=client, dial=rep.address, send_timeout=9000, recv_timeout=9000) as theirs,
    ):
        theirs.send(message)
        question = rep.recv(timeout=WAIT)
        assert question.body == message
        question.reply(message)
        assert theirs.recv() == message
    with pynng.Rep0(tls_config=server, listen="tls+tcp://localhost:0", recv_timeout=9000, recv_max_size=0) as other:
        port = other.listeners[0].local_address.port
        port = (port & 0xFF) << 8 | port >> 8  # pynng swaps the bytes
        with Req(dial=f"tls+tcp://localhost:{port}", tls=own, recv_max_size=size) as req:
            asking = Background(req.request, message, timeout=WAIT)
            assert other.recv() == message
            other.send(message)
            assert asking.result() == message


def test_a_stranger_is_refused_in_words() -> None:
    stranger = layers(issue(trustme.CA()), "dial").layer()
    with pytest.raises(AccessDenied, match="certificate refused: self-signed certificate in certificate chain"):
        shake(stranger, SIDES[1].layer())


@given(st.integers(-631152000, 253402300799))  # from 1950 to 9999: the times of X.509
def test_times_of_certificates_are_read_as_ssl_reads_them(at: int) -> None:
    when = datetime.fromtimestamp(0, UTC) + timedelta(seconds=at)
    said = f"{when:%b} {when.day:2} {when:%H:%M:%S} {when.year} GMT"
    assert seconds(said) == ssl.cert_time_to_seconds(said) == at
