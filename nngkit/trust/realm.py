"""Realms, which sign passes. Needs the extra ``trust``, which is `cryptography`.

::

    realm = Realm.new("farm")                    # closed: its key signs
    realm.issue("render.w1", days=90)            # text of a pass

    Realm.shared("lab", secret)                  # a holder of the secret can take any name

All of a realm's certificate but the signature follows from its name and key, so holders of a shared secret make
equivalent ones. Keys are P-256, as NNG's TLS refuses Ed25519.
"""

from __future__ import annotations

import secrets
from base64 import b32encode
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from typing import Final, Self

from nngkit.errors import ConfigError
from nngkit.trust.names import check, check_realm, uri_of
from nngkit.trust.passes import text_of

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as missing:
    raise ConfigError("trust", "cryptography is not installed: pip install 'nngkit[trust]'") from missing

ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256
LEAST_SECRET: Final = 26  # characters: 128 bits, as anybody can test guesses against a certificate
SECRET: Final = 20  # bytes of a new secret
TITLE: Final = "nngkit realm "  # and its name, in its certificate
EARLY: Final = timedelta(minutes=5)  # before now, or its life, at which a pass begins: clocks differ
INVITATIONS: Final = 1 << 64  # serial numbers below are those of invitations
FIRST, LAST = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)


class Realm:
    """The signing key of a realm, and its certificate. ``others``: certificates that are trusted too, PEM."""

    def __init__(self, name: str, key: ec.EllipticCurvePrivateKey, others: str = "") -> None:
        self.name = check_realm(name)
        self.others = others
        self._key = key
        public = key.public_key()
        digest = sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
        title = _named(f"{TITLE}{name}")
        self._certificate = (
            x509.CertificateBuilder(title, title, public, int.from_bytes(digest[:8], "big") >> 1 | 1, FIRST, LAST)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(key, hashes.SHA256())
        )

    @classmethod
    def new(cls, name: str) -> Self:
        """Return a realm with a new key."""
        return cls(name, new_key())

    @classmethod
    def shared(cls, name: str, secret: str) -> Self:
        """Return the realm whose key follows from ``secret``. Raises ConfigError for one that could be guessed."""
        if len(secret) < LEAST_SECRET:
            raise ConfigError("secret", f"{len(secret)} characters can be guessed; {LEAST_SECRET} are needed")
        drawn = HKDF(hashes.SHA256(), 48, b"nngkit shared realm 1", check_realm(name).encode()).derive(secret.encode())
        return cls(name, ec.derive_private_key(int.from_bytes(drawn, "big") % (ORDER - 1) + 1, ec.SECP256R1()))

    @classmethod
    def load(cls, name: str, key: bytes, others: str = "") -> Self:
        """Return the realm with a key in PEM. Raises ConfigError."""
        try:
            found = load_pem_private_key(key, None)
        except (ValueError, TypeError) as wrong:
            raise ConfigError("realm key", str(wrong)) from wrong
        if not isinstance(found, ec.EllipticCurvePrivateKey) or not isinstance(found.curve, ec.SECP256R1):
            raise ConfigError("realm key", "not a P-256 key")
        return cls(name, found, others)

    @classmethod
    def read(cls, key: str, certificates: str) -> Self:
        """Return the realm of a key, and of its certificates: that of the key, and others. Raises ConfigError."""
        try:
            found = x509.load_pem_x509_certificates(certificates.encode())
        except ValueError as wrong:
            raise ConfigError("realm", str(wrong)) from wrong
        (title,) = found[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME) or (None,)
        realm = cls.load(str(title.value).removeprefix(TITLE) if title is not None else "", key.encode())
        for each in found:
            if each.public_key() == realm._key.public_key():
                realm._certificate = each  # the bytes stay, as passes are compared with them
            else:
                realm.others += _text(each)
        return realm

    @property
    def key(self) -> str:
        """The signing key, PEM: a secret."""
        return pem(self._key)

    @property
    def certificate(self) -> str:
        """Certificate by which peers check passes, PEM."""
        return _text(self._certificate)

    @property
    def authorities(self) -> str:
        """All certificates by which peers check passes, PEM."""
        return self.others + self.certificate

    def issue(
        self,
        name: str,
        *,
        days: float = 90.0,
        hosts: Sequence[str] = (),
        start: datetime | None = None,
        issuer: str = "",
        invites: bool = False,
    ) -> str:
        """Return a new pass as text: `passes.write` keeps it. ``hosts``: names and addresses for peers without nngkit.

        ``issuer``: URL at which it is renewed. ``invites``: it may be exchanged once, for a pass with another key.
        Raises ConfigError.
        """
        if not 0 < days <= 36_500:
            raise ConfigError("days", f"{days!r} is not from 0 to 36,500", days)
        key = new_key()
        chain = self.sign(name, key.public_key(), days, hosts, start, invites=invites)
        return text_of(self.authorities, chain, pem(key), issuer)

    def signed(self, certificate: x509.Certificate) -> bool:
        """Return True if the realm has signed a certificate by one of its keys."""
        for authority in x509.load_pem_x509_certificates(self.authorities.encode()):
            with suppress(InvalidSignature):
                certificate.verify_directly_issued_by(authority)
                return True
        return False

    def sign(
        self,
        name: str,
        public: ec.EllipticCurvePublicKey,
        days: float,
        hosts: Sequence[str] = (),
        start: datetime | None = None,
        *,
        invites: bool = False,
    ) -> str:
        """Return a certificate of ``name`` for a key made elsewhere, PEM."""
        begin = start or datetime.now(UTC)
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri_of(self.name, check(name)))]
        names += [x509.DNSName(f"{name}.{self.name}"), *map(_host, hosts)]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        life = timedelta(days=days)
        serial = secrets.randbelow(INVITATIONS - 1) + 1 if invites else x509.random_serial_number() | INVITATIONS
        first, last = begin - min(EARLY, life), min(begin + life, LAST)
        signed = (
            x509.CertificateBuilder(self._certificate.subject, _named(name), public, serial, first, last)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _text(signed)


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a new key of a pass."""
    return ec.generate_private_key(ec.SECP256R1())


def pem(key: ec.EllipticCurvePrivateKey) -> str:
    """Return a private key as PEM."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def public_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """Return the public key of a private one as PEM."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def new_secret() -> str:
    """Return a secret for a shared realm: 160 random bits as 32 letters and digits."""
    return b32encode(secrets.token_bytes(SECRET)).decode().lower()


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
