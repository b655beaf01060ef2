"""SP over WebSocket as a pure state machine: bytes in, messages out, as wsproto does for WebSocket itself.

::

    client = ClientMachine("push.sp.nanomsg.org", "/", "127.0.0.1:9000", limit=1 << 20, mask=os.urandom)
    server = ServerMachine("push.sp.nanomsg.org", "/", "127.0.0.1", limit=1 << 20)
    messages = []
    server.feed(b"".join(client.to_send))       # the request; `to_send` holds bytes to send now
    server.take(messages)
    if server.awaits_accept:                    # valid; server.request has path, origin and host
        server.accept()                         # or refuse()
    client.feed(b"".join(server.to_send))
    client.take(messages)                       # client.open from here on
    client.feed(b"".join(server.frames([b"work", b"more work"])))
    client.take(messages)                       # [b"work", b"more work"]

One SP message is one binary WebSocket message. There is no SP hello: the subprotocol names the listener's protocol, and
both sides state the same one (nanomsg, sp-websocket-mapping-01)::

    pair (PAIR0)  pair1  pub  sub  req  rep  push  pull  surveyor  respondent  bus      followed by .sp.nanomsg.org

`_ws_machine.py` parses what follows the handshake (its docstring says what a signal handler may interrupt),
`_ws_frames.py` has the frames, `_ws_handshake.py` the HTTP of both sides.

Pure: no socket, no clock, no thread; random bytes come from ``mask``. Raises BadMessage, TooLarge and
AccessDenied of ``nngkit.errors``.
"""

from __future__ import annotations

from base64 import b64encode

from wsproto.connection import ConnectionType

from nngkit.errors import AccessDenied, BadMessage
from nngkit.protocols._wire.ws_frames import MASKED
from nngkit.protocols._wire.ws_handshake import (
    ANY_HOST,
    Refusal,
    Request,
    acceptance,
    ask,
    bare_host,
    judge_request,
    judge_response,
    refusal,
)
from nngkit.protocols._wire.ws_machine import Machine, Mask
from nngkit.protocols.sp import APART, HEADROOM
from nngkit.trust.refusals import spoken

__all__ = ["ClientMachine", "Machine", "Request", "ServerMachine"]


class ServerMachine(Machine):
    """The listener's side: accepts requests for ``path``, ``host`` and ``subprotocol``, its own protocol's name.

    ``path`` is compared whole, without the query; the default is ``/``. ``host``: the required ``Host:``, without the
    port; None and addresses that mean every interface accept every host.
    """

    _side = ConnectionType.SERVER
    _mask_in = MASKED
    _mask_out = 0

    def __init__(
        self, subprotocol: str, path: str, host: str | None, limit: int, *, headroom: int = HEADROOM, large: int = APART
    ) -> None:
        super().__init__(limit, headroom, large)
        self._subprotocol = subprotocol
        self._path = path or "/"
        host = bare_host(host or "")
        self._host = None if host in ANY_HOST else host
        self._token = b""

    def _handshake(self) -> bool:
        try:
            if self._parts and self._parts[0][0] <= 0x20:  # SP or TLS, which have no end of line to wait for
                raise _other(self._parts[0])
            split = self._split_head()
            if split is None:
                return False
            request, token = judge_request(split[0], self._subprotocol, self._path, self._host)
        except Refusal as refused:
            error = BadMessage("WebSocket handshake", refused.why)
            self._fail(refused.status)
            raise error from None
        rest = split[1]
        parts: list[bytes | bytearray] = [rest] if rest else []
        have = len(rest)
        # no calls from here: see the docstring of _ws_machine.py
        self._token = token
        self._parts = parts
        self._have = have
        self._need = 2
        self.request = request
        self.awaits_accept = True
        return False

    def _fail(self, status: int) -> None:
        answer = refusal(status)
        # no calls from here
        self._parts = []
        self._have = 0
        self.awaits_accept = False
        self.ended = True
        self.to_send += (answer,)

    def accept(self) -> None:
        """Accept the client: messages may flow. No effect unless ``awaits_accept``."""
        if not self.awaits_accept:
            return
        answer = acceptance(self._token, self._subprotocol)
        # no calls from here
        self.awaits_accept = False
        self._more = self._have > 0
        self.open = True
        self.to_send += (answer,)

    def refuse(self) -> None:
        """Answer the client with HTTP 403. No effect unless ``awaits_accept``."""
        if self.awaits_accept:
            self._fail(403)


class ClientMachine(Machine):
    """The dialer's side: requests ``path`` and ``subprotocol``, the listener's protocol's name.

    ``host``: its ``Host:``, with the port. ``mask``: returns a given number of unpredictable bytes, as ``os.urandom``.
    Raises ConfigError for a path or host that is invalid in HTTP.
    """

    _side = ConnectionType.CLIENT
    _mask_in = 0
    _mask_out = MASKED

    def __init__(
        self,
        subprotocol: str,
        path: str,
        host: str,
        limit: int,
        mask: Mask,
        *,
        headroom: int = HEADROOM,
        large: int = APART,
    ) -> None:
        super().__init__(limit, headroom, large, mask)
        self._subprotocol = subprotocol
        self._key = b64encode(mask(16))
        self._asked, said = ask(subprotocol, path, host, self._key)
        self.to_send.append(said)

    def _handshake(self) -> bool:
        try:
            start = bytes(self._parts[0][:7]) if self._parts else b""
            if not b"HTTP/1.".startswith(start):
                raise _other(start)
            split = self._split_head()
            if split is None:
                return False
            judge_response(split[0], self._asked, self._key, self._subprotocol)
        except (Refusal, AccessDenied) as refused:
            error: Exception = refused
            if isinstance(refused, Refusal):
                error = BadMessage("WebSocket handshake", refused.why)
            # no calls from here
            self._parts = []
            self._have = 0
            self.ended = True
            raise error from None
        rest = split[1]
        parts: list[bytes | bytearray] = [rest] if rest else []
        have = len(rest)
        # no calls from here
        self._parts = parts
        self._have = have
        self._need = 2
        self._more = have > 0
        self.open = True
        return True


def _other(first: bytes | bytearray) -> Refusal:
    """Return the refusal of a peer that does not speak HTTP."""
    what = spoken(bytes(first[:8]))
    return Refusal(400, f"the peer speaks {what}" if what else "not HTTP")
