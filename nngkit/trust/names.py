"""Names of peers: of whom a pass speaks, and what a peer may call itself.

::

    render.w1          a name: lower-case words, general to particular, joined by dots
    render.w1:2        an instance of it, as of several processes with one pass
    render.*           a pattern, as in policies: of names, never of those below
    @local, @uid.1000, @anyone     of connections without a pass: loopback, a Unix socket, an open listener

In a certificate a name is its one URI, in the form of SPIFFE: ``spiffe://farm/render/w1``. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Final

from nngkit.errors import AccessDenied, ConfigError

MOST: Final = 40  # bytes of a name: with an instance it fits every id on the wire
LOCAL: Final = "@local"
ANYONE: Final = "@anyone"

_WORD = r"[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?"
_NAME = re.compile(rf"{_WORD}(?:\.{_WORD})*")
_INSTANCE = re.compile(r"[A-Za-z0-9_-]{1,20}")
_REALM = re.compile(rf"{_WORD}(?:\.{_WORD})*")
_PATTERN = re.compile(r"[a-z0-9_.*?\[\]!@-]+")
_SCHEME: Final = "spiffe://"


def check(name: str, what: str = "name") -> str:
    """Return ``name``. Raises ConfigError if it is none."""
    if len(name) > MOST or not _NAME.fullmatch(name):
        raise ConfigError(what, f"{name!r} is not lower-case words with dots, of at most {MOST} characters", name)
    return name


def check_realm(realm: str) -> str:
    """Return ``realm``, a name too. Raises ConfigError."""
    if len(realm) > MOST or not _REALM.fullmatch(realm):
        raise ConfigError("realm", f"{realm!r} is not lower-case words with dots, of at most {MOST} characters", realm)
    return realm


def uid(number: int) -> str:
    """Return the name of a connection on a Unix socket from a user."""
    return f"@uid.{number}"


def owns(name: str, said: str) -> bool:
    """Return True if a peer of this name may call itself ``said``: by its name, or as an instance of it."""
    if said == name:
        return True
    own, colon, instance = said.partition(":")
    return colon == ":" and own == name and _INSTANCE.fullmatch(instance) is not None


def uri_of(realm: str, name: str) -> str:
    """Return the URI of a name in certificates."""
    return f"{_SCHEME}{realm}/{name.replace('.', '/')}"


def name_in(uris: Sequence[str], realm: str) -> str:
    """Return the name that a certificate's URIs say. Raises AccessDenied, which says why there is none."""
    if len(uris) != 1:
        raise AccessDenied(f"binding: the certificate has {len(uris) or 'no'} URIs; a pass has one")
    where, _, path = uris[0].removeprefix(_SCHEME).partition("/")
    name = path.replace("/", ".")
    if not uris[0].startswith(_SCHEME) or "." in path or len(name) > MOST or not _NAME.fullmatch(name):
        raise AccessDenied(f"binding: {uris[0]!r} is no name")
    if where != realm:
        raise AccessDenied(f"other-realm: the pass is of realm {where!r}, and not of {realm!r}")
    return name


def check_pattern(pattern: str, what: str) -> str:
    """Return ``pattern``, a glob of names. Raises ConfigError."""
    if not _PATTERN.fullmatch(pattern):
        raise ConfigError(what, f"{pattern!r} is not a pattern of names, as render.*", pattern)
    return pattern


_SPECIAL: Final = re.compile(r"[*?[]")


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


def matches(name: str, pattern: str) -> bool:
    """Return True if a pattern is of this name. Names of connections without a pass match only as they are written."""
    if name.startswith("@") or pattern.startswith("@"):
        return name == pattern
    special = _SPECIAL.search(pattern)
    if special is None:
        return name == pattern
    if special.end() == len(pattern) and pattern[-1] == "*":  # most are so: a policy has thousands, too many to compile
        return name.startswith(pattern[:-1])
    return _compiled(pattern).match(name) is not None
