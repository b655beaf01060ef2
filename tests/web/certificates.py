"""Certificates of pages for `ELSEWHERE`, which the tests' browser trusts by their keys."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from nngkit.trust import Realm, passes
from tests.trust.one_realm import FARM
from tests.web.browsers import ELSEWHERE


@dataclass(frozen=True)
class Issued:
    """A pass, whose chain and key are a certificate too. ``digest``: of its public key, for the browser's flag."""

    text: str
    chain: str
    key: str
    digest: str


def issue(realm: Realm) -> Issued:
    """Return a new one for `ELSEWHERE`."""
    text = realm.issue("hub", hosts=(ELSEWHERE,))
    found = passes.parse(text)
    public = x509.load_pem_x509_certificate(found.chain.encode()).public_key()
    digest = sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
    return Issued(text, found.chain, found.key, base64.b64encode(digest).decode())


OF_PAGE = issue(Realm.new("web"))  # of no realm that a peer knows
OF_PASS = issue(FARM)
