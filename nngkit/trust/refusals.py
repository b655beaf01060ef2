"""Codes of refusals, by the reasons that are in `cuts` and errors, and what helps. Pure.

===========  ===========================================================
no-pass      a peer showed no pass
other-realm  its pass is of another realm, or of none
expired      a pass has ended; not-yet: it has not begun
revoked      the policy takes a name, or a pass by its serial number, back
binding      a certificate says no name; a message says another's
right        the policy grants it not
plain        one side speaks TLS, the other does not
version      there is no version of TLS that both speak
damaged      anything else
===========  ===========================================================
"""

from __future__ import annotations

import re
from typing import Final

DAMAGED: Final = "damaged"
ANY_TOPIC: Final = "any topic"  # in place of a target
_CODES: Final = (
    ("right", r"right: "),
    ("binding", r"binding: "),
    ("revoked", r"revoked: |.*ours is revoked"),
    ("expired", r"expired: |.*certificate has expired|.*ours is out of its time"),
    ("not-yet", r".*certificate is not yet valid"),
    ("no-pass", r"certificate refused: the peer presented none|.*refused by the peer: it requires one"),
    ("other-realm", r"other-realm: |.*(local issuer certificate|self-signed certificate|the authority of ours)"),
    ("plain", r".*does not speak TLS|.*the listener speaks TLS|.*is not an SP hello"),
    ("version", r".*no common version"),
)
ADVICE: Final = {  # what helps against a refusal, by its code
    "no-pass": "it needs a pass of this realm",
    "other-realm": "both need a pass of the same realm, or the address is wrong",
    "expired": "renew the pass, or set the clock that is wrong",
    "not-yet": "set the clock that is wrong",
    "revoked": "take it out of `revoked` in the policy, or issue a pass with another serial number",
    "binding": "issue it a pass: nngkit trust pass NAME",
    "plain": "have it listen at tls+tcp:// or wss:// with a pass",
    "version": "its TLS is too old for a pass",
}
_RIGHT: Final = re.compile(r"(?:right: (\S+) may not|(\S+): it may not) (\w+) (.+?)(?: \(at |; |: a role of |$)")


def code_of(reason: str) -> str:
    """Return the code of a reason."""
    return next((code for code, pattern in _CODES if re.match(pattern, reason)), DAMAGED)


def is_refusal(reason: str) -> bool:
    """Return True if a handshake that ends so fails again until a pass, a policy or an address is another one."""
    if reason.endswith("is not an SP hello"):
        return ": 15 03 " in reason  # an alert of TLS
    return code_of(reason) != DAMAGED


def heard(reason: str) -> bool:
    """Return True if the peer has said it, not this side."""
    return "refused by the peer" in reason or reason.startswith("bad ")


def advice(reason: str, *, shown: bool, theirs: bool) -> str:
    """Return what helps a dialer against a refusal, "" if nothing is known.

    ``shown``: it has shown a pass; ``theirs``: the listener refuses it, not it the listener.
    """
    code = code_of(reason)
    if theirs and not shown and code in ("no-pass", "other-realm"):
        return "show a pass of its realm: --trust FILE, or NNGKIT_TRUST=FILE"
    if theirs and code == "plain":
        return "dial tls+tcp:// or wss://, with a pass of its realm"
    return missing_line(reason) or ADVICE.get(code, "")


def missing_line(reason: str) -> str:
    """Return the line that a policy lacks, by a text that has a refusal by a right: "" if it has none."""
    found = _RIGHT.search(reason)
    if found is None or found[3] == "speak":
        return ""
    target = "TOPIC" if found[4] == ANY_TOPIC else found[4].replace("\\", "\\\\").replace('"', '\\"')
    return f'a role of {found[1] or found[2]} needs {found[3]} = ["{target}"]'
