"""Codes of refusals, by the reasons that are in `cuts` and errors, and what helps. Pure.

===========  ===========================================================
no-pass      a peer showed no pass
other-realm  its pass is of another realm, or of none
expired      a pass has ended; not-yet: it has not begun
revoked      the policy takes a name, or a pass by its serial number, back
binding      a certificate says no name; a message says another's
right        the policy grants it not
plain        one side speaks TLS, the other does not
transport    one side speaks SP, the other WebSocket
version      there is no version of TLS that both speak
damaged      anything else
===========  ===========================================================
"""

from __future__ import annotations

import re
from typing import Final

DAMAGED: Final = "damaged"
ALERT: Final = b"\x15\x03"  # first bytes of an alert of TLS
PASS: Final = "--trust FILE, or NNGKIT_TRUST=FILE"  # how a command is given a pass
ANY_TOPIC: Final = "any topic"  # in place of a target
_CODES: Final = (
    ("right", r"right: "),
    ("binding", r"binding: "),
    ("revoked", r"revoked: |.*ours is revoked"),
    ("expired", r"expired: |.*certificate has expired|.*ours is out of its time"),
    ("not-yet", r".*certificate is not yet valid"),
    ("no-pass", r"certificate refused: the peer presented none|.*refused by the peer: it requires one"),
    ("other-realm", r"other-realm: |.*(local issuer certificate|self-signed certificate|the authority of ours)"),
    ("plain", r".*does not speak TLS|.*the peer speaks (TLS|\w+ without TLS)"),
    ("transport", r".*the peer speaks (SP|HTTP)"),
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
_FIRST: Final = {  # bytes of a peer, by what it speaks: a handshake or an alert of TLS, a hello of SP or its refusal
    "TLS": (b"\x16\x03", ALERT),
    "SP": (b"\0SP\0", b"\0NO\0"),
    "HTTP": (b"HTTP/", b"GET ", b"HEAD ", b"POST ", b"PUT "),
}
_SPEAKS: Final = re.compile(r"the peer speaks (\w+)")
_SCHEMES: Final = {(False, False): "tcp", (True, False): "tls+tcp", (False, True): "ws", (True, True): "wss"}
_RIGHT: Final = re.compile(r"(?:right: (\S+) may not|(\S+): it may not) (\w+) (.+?)(?: \(at |; |: a role of |$)")


def code_of(reason: str) -> str:
    """Return the code of a reason."""
    return next((code for code, pattern in _CODES if re.match(pattern, reason)), DAMAGED)


def is_refusal(reason: str) -> bool:
    """Return True if a handshake that ends so fails again until a pass, a policy or an address is another one."""
    return code_of(reason) != DAMAGED


def ends_with_a_pass(reason: str) -> bool:
    """Return True if this side refuses the peer for the time of its pass: that ends when the peer has a new one."""
    return code_of(reason) in ("expired", "not-yet") and not heard(reason)


def spoken(first: bytes) -> str:
    """Return what a peer speaks whose first bytes are these: TLS, SP, HTTP; "" if that is not known."""
    return next((what for what, starts in _FIRST.items() if first.startswith(starts)), "")


def heard(reason: str) -> bool:
    """Return True if the peer has said it, not this side."""
    return "refused by the peer" in reason or reason.startswith("bad ")


def advice(reason: str, address: str, *, shown: bool, theirs: bool) -> str:
    """Return what helps a dialer of ``address`` against a refusal, "" if nothing is known.

    ``shown``: it has shown a pass; ``theirs``: the listener refuses it, not it the listener.
    """
    code = code_of(reason)
    if theirs and not shown and code in ("no-pass", "other-realm"):
        return f"show a pass of its realm: {PASS}"
    if (found := _SPEAKS.search(reason)) is not None:
        return _dialed(found[1], code, address, shown=shown)
    return missing_line(reason) or ADVICE.get(code, "")


def _dialed(speaks: str, code: str, address: str, *, shown: bool) -> str:
    """Return what helps a dialer of ``address``, where something else is spoken."""
    scheme, tls, web = _read(address)
    if code == "transport":
        other = _moved(address, tls=tls, web=not web)
        return f"dial {other}, with the path of its URL, or another port" if speaks == "HTTP" else f"dial {other}"
    if not tls:
        other = _moved(address, tls=True, web=web)
        return f"dial {other}, with a pass of its realm ({PASS}) or the authority of its certificate (--cacert FILE)"
    there = f"have it listen at {scheme}://" + (" with a pass" if shown else f", or dial {_moved(address, web=web)}")
    return there if web or speaks == "SP" else f"{there}, or dial another port"


def listened(reason: str, bound: str, peer: str) -> str:
    """Return what a listener at ``bound`` logs of a ``peer`` that speaks something else; "" for other reasons."""
    found = _SPEAKS.search(reason)
    if found is None:
        return ""
    scheme, _, web = _read(bound)
    ours = "TLS" if reason.endswith("without TLS") else "HTTP" if web else "SP"
    also = f", or listen at {_SCHEMES[True, web]}:// with a pass ({PASS})" if found[1] == "TLS" else ""
    return f"{bound}: {peer} speaks {found[1]}, not {ours}: have it dial {scheme}://{also}"


def _read(url: str) -> tuple[str, bool, bool]:
    """Return the scheme of a URL, whether it is of TLS, and of WebSocket."""
    scheme = url.partition("://")[0]
    return scheme, scheme.startswith(("tls", "wss")), scheme.startswith("ws")


def _moved(url: str, *, tls: bool = False, web: bool) -> str:
    """Return the URL of the same host and port with another scheme."""
    scheme, _, rest = url.partition("://")
    version = scheme[-1] if scheme[-1] in "46" else ""
    return f"{_SCHEMES[tls, web]}{version}://{rest if web else rest.partition('/')[0]}"


def missing_line(reason: str) -> str:
    """Return the line that a policy lacks, by a text that has a refusal by a right: "" if it has none."""
    found = _RIGHT.search(reason)
    if found is None or found[3] == "speak":
        return ""
    target = "TOPIC" if found[4] == ANY_TOPIC else found[4].replace("\\", "\\\\").replace('"', '\\"')
    return f'a role of {found[1] or found[2]} needs {found[3]} = ["{target}"]'
