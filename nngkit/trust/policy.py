"""Policies: which names may do what.

::

    realm = "farm"
    version = 7
    revoked = ["render.w3", "serial:4f2a91"]

    [role.workers]
    names = ["render.*"]
    work = ["farm/render", "farm/thumb.*"]
    call = ["quotes", "pay/charge"]
    publish = ["orders/"]

What is not granted is refused; there is no rule that takes a grant away, but ``revoked``. Targets are globs, topics
prefixes; a service stands for all its methods.

Pure: it reads text, and no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from typing import Any, Final

from nngkit.errors import ConfigError
from nngkit.trust.names import check_pattern, check_realm, matches

BY_PREFIX: Final = ("publish", "subscribe")
RIGHTS: Final = (
    *("offer", "call", "publish", "subscribe", "consume", "edit", "view"),
    *("work", "submit", "vote", "join", "carry", "enrol"),
)
LIMIT: Final = 1024 * 1024  # bytes of a policy
DECISIONS: Final = 65_536  # that are remembered
_SERIAL: Final = "serial:"
_TOP: Final = ("realm", "version", "revoked", "role")


@dataclass(frozen=True, slots=True)
class Role:
    """A role: patterns of names, and the targets of each right."""

    name: str
    names: tuple[str, ...]
    grants: Mapping[str, tuple[str, ...]]


class Policy:
    """A policy that was read. ``version`` only grows; decisions are remembered.

    Without one (``Policy.open``), every name may do everything but enrol and speak for others: only in clusters may it,
    where a node speaks for those below it. Connections of this machine without a pass may do that too.
    """

    def __init__(self, realm: str, version: int, revoked: Iterable[str], roles: Iterable[Role]) -> None:
        self.realm = realm
        self.version = version
        self.revoked = frozenset(revoked)
        self.roles = tuple(roles)
        self.is_open = False
        self.may = lru_cache(DECISIONS)(self._may)
        """``may(name, right, target)``: True if it is granted."""
        self._of = lru_cache(4096)(self._grants_of)

    @classmethod
    def open(cls, realm: str) -> Policy:
        """Return what holds where no policy was written."""
        policy = cls(realm, 0, (), ())
        policy.is_open = True
        return policy

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Read a policy. Raises ConfigError, which names the role and the nearest right word."""
        if len(text) > LIMIT:
            raise ConfigError("policy", f"over {LIMIT} bytes")
        import tomllib  # here, as most programs read no policy

        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as wrong:
            raise ConfigError("policy", str(wrong)) from wrong
        _known(table, _TOP, "policy")
        version = table.get("version", 0)
        if type(version) is not int or not 0 <= version < 1 << 53:
            raise ConfigError("policy version", f"{version!r} is not a whole number", version)
        roles = table.get("role", {})
        if not isinstance(roles, dict):
            raise ConfigError("policy role", "is not a table: write [role.NAME]")
        realm = table.get("realm", "")
        if not isinstance(realm, str):
            raise ConfigError("realm", f"{realm!r} is not text", realm)
        revoked = _texts(table.get("revoked", []), "policy revoked")
        return cls(check_realm(realm), version, revoked, [_role(name, each) for name, each in roles.items()])

    def is_revoked(self, name: str, serial: str = "") -> bool:
        """Return True if the name, or the pass with this serial number (hexadecimal), was revoked."""
        return name in self.revoked or (serial != "" and f"{_SERIAL}{serial.lower()}" in self.revoked)

    def granting(self, name: str, right: str, target: str) -> Role | None:
        """Return the first role that grants it; None if none does."""
        for role in self.roles:
            if any(matches(name, pattern) for pattern in role.names) and any(
                _covers(right, pattern, target) for pattern in role.grants.get(right, ())
            ):
                return role
        return None

    def _may(self, name: str, right: str, target: str) -> bool:
        if name in self.revoked:
            return False
        if self.is_open:
            speaks = name.startswith("@") or target.startswith("cluster:")
            return right != "enrol" and (right != "carry" or speaks)
        exact, globs, services = self._of(name, right)
        if right in BY_PREFIX:
            return target.startswith(exact)
        if target in exact or (globs is not None and globs.match(target) is not None):
            return True
        service = target.partition("/")[0]
        return right == "call" and (service in exact or (services is not None and services.match(service) is not None))

    def targets(self, name: str, right: str) -> tuple[str, ...]:
        """Return what a name may do by a right, as it is written; for topics the shortest prefixes."""
        found = sorted({each for role in self._roles_of(name) for each in role.grants.get(right, ())})
        if right not in BY_PREFIX:
            return tuple(found)
        shortest: list[str] = []
        for each in found:
            if not shortest or not each.startswith(shortest[-1]):
                shortest.append(each)
        return tuple(shortest)

    def topics(self, name: str, right: str) -> tuple[str, ...]:
        """Return the prefixes of topics that are granted: ("",) stands for all, () for none."""
        if name in self.revoked:
            return ()
        return ("",) if self.is_open else self._of(name, right)[0]

    def _roles_of(self, name: str) -> Iterator[Role]:
        return (role for role in self.roles if any(matches(name, pattern) for pattern in role.names))

    def _grants_of(
        self, name: str, right: str
    ) -> tuple[tuple[str, ...], re.Pattern[str] | None, re.Pattern[str] | None]:
        """Return the targets without wildcards, one pattern of all others, and one of services with all methods."""
        targets = self.targets(name, right)
        if right in BY_PREFIX:
            return targets, None, None
        globs = [each for each in targets if _is_glob(each)]
        services = [each for each in globs if right == "call" and "/" not in each]
        exact = tuple(each for each in targets if each not in globs)
        return exact, _joined(each for each in globs if each not in services), _joined(services)


def _role(name: str, table: Any) -> Role:
    what = f"policy role {name}"
    if not isinstance(table, dict):
        raise ConfigError(what, "is not a table")
    _known(table, ("names", *RIGHTS), what)
    names = [check_pattern(each, what) for each in _texts(table.get("names", []), f"{what} names")]
    if not names:
        raise ConfigError(what, 'has no names: names = ["render.*"]')
    grants = {right: _texts(table[right], f"{what} {right}") for right in RIGHTS if right in table}
    return Role(name, tuple(names), grants)


def _known(table: Mapping[str, Any], allowed: Iterable[str], what: str) -> None:
    for key in table:
        if key not in allowed:
            from difflib import get_close_matches

            near = get_close_matches(key, list(allowed), 1)
            raise ConfigError(what, f"no key {key!r}" + (f"; {near[0]!r} is meant?" if near else ""), key)


def _texts(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(what, f"{value!r} is not a list of texts", value)
    return tuple(value)


def _is_glob(target: str) -> bool:
    return any(character in target for character in "*?[")


def _joined(globs: Iterable[str]) -> re.Pattern[str] | None:
    patterns = [f"(?:{translate(each)})" for each in globs]
    return re.compile("|".join(patterns)) if patterns else None


def _covers(right: str, pattern: str, target: str) -> bool:
    if right in BY_PREFIX:
        return target.startswith(pattern)
    if right == "call" and "/" not in pattern:
        target = target.partition("/")[0]
    return fnmatchcase(target, pattern)
