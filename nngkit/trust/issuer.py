"""Answers of an issuer, `nngkit trust serve`: passes for invitations, once each, renewals, the policy, invitations.

The realm's folder is read again when its files have changed, so what other commands change there counts at once. A
question with a `wait` is held while there is nothing new; one that a program holds costs its connection, and nothing
while it waits.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from nngkit.errors import AccessDenied, ConfigError
from nngkit.trust import passes, signing
from nngkit.trust.folder import CERTIFICATES, KEY, Folder, read_text
from nngkit.trust.names import check
from nngkit.trust.policy import Policy
from nngkit.trust.realm import INVITATIONS
from nngkit.trust.renewal import ISSUER, Question, Reply, check_issuer, digest_of
from nngkit.trust.trust import DUE, POLICY, SIGNATURE

TAKEN: Final = "invitations"  # file of those that were taken: serial number, digest of the key, until when it is kept
KEPT: Final = 86_400.0  # seconds: longer than an invitation is valid
MOST_HOURS: Final = 24.0  # that an invitation of a name that may enrol is valid
MOST_WAIT: Final = 60.0  # seconds that a question is held
NOTHING: Final = msgspec.json.encode(Reply())
DAMAGED: Final = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, msgspec.MsgspecError)
FILES: Final = (KEY, CERTIFICATES, POLICY, SIGNATURE)

log = logging.getLogger("nngkit.trust")


class Issuer:
    """Answers questions for the realm in the folder ``path``. ``days``: the life of the passes."""

    def __init__(self, path: str | os.PathLike[str], days: float) -> None:
        self._path = Path(path)
        self._days = days
        self.own = self._path / f"{ISSUER}.pass"
        self._stamps: list[object] = []
        self._folder: Folder | None = None
        self._policy: tuple[Policy, str, str] | None = None  # that is signed, with its text and signature

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
        except (AccessDenied, ConfigError, *DAMAGED) as wrong:
            reply = Reply(refused=str(wrong))
        return msgspec.json.encode(reply)

    def patience(self, body: bytes) -> float:
        """Return for how many seconds a question may be held that is answered with `NOTHING`."""
        try:
            return min(max(0.0, msgspec.json.decode(body, type=Question).wait), MOST_WAIT)
        except (msgspec.MsgspecError, ValueError):
            return 0.0

    def look(self) -> list[object]:
        """Return what is another once the folder's files have changed: then there may be something new."""
        stamps: list[object] = []
        for name in FILES:
            with suppress(OSError):
                found = (self._path / name).stat()
                stamps += (name, found.st_ino, found.st_mtime_ns, found.st_size)
        return stamps

    def _read(self) -> Folder:
        """Return the folder, with its policy if that is signed: it may be on its way, its signature last."""
        stamps = self.look()
        if self._folder is None or stamps != self._stamps:
            folder, self._folder, self._policy = Folder.open(self._path), None, None
            with suppress(ConfigError):
                texts = read_text(self._path / POLICY), read_text(self._path / SIGNATURE)
                signing.check(folder.realm.authorities, *texts)
                self._policy = Policy.parse(texts[0]), *texts
            self._folder, self._stamps = folder, stamps
        return self._folder

    def _answer(self, name: str, serial: str, question: Question) -> Reply:
        folder = self._read()
        realm, reply = folder.realm, Reply()
        if question.invite:
            return Reply(invitation=self._invite(name, serial, question))
        if question.due or question.trusted != digest_of(realm.authorities):
            public, hosts = self._key_of(folder, serial, question.key)
            reply.chain = realm.sign(name, public, self._days, hosts)
            reply.authorities = realm.authorities
        if question.policy is not None and self._policy is not None:
            policy, text, signature = self._policy
            if reply.chain or policy.version > question.policy:
                reply.policy, reply.signature = text, signature
        return reply

    def _invite(self, by: str, serial: str, question: Question) -> str:
        """Return the line of an invitation, if the policy lets this name enrol the invited one."""
        invited, policy = check(question.invite, "invite"), self._policy[0] if self._policy else None
        if int(serial, 16) < INVITATIONS or policy is None or not policy.may(by, "enrol", invited):
            raise AccessDenied(f"right: {by} may not enrol {invited}")
        if invited == ISSUER or policy.targets(invited, "enrol"):
            raise AccessDenied(f"right: {invited} may enrol others: only the realm's key signs its pass")
        if not 0 < question.hours <= MOST_HOURS:
            raise ConfigError("hours", f"{question.hours!r} is not from 0 to {MOST_HOURS:g}", question.hours)
        url = check_issuer(question.key)
        log.info("%s invites %s", by, invited)
        return passes.invitation(self._read().realm.issue(invited, days=question.hours / 24, issuer=url, invites=True))

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
