"""Rights of the peers of a room: what they may do, and what they may call themselves.

::

    rights = Rights(trust, "discovery", carry="discovery")
    rights.speaks(pipe.who, "render.w1:2")              # binding: its own name, an instance of it, or it may carry
    rights.may(pipe.who, "offer", "render")             # a right
    rights.require(pipe.who, "call", "pay/charge")      # or raise AccessDenied

A refusal is counted, told to the watchers of the trust, and logged: the first at once, then one line a minute. The log
names the missing line of the policy, the peer hears the right alone. Without a trust everything is granted.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from typing import Final, NoReturn

from nngkit.errors import AccessDenied, ConfigError
from nngkit.log_lines import LogLines
from nngkit.trust.choice import Choice
from nngkit.trust.names import owns, uid
from nngkit.trust.policy import Policy
from nngkit.trust.refusals import ANY_TOPIC
from nngkit.trust.trust import Decision, Trust

log = logging.getLogger("nngkit.trust")

RIGHT: Final = "right"
BINDING: Final = "binding"


class Rights:
    """Rights in one room. ``trust`` may be None or OPEN. Any thread may call.

    ``carry``: what peers that speak for others must be granted here.
    """

    __slots__ = ("_carry", "_lines", "_lock", "refusals", "room", "trust")

    def __init__(self, trust: Choice | None, room: str, *, carry: str) -> None:
        self.trust = trust if isinstance(trust, Trust) else None
        self.room = room
        self.refusals: Counter[str] = Counter()
        """How often a peer was refused, by code: "right", "binding"."""
        self._carry = carry
        self._lines = LogLines()
        self._lock = threading.Lock()

    def speaks(self, name: str | None, said: str) -> bool:
        """Return True if ``name`` may speak as ``said``. A refusal is counted and logged."""
        if self.owns(name, said):
            return True
        self._refuse(BINDING, name, f"speak as {said!r}", self._missing(name, "carry", self._carry))
        return False

    def owns(self, name: str | None, said: str) -> bool:
        """Return what `speaks` does; nothing is counted."""
        return self.trust is None or (
            name is not None and (owns(name, said) or self.trust.policy.may(name, "carry", self._carry))
        )

    def greets(self, name: str | None, said: str) -> bool:
        """Return True if ``name`` may call itself ``said``. Carrying is no help to a name that a pass proves."""
        if self.trust is None or (name and owns(name, said)):
            return True
        if not name or name.startswith("@"):
            return self.speaks(name, said)
        self._refuse(BINDING, name, f"call itself {said!r}", f"that takes a pass of {said.partition(':')[0]!r}")
        return False

    def misspeaks(self, name: str | None, said: str) -> None:
        """Count that ``name`` spoke as ``said`` where it may not, whatever it may carry."""
        self._refuse(BINDING, name, f"speak as {said!r}", "which is not below it")

    def holds(self, name: str, right: str) -> bool:
        """Return True if the policy grants ``right`` on anything to ``name``. Nothing is counted."""
        policy = self.policy
        return policy is None or policy.is_open or bool(policy.targets(name, right))

    @property
    def policy(self) -> Policy | None:
        """The policy in force, another object after each change; None without a trust."""
        return None if self.trust is None else self.trust.policy

    def carries(self, name: str | None) -> bool:
        """Return True if this process may speak for others at the peer ``name``, by the policy that is here."""
        if self.trust is None or not name:
            return True
        own = self.trust.name
        if name.startswith("@"):  # as it has no pass there, this process has shown none
            own = uid(os.getuid()) if name.startswith("@uid.") else name
        return self.trust.policy.may(own, "carry", self._carry)

    def may(self, name: str | None, right: str, target: str) -> bool:
        """Return True if the policy grants ``right`` on ``target``. A refusal is counted and logged."""
        if self.grants(name, right, target):
            return True
        self._refuse(RIGHT, name, f"{right} {target}", self._missing(name, right, target))
        return False

    def grants(self, name: str | None, right: str, target: str) -> bool:
        """Return what `may` does; nothing is counted."""
        return self.trust is None or (name is not None and self.trust.policy.may(name, right, target))

    def require(self, name: str | None, right: str, target: str) -> None:
        """Raise AccessDenied unless `may`. Its text is for the peer: it begins with the code."""
        if not self.may(name, right, target):
            deny(RIGHT, name, f"{right} {target}")

    def topics(self, name: str | None, right: str) -> tuple[str, ...]:
        """Return the prefixes of topics that are granted: ("",) stands for all, () for none. Nothing is counted."""
        if self.trust is None:
            return ("",)
        return () if name is None else self.trust.policy.topics(name, right)

    def require_topics(self, name: str | None, right: str) -> None:
        """Raise AccessDenied if ``right`` is granted on no topic at all."""
        if not self.topics(name, right):
            self._refuse(RIGHT, name, f"{right} {ANY_TOPIC}", self._missing(name, right, "topic"))
            deny(RIGHT, name, f"{right} {ANY_TOPIC}")

    @staticmethod
    def _missing(name: str | None, right: str, target: str) -> str:
        return f"a role of {name} needs {right} = [{_quoted(target)}]"

    def _refuse(self, code: str, name: str | None, what: str, line: str) -> None:
        assert self.trust is not None
        text = f"{self.room}: {code}: {name} may not {what}: {line}"
        with self._lock:
            self.refusals[code] += 1
            due = self._lines.add(text, time.monotonic())
        if due is not None:
            log.warning("%s", due, extra={"room": self.room, "code": code, "peer": name or ""})
        self.trust.tell(Decision(time.time(), self.room, name or "", what, code))


def own_id(trust: Trust, given: str | None, *, instance: bool = False) -> str:
    """Return the id that a room is given, one of the pass; by default its name, or a new instance of it.

    Raises ConfigError for the id of another name.
    """
    if given is None:
        return f"{trust.name}:{os.urandom(6).hex()}" if instance else trust.name
    if not owns(trust.name, given):
        why = f"{given!r} is neither {trust.name!r}, which the pass says, nor {trust.name}:WORD"
        raise ConfigError("id", why, given)
    return given


def deny(code: str, name: str | None, what: str) -> NoReturn:
    """Raise the AccessDenied that a peer is told of."""
    raise AccessDenied(f"{code}: {name} may not {what}")


def _quoted(target: str) -> str:
    return '"' + target.replace("\\", "\\\\").replace('"', '\\"') + '"'
