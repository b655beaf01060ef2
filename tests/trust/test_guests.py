"""Guests: who a page may be, by the pass of a link and a signature."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from nngkit.documents import DocumentPeer, EditStream
from nngkit.documents.sync.messages import Diff, Give, Hello, Introduction, Proof, Prove, SyncRequest, Want
from nngkit.documents.sync.wire import decode_reply, encode
from nngkit.errors import AccessDenied, ConfigError, TimedOut
from nngkit.protocols import TLS, Bus, Rep, Req
from nngkit.trust import Folder, Realm, Trust, passes
from nngkit.trust.guests import check_bearer, check_guest, guest_pass, is_for, signed
from nngkit.web.server import link
from tests.cli.commands import assert_fails, nngkit
from tests.cli.processes import Running
from tests.trust.one_realm import FARM, OneRealm

MESSAGE = signed(b"n" * 32, "127.0.0.1:4712", "/repair")


def opened(text: str) -> tuple[bytes, ec.EllipticCurvePrivateKey]:
    certificate, key = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in text.split("."))
    return certificate, ec.derive_private_key(int.from_bytes(key, "big"), ec.SECP256R1())


def sign(key: ec.EllipticCurvePrivateKey, message: bytes = MESSAGE) -> bytes:
    halves = decode_dss_signature(key.sign(message, ec.ECDSA(hashes.SHA256())))
    return b"".join(half.to_bytes(32, "big") for half in halves)


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> OneRealm:
    return OneRealm(tmp_path_factory.mktemp("farm"))


@pytest.fixture(scope="module")
def hub(farm: OneRealm) -> Trust:
    return farm.trust("hub")


def test_a_guest_is_the_name_of_the_pass_until_it_ends(hub: Trust) -> None:
    certificate, key = opened(guest_pass(FARM, "guest.ada", hours=2))
    guest = check_guest(hub, certificate, sign(key), MESSAGE)
    assert guest.name == "guest.ada"
    assert guest.serial == f"{x509.load_der_x509_certificate(certificate).serial_number:x}"
    assert abs(guest.until - time.time() - 2 * 3600) < 60


def test_the_command_prints_a_token_for_a_gateway(tmp_path: Path) -> None:
    folder = Folder.new(tmp_path, "farm")
    passes.write(tmp_path / "hub.pass", folder.realm.issue("hub"))
    said = nngkit("trust", "token", "guest.ada", "--gateway", "hub", "--hours", "2", "--realm", str(tmp_path))
    guest = check_bearer(Trust(tmp_path / "hub.pass"), said.stdout.strip())
    assert guest.name == "guest.ada"
    assert abs(guest.until - time.time() - 2 * 3600) < 60


def later(realm: Realm, hours: float) -> tuple[bytes, ec.EllipticCurvePrivateKey]:
    """Return a pass of an hour that begins after so many hours."""
    key = ec.generate_private_key(ec.SECP256R1())
    start = datetime.now(UTC) + timedelta(hours=hours)
    pem = realm.sign("guest.ada", key.public_key(), 1 / 24, start=start)
    return x509.load_pem_x509_certificate(pem.encode()).public_bytes(Encoding.DER), key


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("another realm with its name", "other-realm"),
        ("expired", "expired"),
        ("not yet", "not-yet"),
        ("another host", "binding"),
        ("another number", "binding"),
        ("another key", "binding"),
        ("no certificate", "binding"),
    ],
)
def test_others_are_refused_with_a_code(hub: Trust, what: str, code: str) -> None:
    certificate, key = opened(guest_pass(FARM, "guest.ada"))
    signature = sign(key)
    if what == "another realm with its name":
        certificate, key = opened(guest_pass(Realm.new("farm"), "guest.ada"))
        signature = sign(key)
    elif what in ("expired", "not yet"):
        certificate, key = later(FARM, -3 if what == "expired" else 3)
        signature = sign(key)
    elif what == "another host":
        signature = sign(key, signed(b"n" * 32, "evil.example:4712", "/repair"))
    elif what == "another number":
        signature = sign(key, signed(b"m" * 32, "127.0.0.1:4712", "/repair"))
    elif what == "another key":
        signature = sign(ec.generate_private_key(ec.SECP256R1()))
    else:
        certificate = b"\x30\x03abc"
    with pytest.raises(AccessDenied, match=f"^{code}: "):
        check_guest(hub, certificate, signature, MESSAGE)


def test_a_guest_that_is_revoked_is_refused(tmp_path: Path) -> None:
    farm = OneRealm(tmp_path)
    hub = farm.trust("hub")
    certificate, key = opened(guest_pass(FARM, "guest.ada"))
    farm.policy(revoked=("guest.ada",))
    with pytest.raises(AccessDenied, match=r"^revoked: guest\.ada"):
        check_guest(hub, certificate, sign(key), MESSAGE)


ADA, _ = opened(guest_pass(FARM, "guest.ada"))


@given(st.binary(max_size=600), st.binary(max_size=64))
def test_bytes_of_a_stranger_raise_nothing_else(hub: Trust, certificate: bytes, signature: bytes) -> None:
    with pytest.raises(AccessDenied):
        check_guest(hub, certificate, signature, MESSAGE)


@given(st.binary(max_size=64))
def test_a_damaged_signature_raises_nothing_else(hub: Trust, signature: bytes) -> None:
    with pytest.raises(AccessDenied, match=r"^binding: "):
        check_guest(hub, ADA, signature, MESSAGE)


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("notes.example:4713", True),
        ("Notes.Example", True),
        ("ada.wild.example", True),
        ("10.0.0.7:4713", True),
        ("[fd00::7]:4713", True),
        ("evil.example:4713", False),
        ("notes.example.evil", False),
        ("a.b.wild.example", False),
        ("wild.example", False),
        ("10.0.0.8:4713", False),
        ("[fd00::7", False),
        ("", False),
    ],
)
def test_a_certificate_is_for_its_hosts_only(host: str, own: bool) -> None:
    hosts = ("notes.example", "*.wild.example", "10.0.0.7", "fd00::7")
    chain = FARM.sign("hub", ec.generate_private_key(ec.SECP256R1()).public_key(), 1, hosts)
    assert is_for(chain, host) is own


def test_a_link_has_the_pass_in_its_fragment(hub: Trust) -> None:
    url = link("https://notes/", guest="guest.ada", hours=1, realm=FARM, doc="minutes")
    address, _, fragment = url.partition("#")
    fields = parse_qs(fragment)
    assert (address, fields["doc"]) == ("https://notes/", ["minutes"])
    certificate, key = opened(fields["pass"][0])
    assert check_guest(hub, certificate, sign(key), MESSAGE).name == "guest.ada"
    with pytest.raises(ConfigError, match="realm"):
        link("https://notes/", guest="guest.ada")
    for hours in (0, -1, 10_000):
        with pytest.raises(ConfigError, match="hours"):
            link("https://notes/", guest="guest.ada", hours=hours, realm=FARM)


# ---- where no pass is asked for

STRANGER = EditStream(b"stranger", 1)
NO_PASS = TLS(verify=False)


@asynccontextmanager
async def home(farm: OneRealm, *hosts: str) -> AsyncIterator[DocumentPeer]:
    trust = farm.trust("hub", hosts)
    async with DocumentPeer(listen="wss://127.0.0.1:0", guests="wss://127.0.0.1:0", trust=trust) as peer:
        peer.open("minutes").text("body").insert(0, "hello")
        yield peer


async def ask(req: Req, request: SyncRequest) -> Any:
    return decode_reply(await req.arequest(encode(request), 5.0))


async def proven(req: Req, name: str) -> Any:
    """Prove a guest's name as a page does, at the address that was dialed."""
    asked = await ask(req, Hello(STRANGER, None, Introduction()))
    certificate, key = opened(guest_pass(FARM, name))
    address = urlsplit(req.dialed[0])
    signature = sign(key, signed(asked.nonce, address.netloc, address.path))
    return await ask(req, Proof(STRANGER, asked.nonce, asked.nonce, signature, Introduction(), certificate))


async def test_guests_are_asked_for_no_certificate_and_peers_are(tmp_path: Path) -> None:
    farm = OneRealm(tmp_path)
    farm.policy('hub desk.* | edit = ["*"]', 'guest.bob @anyone | view = ["minutes"]')
    want = Want(STRANGER, None, "minutes", None, {})
    async with home(farm, "127.0.0.1") as peer:
        (page,) = peer.page_addresses
        assert page not in peer.repair_addresses
        with Req(dial=page, tls=NO_PASS) as req:
            assert isinstance(await ask(req, want), Prove)  # the rights of @anyone are no one's before a proof
            welcome = await proven(req, "guest.bob")
            assert welcome.about.docs == ("minutes",)
            assert isinstance(await ask(req, want), Diff)
            assert (await ask(req, Give(STRANGER, None, "minutes", b"", {}))).code == "refused"
            assert all(pipe.who == "@anyone" for pipe in peer._exchange.rep.pipes)
        (url,) = welcome.about.bus
        for wrong in (url.partition("?")[0], *peer.addresses):
            with Bus(dial=wrong, tls=NO_PASS) as bus, pytest.raises(TimedOut):
                await bus.await_for_peers(1, timeout=0.3)
        with Bus(dial=url, tls=NO_PASS) as bus:
            await bus.await_for_peers(1, timeout=5.0)
        async with DocumentPeer(join=peer.repair_addresses, trust=farm.trust("desk.ada")) as ada:
            await ada.open("minutes").joined(5.0)
            assert {pipe.who for pipe in peer._exchange.bus.pipes} == {"desk.ada"}


async def test_a_signature_for_a_host_that_the_certificate_is_not_for_is_refused(tmp_path: Path) -> None:
    """As a listener that passes a page's proof on would say the host that the page has dialed."""
    async with home(OneRealm(tmp_path), "notes.example") as peer:
        with Req(dial=peer.page_addresses[0], tls=NO_PASS) as req:
            refused = await proven(req, "guest.ada")
            assert refused.code == "binding"
            assert "the certificate of this peer is not for 127.0.0.1" in refused.why


def test_guests_need_a_trust_and_tls(tmp_path: Path) -> None:
    trust = OneRealm(tmp_path).trust("hub")
    with pytest.raises(ConfigError, match=r"^guests: .*trust="):
        DocumentPeer(guests="wss://127.0.0.1:0")
    with pytest.raises(ConfigError, match=r"^guests: .*wss://"):
        DocumentPeer(guests="tls+tcp://127.0.0.1:0", trust=trust)
    with Rep(trust=trust) as rep, pytest.raises(ConfigError, match=r"^guests: .*wss://"):
        rep.listen("ws://127.0.0.1:0", guests=NO_PASS)


@pytest.mark.slow
def test_the_command_prints_a_link(tmp_path: Path) -> None:
    hub = OneRealm(tmp_path, Folder.new(tmp_path, "farm").realm).trust("hub")
    folder = str(tmp_path)
    words = ("http://127.0.0.1:4780/", "--guest", "guest.ada", "--realm", folder, "--doc", "minutes")
    done = nngkit("doc", "link", *words)
    certificate, key = opened(parse_qs(done.stdout.strip().partition("#")[2])["pass"][0])
    assert check_guest(hub, certificate, sign(key), MESSAGE).name == "guest.ada"
    assert_fails(nngkit("doc", "link", "http://h/", "--guest", "Not A Name", "--realm", folder), 2, "Not A Name")


@pytest.mark.slow
def test_a_folder_that_is_served_with_a_trust_needs_no_token(farm: OneRealm, tmp_path: Path) -> None:
    home, hub = tmp_path / "home", str(farm.file("hub"))
    words = ("--listen", "ws://127.0.0.1:0", "--no-page", "--json", "--trust", hub)
    with Running("doc", "serve", str(home), *words) as running:
        join = json.loads(running.line())["join"][0]
        assert "#" not in join
        assert not (home / "docs.token").exists()
    assert_fails(nngkit("doc", "serve", str(home), *words, "--token", "x"), 2, "takes the place of a token")
