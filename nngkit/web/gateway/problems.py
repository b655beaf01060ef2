"""Errors as responses: application/problem+json (RFC 9457), and which status an error of nngkit has. Pure.

::

    {"title": "Gateway Timeout", "status": 504, "detail": "pay: no reply in 5.0 s", "code": "timed-out"}

=====================================================  ======  ====================================================
error                                                  status  code
=====================================================  ======  ====================================================
no such service, no such method                        404     not-found
no provider of it is up, or it left before the call    503     unavailable, with Retry-After
the provider is busy, or ends                          503     busy, with Retry-After
the deadline has passed                                504     timed-out
arguments that the codec or the provider refuses       400     bad-request
the policy does not grant it                           403     denied
over a limit of size                                   413     too-large
the handler raised                                     500     failed
the handler's own word                                 422     that word
the provider left during the call, or replied badly    502     bad-gateway
=====================================================  ======  ====================================================

`ran`: false if the handler has surely not run, so that the client may send it again.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from nngkit.errors import (
    AccessDenied,
    BadMessage,
    Broken,
    Closed,
    Full,
    JobFailed,
    Lost,
    NngkitError,
    NotFound,
    NotStored,
    RemoteError,
    ServiceNotFound,
    TimedOut,
    TooLarge,
)
from nngkit.web.exchange import REASONS, Headers, Response

KIND: Final = "application/problem+json"
RETRY_AFTER: Final = 1  # seconds: a provider that restarts, or another one, is found in about that time
_OF_KIND: Final = {  # of the errors that a server of calls makes itself, see ErrorReply
    "failed": (500, "failed"),
    "busy": (503, "busy"),
    "draining": (503, "unavailable"),
    "unhealthy": (503, "unavailable"),
    "no method": (404, "not-found"),
    "bad request": (400, "bad-request"),
    "access denied": (403, "denied"),
    "deadline": (504, "timed-out"),
    "cancelled": (503, "unavailable"),
    "too large": (502, "bad-gateway"),
    "gone": (502, "bad-gateway"),
}


class Problem(Exception):
    """A request that has no other answer. `more`: further members of the JSON object."""

    def __init__(self, status: int, code: str, detail: str, *, headers: Headers = (), **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers
        self.more = more

    def fields(self) -> dict[str, Any]:
        """Return the members of the JSON object."""
        fields = {"title": REASONS[self.status], "status": self.status, "detail": self.detail, "code": self.code}
        return fields | self.more

    def response(self) -> Response:
        """Return the response."""
        headers = (*self.headers, ("X-Content-Type-Options", "nosniff"))
        if self.status == 503:
            headers += (("Retry-After", str(RETRY_AFTER)),)
        return Response.of(self.status, KIND, shown(self.fields()), headers)


def problem_of(error: NngkitError) -> Problem:
    """Return an error of a call, of a job or of a message as a problem."""
    match error:
        case RemoteError():
            status, code = _OF_KIND.get(error.kind, (422, error.kind))
            more: dict[str, Any] = {} if error.data is None else {"data": error.data}
            if error.error:
                more["error"] = error.error
            return Problem(status, code, error.message, ran=error.ran, **more)
        case JobFailed():
            return Problem(500, error.outcome, str(error))
        case TimedOut():
            return Problem(504, "timed-out", str(error))
        case ServiceNotFound():
            return Problem(503, "unavailable", str(error), ran=False)
        case NotFound():
            return Problem(404, "not-found", str(error))
        case Full() | NotStored():
            return Problem(503, "busy", str(error))
        case Lost() if not error.sent:
            return Problem(503, "unavailable", str(error), ran=False)
        case AccessDenied():
            return Problem(403, "denied", str(error), ran=False)
        case TooLarge():
            return Problem(413, "too-large", str(error))
        case BadMessage() | Broken():
            return Problem(502, "bad-gateway", str(error))
        case Closed():
            return Problem(503, "unavailable", "the gateway ends")
        case ValueError():  # ConfigError: an unusable argument
            return Problem(400, "bad-request", str(error), ran=False)
        case _:
            return Problem(500, "failed", str(error))


def shown(value: object) -> bytes:
    """Return a value as JSON: bytes as base64, keys as text, and what JSON has not as its text."""
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except (TypeError, ValueError, UnicodeEncodeError, RecursionError):
        return msgspec.json.encode({"unshown": ascii(value)[:1024]})
