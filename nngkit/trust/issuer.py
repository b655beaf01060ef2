"""Answers of an issuer, `nngkit trust serve`: passes for invitations, once each, renewed passes, the policy.

Everything is read from the realm's folder for each question, so what other commands change there counts at once.
"""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from nngkit.errors import AccessDenied, ConfigError
from nngkit.trust import passes
from nngkit.trust.folder import Folder, read_text
from nngkit.trust.realm import INVITATIONS
from nngkit.trust.renewal import ISSUER, Question, Reply, digest_of
from nngkit.trust.trust import DUE, POLICY, SIGNATURE

TAKEN: Final = "invitations"  # file of those that were taken: serial number, digest of the key, until when it is kept
KEPT: Final = 86_400.0  # seconds: longer than an invitation is valid


class Issuer:
    """Answers questions for the realm in the folder ``path``. ``days``: the life of the passes."""

    def __init__(self, path: str | os.PathLike[str], days: float) -> None:
        self._path = Path(path)
        self._days = days
        self.own = self._path / f"{ISSUER}.pass"

    def refresh(self) -> None:
        """Write the issuer's own pass, if there is none that is usable and of the realm as it is."""
        folder = Folder.open(self._path)
        try:
            own = passes.read(self.own)
            fresh = time.time() < own.since + DUE * (own.until - own.since)
            if fresh and own.authorities == folder.realm.authorities:
                return
        except ConfigError:
            pass  # there is none, or it has ended
        passes.write(self.own, folder.realm.issue(ISSUER, days=self._days))

    def answer(self, name: str, serial: str, body: bytes) -> bytes:
        """Return the reply to a question from the holder of the pass with this name and serial number."""
        try:
            reply = self._answer(name, serial, msgspec.json.decode(body, type=Question))
        except (AccessDenied, ConfigError, ValueError, UnsupportedAlgorithm, msgspec.MsgspecError) as wrong:
            reply = Reply(refused=str(wrong))
        return msgspec.json.encode(reply)

    def _answer(self, name: str, serial: str, question: Question) -> Reply:
        folder = Folder.open(self._path)
        realm, reply = folder.realm, Reply()
        if question.due or question.trusted != digest_of(realm.authorities):
            public, hosts = self._key_of(folder, serial, question.key)
            reply.chain = realm.sign(name, public, self._days, hosts)
            reply.authorities = realm.authorities
        if question.policy is not None and (reply.chain or folder.policy().version > question.policy):
            reply.policy = read_text(self._path / POLICY)
            reply.signature = read_text(self._path / SIGNATURE)
        return reply

    def _key_of(self, folder: Folder, serial: str, key: str) -> tuple[ec.EllipticCurvePublicKey, list[str]]:
        """Return the key to sign, and the hosts of its certificate."""
        hosts: list[str] = []
        if int(serial, 16) < INVITATIONS:
            public = load_pem_public_key(key.encode())
            self._take(serial, key)
        else:
            certificate = x509.load_pem_x509_certificate(key.encode())
            if f"{certificate.serial_number:x}" != serial.lstrip("0") or not folder.realm.signed(certificate):
                raise AccessDenied("binding: the certificate is not that of the connection")
            public = certificate.public_key()
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            hosts = [str(each.value) for each in names if not isinstance(each, x509.UniformResourceIdentifier)][1:]
        if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
            raise AccessDenied("binding: not a P-256 key")
        return public, hosts

    def _take(self, serial: str, key: str) -> None:
        """Note that an invitation is used for a key, before the reply. The same key may ask again."""
        path, digest, now = self._path / TAKEN, sha256(key.encode()).hexdigest(), time.time()
        lines = [line.split() for line in read_text(path).splitlines()] if path.exists() else []
        taken = {number: (of, float(until)) for number, of, until in lines if float(until) > now}
        if taken.setdefault(serial, (digest, now + KEPT))[0] != digest:
            raise AccessDenied("invitation: it was taken already")
        passes.write(path, "".join(f"{number} {of} {until}\n" for number, (of, until) in taken.items()))
