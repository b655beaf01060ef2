"""Guests: who a page may be, by the pass of a link and a signature."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from nngkit.errors import AccessDenied, ConfigError
from nngkit.trust import Folder, Realm, Trust, passes
from nngkit.trust.guests import check_guest, guest_pass, signed
from nngkit.web.server import link
from tests.cli.commands import assert_fails, nngkit
from tests.cli.processes import Running

MESSAGE = signed(b"n" * 32, "127.0.0.1:4712", "/repair")


def opened(text: str) -> tuple[bytes, ec.EllipticCurvePrivateKey]:
    certificate, key = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in text.split("."))
    return certificate, ec.derive_private_key(int.from_bytes(key, "big"), ec.SECP256R1())


def sign(key: ec.EllipticCurvePrivateKey, message: bytes = MESSAGE) -> bytes:
    halves = decode_dss_signature(key.sign(message, ec.ECDSA(hashes.SHA256())))
    return b"".join(half.to_bytes(32, "big") for half in halves)


class Farm:
    def __init__(self, path: Path) -> None:
        self.folder = Folder.new(path, "farm")
        passes.write(path / "hub.pass", self.folder.realm.issue("hub"))
        self.trust = Trust(path / "hub.pass")
        self.certificate, _ = opened(guest_pass(self.folder.realm, "guest.ada"))


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Farm:
    return Farm(tmp_path_factory.mktemp("farm"))


def test_a_guest_is_the_name_of_the_pass_until_it_ends(farm: Farm) -> None:
    certificate, key = opened(guest_pass(farm.folder.realm, "guest.ada", hours=2))
    guest = check_guest(farm.trust, certificate, sign(key), MESSAGE)
    assert guest.name == "guest.ada"
    assert guest.serial == f"{x509.load_der_x509_certificate(certificate).serial_number:x}"
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
def test_others_are_refused_with_a_code(farm: Farm, what: str, code: str) -> None:
    realm = farm.folder.realm
    certificate, key = opened(guest_pass(realm, "guest.ada"))
    signature = sign(key)
    if what == "another realm with its name":
        certificate, key = opened(guest_pass(Realm.new("farm"), "guest.ada"))
        signature = sign(key)
    elif what in ("expired", "not yet"):
        certificate, key = later(realm, -3 if what == "expired" else 3)
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
        check_guest(farm.trust, certificate, signature, MESSAGE)


def test_a_guest_that_is_revoked_is_refused(tmp_path: Path) -> None:
    farm = Farm(tmp_path)
    certificate, key = opened(guest_pass(farm.folder.realm, "guest.ada"))
    farm.folder.revoke("guest.ada")
    farm.trust.refresh(now=True)
    with pytest.raises(AccessDenied, match=r"^revoked: guest\.ada"):
        check_guest(farm.trust, certificate, sign(key), MESSAGE)


@given(st.binary(max_size=600), st.binary(max_size=64))
def test_bytes_of_a_stranger_raise_nothing_else(farm: Farm, certificate: bytes, signature: bytes) -> None:
    with pytest.raises(AccessDenied):
        check_guest(farm.trust, certificate, signature, MESSAGE)


@given(st.binary(max_size=64))
def test_a_damaged_signature_raises_nothing_else(farm: Farm, signature: bytes) -> None:
    with pytest.raises(AccessDenied, match=r"^binding: "):
        check_guest(farm.trust, farm.certificate, signature, MESSAGE)


def test_a_link_has_the_pass_in_its_fragment(farm: Farm) -> None:
    url = link("https://notes/", guest="guest.ada", hours=1, realm=farm.folder.realm, doc="minutes")
    address, _, fragment = url.partition("#")
    fields = parse_qs(fragment)
    assert (address, fields["guest"], fields["doc"]) == ("https://notes/", ["guest.ada"], ["minutes"])
    certificate, key = opened(fields["pass"][0])
    assert check_guest(farm.trust, certificate, sign(key), MESSAGE).name == "guest.ada"
    with pytest.raises(ConfigError, match="realm"):
        link("https://notes/", guest="guest.ada")
    for hours in (0, -1, 10_000):
        with pytest.raises(ConfigError, match="hours"):
            link("https://notes/", guest="guest.ada", hours=hours, realm=farm.folder.realm)


@pytest.mark.slow
def test_the_command_prints_a_link(farm: Farm) -> None:
    folder = str(farm.folder.path)
    words = ("http://127.0.0.1:4780/", "--guest", "guest.ada", "--realm", folder, "--doc", "minutes")
    done = nngkit("doc", "link", *words)
    certificate, key = opened(parse_qs(done.stdout.strip().partition("#")[2])["pass"][0])
    assert check_guest(farm.trust, certificate, sign(key), MESSAGE).name == "guest.ada"
    assert_fails(nngkit("doc", "link", "http://h/", "--guest", "Not A Name", "--realm", folder), 2, "Not A Name")


@pytest.mark.slow
def test_a_folder_that_is_served_with_a_trust_needs_no_token(farm: Farm, tmp_path: Path) -> None:
    home, hub = tmp_path / "home", str(farm.folder.path / "hub.pass")
    words = ("--listen", "ws://127.0.0.1:0", "--no-page", "--json", "--trust", hub)
    with Running("doc", "serve", str(home), *words) as running:
        join = json.loads(running.line())["join"][0]
        assert "#" not in join
        assert not (home / "docs.token").exists()
    assert_fails(nngkit("doc", "serve", str(home), *words, "--token", "x"), 2, "takes the place of a token")
