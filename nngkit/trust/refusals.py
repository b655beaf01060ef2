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
_CODES: Final = (
    ("right", r"right: "),
    ("binding", r"binding: "),
    ("revoked", r"revoked: |.*ours is revoked"),
    ("expired", r"expired: |.*certificate has expired|.*ours is out of its time"),
    ("not-yet", r".*certificate is not yet valid"),
    ("no-pass", r"certificate refused: the peer presented none|.*refused by the peer: it requires one"),
    ("other-realm", r"other-realm: |.*(local issuer certificate|self-signed certificate|the authority of ours)"),
    ("plain", r".*does not speak TLS|.*is not an SP hello"),
    ("version", r".*no common version"),
)
_RIGHT: Final = re.compile(r"right: (\S+) may not (\w+) (.*)")


def code_of(reason: str) -> str:
    """Return the code of a reason."""
    return next((code for code, pattern in _CODES if re.match(pattern, reason)), DAMAGED)


def missing_line(reason: str) -> str:
    """Return the line of the policy that a refusal by a right lacks, as `call = ["pay"]`; "" if it is none."""
    found = _RIGHT.fullmatch(reason)
    if found is None or found[2] == "speak":
        return ""
    target = found[3].replace("\\", "\\\\").replace('"', '\\"')
    return f'a role of {found[1]} needs {found[2]} = ["{target}"]'
