"""A trust: a pass and, where one was written, a policy. Both are read again when their files change.

A broken file leaves the last good one in force, and is logged once. A pass that names an issuer is renewed: the issuer
is asked for what is new, and replies once something is, so that a realm's new key and policy come by themselves.
"""

from __future__ import annotations

import logging
import os
import random
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from weakref import WeakMethod, finalize, ref

from nngkit.errors import AccessDenied, ConfigError, NngkitError
from nngkit.file_modes import checked_path
from nngkit.instruments import Label, Seconds, Total
from nngkit.trust import passes
from nngkit.trust.names import name_in
from nngkit.trust.passes import Pass
from nngkit.trust.policy import LIMIT, Policy

if TYPE_CHECKING:
    from nngkit.trust import renewal

log = logging.getLogger("nngkit.trust")

POLICY: Final = "policy.toml"  # beside the pass ...
SIGNATURE: Final = "policy.sig"  # ... with this
PERIOD: Final = 1.0  # seconds between two looks at the files, besides that of each connection
DUE: Final = 2 / 3  # of the life of a pass, after which it is renewed
EVERY: Final = 20.0  # seconds that a question to the issuer waits there for something new, ...
PARTS: Final = 20  # ... of the life of a pass at most this part
AGAIN: Final = 60.0  # seconds, at most, until an issuer that does not reply is asked again: 0.5, 1, 2, ...
REFUSED: Final = 0.5  # ... and one that does not run: a refused connection costs nothing, a revocation counts at once
TRIES: Final = 5  # of files that are being written, as policy and signature are two ...
PAUSE: Final = 0.01  # ... with as many seconds between them

Stamp = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about a peer. ``at``: unix time in seconds; ``refused``: the code, empty if it was granted."""

    at: float
    room: str
    who: str
    what: str
    refused: str


@dataclass(frozen=True, slots=True)
class DecisionStats:
    """Decisions of one kind in one room."""

    room: Label
    code: Label
    count: Total
    """Decisions about peers by room, and code of the refusal: none where it was granted."""


@dataclass(frozen=True, slots=True)
class TrustStats:
    """Counters of the decisions of a trust, and its pass."""

    decisions: tuple[DecisionStats, ...]
    until: Seconds
    """End of the pass, in unix time."""


class Trust:
    """``path``: of the pass file. Raises ConfigError if pass or policy cannot be used.

    `name` and `realm` stay, whatever the file becomes: another name needs another trust. Any thread may call.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = checked_path("pass", path)
        self._policy_files = self._path.with_name(POLICY), self._path.with_name(SIGNATURE)
        self._files = tuple(map(os.fspath, (self._path, *self._policy_files)))
        self._lock = threading.Lock()
        self._looked_at = 0.0
        self._stamps = self._look()
        self.own: Pass = passes.read(self._path)
        self.name, self.realm = self.own.name, self.own.realm
        self.policy: Policy = self._read_policy(self.own)
        self._contexts: dict[tuple[bool, bool], ssl.SSLContext] = {}
        self._counting = threading.Lock()
        self._decisions: Counter[tuple[str, str]] = Counter()
        self._watchers: tuple[Callable[[Decision], object], ...] = ()
        self._followers: set[WeakMethod[Callable[[], object]]] = set()
        if self.own.issuer:
            ended = _Ended()
            finalize(self, ended.set)
            threading.Thread(target=_renew, args=(ref(self), ended), name="nngkit-renewal", daemon=True).start()

    def __repr__(self) -> str:
        return f"<Trust {self.name} of {self.realm}>"

    # ------------------------------------------------------------------ connections

    def context(self, *, server: bool, asks: bool = True) -> ssl.SSLContext:
        """Return OpenSSL's settings for a new connection, of which `refresh` comes first.

        ``asks``: without it a listener shows its pass, and asks for none.
        """
        with self._lock:
            if (server, asks) not in self._contexts:
                made = self._contexts[server, asks] = self.own.context(server=server)
                if not asks:
                    made.verify_mode = ssl.CERT_NONE
            return self._contexts[server, asks]

    def name_of(self, uris: Sequence[str], serial: str) -> str:
        """Return the name of a peer by its certificate. Raises AccessDenied, with a code and the reason."""
        name = name_in(uris, self.realm)
        if self.policy.is_revoked(name, serial):
            raise AccessDenied(f"revoked: {name} (serial {serial})")
        return name

    def require(self, name: str, right: str, target: str) -> None:
        """Raise AccessDenied unless the policy grants ``right`` on ``target`` to ``name``."""
        if not self.policy.may(name, right, target):
            raise AccessDenied(f"right: {name} may not {right} {target}")

    def watch(self, watcher: Callable[[Decision], object]) -> Callable[[], None]:
        """Call ``watcher`` with each decision, in the deciding thread, and return what ends that. It may not block."""
        with self._lock:
            self._watchers += (watcher,)

        def end() -> None:
            with self._lock:
                self._watchers = tuple(each for each in self._watchers if each is not watcher)

        return end

    def tell(self, decision: Decision) -> None:
        """Count a decision, and pass it on to the watchers."""
        with self._counting:
            self._decisions[decision.room, decision.refused] += 1
        for watcher in self._watchers:
            watcher(decision)

    @property
    def stats(self) -> TrustStats:
        """Counters of decisions, and the end of the pass in the file now, which no connection may have read yet."""
        self.refresh()
        with self._counting:
            decisions = sorted(self._decisions.items())
        return TrustStats(tuple(DecisionStats(*kind, count) for kind, count in decisions), self.own.until)

    def follow(self, changed: Callable[[], object]) -> None:
        """Call a bound method after each change of pass or policy, in the thread that reads. It may not block.

        Its object is not kept alive. To follow again changes nothing.
        """
        self._followers.add(WeakMethod(changed))

    # ------------------------------------------------------------------ files

    def renew(self) -> None:
        """Ask the issuer for what is new, and write it, as a trust does by itself. Raises NngkitError."""
        from nngkit.trust import renewal

        own, policy = self.own, self.policy
        self._take(own, policy, renewal.ask(own, self._question(own, 0.0)))

    def _question(self, own: Pass, wait: float) -> renewal.Question:
        from nngkit.trust import renewal

        due = time.time() >= own.since + DUE * (own.until - own.since)
        held = self.policy.version if find_spec("cryptography") else None  # by which it would be checked
        return renewal.Question(own.chain, renewal.digest_of(own.authorities), held, due, wait)

    def _take(self, own: Pass, policy: Policy, reply: renewal.Reply) -> bool:
        """Write what is new; return True if another pass or policy than these is in force now."""
        from nngkit.trust import renewal

        with self._lock:  # a new connection does not read a policy whose signature is still to be written
            if reply.policy:  # first: it may be signed by a key that the new pass trusts only
                for path, text in zip(self._policy_files, (reply.policy, reply.signature), strict=True):
                    passes.write(path, text)
            if reply.chain:
                passes.write(self._path, renewal.with_reply(own, reply, own.key))
        self.refresh(now=True)  # unless a new connection, in another thread, has read it already
        return self.own is not own or self.policy is not policy

    def refresh(self, *, now: bool = False) -> bool:
        """Read what has changed; without ``now`` look once a second at most. Return True if something did."""
        if (not now and time.monotonic() - self._looked_at < PERIOD) or not self._reread():
            return False
        for each in tuple(self._followers):
            changed = each()
            if changed is None:
                self._followers.discard(each)
            else:
                changed()
        return True

    def _reread(self) -> bool:
        with self._lock:
            self._looked_at = time.monotonic()
            if self._look() == self._stamps:
                return False
            for left in reversed(range(TRIES)):
                self._stamps = self._look()
                try:
                    self.own, self.policy = self._read()
                except ConfigError as wrong:
                    time.sleep(PAUSE)
                    if left == 0 or self._look() == self._stamps:
                        log.warning("%s: the last good one stays in force", wrong)
                        return False
                else:
                    break
            self._contexts = {}
            return True

    def _read(self) -> tuple[Pass, Policy]:
        own = passes.read(self._path)
        if (own.name, own.realm) != (self.name, self.realm):
            raise ConfigError("pass", f"{self._path}: it is of {own.name} of {own.realm} now, not of {self.name}")
        policy = self._read_policy(own)
        if policy.version < self.policy.version:
            raise ConfigError("policy", f"version {policy.version} is older than {self.policy.version}")
        return own, policy

    def _look(self) -> Stamp:
        stamps: list[object] = []
        for path in self._files:
            try:  # without calls of Python's: each new connection looks
                found = os.stat(path)
            except OSError:
                continue
            stamps += (path, found.st_ino, found.st_mtime_ns, found.st_size)
        return tuple(stamps)

    def _read_policy(self, own: Pass) -> Policy:
        text_path, signature_path = self._policy_files
        if not text_path.exists() and not signature_path.exists():
            return Policy.open(own.realm)
        texts = []
        for path in (text_path, signature_path):
            try:
                with path.open(encoding="utf-8") as file:
                    texts.append(file.read(LIMIT + 1))
            except (OSError, UnicodeDecodeError) as wrong:
                raise ConfigError("policy", f"{path}: {getattr(wrong, 'strerror', None) or wrong}", path) from wrong
        from nngkit.trust import signing  # loads cryptography, which a trust without a policy does not need

        signing.check(own.authorities, *texts)
        policy = Policy.parse(texts[0])
        if policy.realm != own.realm:
            raise ConfigError("policy", f"{text_path}: it is of realm {policy.realm}, not of {own.realm}")
        return policy


class _Ended:
    """Says that a trust is gone, to the thread that renews its pass, which may wait for a reply."""

    def __init__(self) -> None:
        from nngkit.trust import renewal

        self.line = renewal.Line()
        self._event = threading.Event()

    def set(self) -> None:
        """Wake the thread."""
        self._event.set()
        self.line.interrupt()

    def wait(self, seconds: float) -> bool:
        """Return True once it is set, False after so many seconds."""
        return self._event.wait(seconds)


def _renew(of: ref[Trust], ended: _Ended) -> None:
    """Renew a pass until its trust is gone. In a thread of its own."""
    pause, trouble, failed = 0.0, "", 0
    while not ended.wait(pause):
        trust = of()
        if trust is None:
            break
        own, policy = trust.own, trust.policy
        most = (own.until - own.since) / PARTS
        wait = random.uniform(0.8, 1.2) * min(EVERY, most)
        question, asked = trust._question(own, wait), time.monotonic()
        del trust  # or it would live as long as this thread
        try:
            reply = ended.line.ask(own, question)
            trust = of()
            if trust is None:
                break
            new, failed, trouble = trust._take(own, policy, reply), 0, ""
            pause = 0.0 if new else max(0.0, asked + wait - time.monotonic())  # of an issuer that does not wait
        except NngkitError as wrong:
            if ended.wait(0.0):
                break
            if isinstance(wrong.__cause__, ConnectionRefusedError):
                pause = REFUSED
            else:
                failed += 1
                pause = min(AGAIN, REFUSED * 2.0 ** min(failed - 1, 7))
            pause = random.uniform(0.8, 1.2) * min(pause, most)
            if str(wrong) != trouble:
                trouble = str(wrong)  # the log may keep its arguments: not the error, with its frames
                log.warning("%s: the pass of %s is not renewed", trouble, own.name)
        trust = None
    ended.line.close()
