"""Answers to probes of load balancers and supervisors, /healthz and /readyz: of doors and of the gateway. Pure."""

from __future__ import annotations

import json
from typing import Final

from nngkit.web.openapi import JSON, TEXT, Operation, record

HEALTHY: Final = b'{"status": "ok"}'

_STATUS: Final = record({"status": TEXT, "why": TEXT}, "why")
HEALTHZ: Final = Operation("Whether the process answers.", {200: {JSON: _STATUS}})
READYZ: Final = Operation(
    "Whether it does its work.", {200: {JSON: _STATUS}, 503: {JSON: _STATUS}}, told={503: "Not yet, and why."}
)


def readiness(why: str | None) -> tuple[int, bytes]:
    """Return status and body of /readyz. `why` it is not ready, or None."""
    if why is None:
        return 200, b'{"status": "ready"}'
    return 503, json.dumps({"status": "not ready", "why": why}).encode()
