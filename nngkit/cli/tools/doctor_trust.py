"""`nngkit doctor URL --trust w1.pass`: which peer is there, until when, whether it lets us in, and what we may.

Like the doctor without a pass it is no peer: it reads the greeting, and sends nothing above TLS.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

from nngkit.cli.diagnosis import (
    EXPIRED,
    NOT_YET,
    UNKNOWN_AUTHORITY,
    Address,
    Connected,
    Diagnosis,
    Finding,
    TlsTrouble,
    diagnose,
    problem,
)
from nngkit.cli.probe import Credentials, certificate_at, look_with
from nngkit.cli.streams.output import utc
from nngkit.errors import AccessDenied, ConfigError
from nngkit.trust import Trust, passes
from nngkit.trust.policy import RIGHTS
from nngkit.trust.refusals import ADVICE, code_of, missing_line

REFUSED: Final = b"\0NO\0"  # in place of a greeting, then a length (u16) and the reason
_ALERTS: Final = (
    ("UNKNOWN_CA", "other-realm", "does not know the realm of {me}"),
    ("CERTIFICATE_EXPIRED", "expired", "says that the pass of {me} is out of its time: {ours}"),
    ("BAD_CERTIFICATE", "not-yet", "says that the pass of {me} is not valid, or not yet: {ours}"),
    ("PROTOCOL_VERSION", "version", "speaks no version of TLS that is admitted: 1.3"),
    ("UNSUPPORTED_PROTOCOL", "version", "speaks no version of TLS that is admitted: 1.3"),
    ("WRONG_VERSION_NUMBER", "plain", "does not speak TLS"),
    ("RECORD_LAYER", "plain", "does not speak TLS"),
)


def examine(address: Address, pass_path: str, mine: str | None, timeout: float) -> Diagnosis:
    """Diagnose the listener with a pass. Raises ConfigError for a pass or policy that cannot be used."""
    trust = Trust(pass_path)
    if not address.tls:
        raise ConfigError("--trust", f"{address.url}: passes are shown at tls+tcp:// and wss:// addresses")
    context = trust.context(server=False)
    seen = look_with(address, mine, context, timeout)
    if seen.connected is not Connected.YES:
        return diagnose(seen, mine)
    findings = [Finding("ok", "connected", "accepts connections")]
    peer = None
    refused = _refused(seen.greeting)
    shown, _ = certificate_at(address, context, timeout)
    if shown:
        findings.append(_who(trust, shown))
    if seen.tls is not None:
        findings.append(_no_handshake(seen.tls, trust, address, timeout))
    elif refused:
        advice = missing_line(refused) or ADVICE.get(code_of(refused))
        findings.append(problem(code_of(refused), f"it refuses {trust.name}: {refused}", advice))
    else:
        last = diagnose(seen, mine)
        peer = last.peer
        findings.append(last.findings[-1])
    findings.append(_rights(trust))
    return Diagnosis.of(findings, peer)


def _refused(greeting: bytes) -> str:
    if not greeting.startswith(REFUSED):
        return ""
    return greeting[6 : 6 + int.from_bytes(greeting[4:6], "big")].decode(errors="replace")


def _who(trust: Trust, shown: dict[str, Any]) -> Finding:
    """Name the peer by its certificate."""
    uris = [value for kind, value in shown.get("subjectAltName", ()) if kind == "URI"]
    try:
        name = trust.name_of(uris, str(shown.get("serialNumber", "")).lower())
    except AccessDenied as denied:
        code = code_of(str(denied))
        return problem(code, f"{trust.name} does not let it in: {denied}", ADVICE.get(code))
    until = utc(ssl.cert_time_to_seconds(shown["notAfter"]))
    return Finding(
        "ok", "who", f"{name} of {trust.realm} is there, until {until}, serial {shown['serialNumber'].lower()}"
    )


def _no_handshake(trouble: TlsTrouble, trust: Trust, address: Address, timeout: float) -> Finding:
    if trouble.verify is not None:
        code = {EXPIRED: "expired", NOT_YET: "not-yet"}.get(trouble.verify, "other-realm")
        what = f"its certificate is refused: {trouble.text}"
        if code != "other-realm":
            _, certificate = certificate_at(address, Credentials().context(check=False), timeout)
            what += f": {passes.clocks(certificate)}" if certificate else ""
        elif trouble.verify not in UNKNOWN_AUTHORITY:
            code = "damaged"
        return problem(code, what, ADVICE.get(code))
    own = passes.clocks(ssl.PEM_cert_to_DER_cert(trust.own.chain))
    for alert, code, text in _ALERTS:
        if alert in trouble.reason:
            return problem(code, f"it {text.format(me=trust.name, ours=own)}", ADVICE.get(code))
    return problem("damaged", f"the TLS handshake fails: {trouble.text}", None)


def _rights(trust: Trust) -> Finding:
    policy = trust.policy
    if policy.is_open:
        return Finding(
            "ok", "may", f"{trust.name} may do everything but carry and enrol: there is no policy beside its pass"
        )
    granted = [
        f"{right} {', '.join(map(_target, found))}" for right in RIGHTS if (found := policy.targets(trust.name, right))
    ]
    said = f"by version {policy.version} of the policy"
    if policy.is_revoked(trust.name, trust.own.serial):
        return problem("revoked", f"{trust.name} is revoked {said}", ADVICE["revoked"])
    if not granted:
        return Finding("warning", "may", f"{trust.name} may do nothing {said}", "give it a role")
    return Finding("ok", "may", f"{trust.name} may {'; '.join(granted)} ({said})")


def _target(target: str) -> str:
    return target or "everything"
