"""A socket class of one's own and its acceptance test; the page docs/testing-your-code.md includes the sections."""

# --8<-- [start:brick]
from typing import Any

from nngkit.protocols import Rep, Req
from nngkit.testing import Background, Pattern, Wire, check_brick


class FallbackReq(Req):
    """A Req whose requests go to `fallback` while its own connections are all down."""

    def __init__(self, *, fallback: str | None = None, **options: Any) -> None:
        shared = {name: value for name, value in options.items() if name not in ("listen", "dial")}
        self._fallback = Req(dial=fallback, **shared) if fallback is not None else None
        super().__init__(**options)

    def request(self, data: Any, **options: Any) -> bytes:
        return Req.request(self._target(), data, **options)

    async def arequest(self, data: Any, **options: Any) -> bytes:
        return await Req.arequest(self._target(), data, **options)

    def close(self, *linger: Any) -> None:
        if self._fallback is not None:
            self._fallback.close(*linger)
        super().close(*linger)

    async def aclose(self, *linger: Any) -> None:
        if self._fallback is not None:
            await self._fallback.aclose(*linger)
        await super().aclose(*linger)

    def _target(self) -> Req:
        return self if self._fallback is None or self.pipes else self._fallback


# --8<-- [end:brick]

# --8<-- [start:acceptance]
PATTERN = Pattern("fallback request", FallbackReq, Rep, answered=True, verb="request")


def test_fallback_req_behaves_as_a_socket_of_nngkit() -> None:
    check_brick(PATTERN, wires=[Wire("tcp"), Wire("inproc")])


def test_requests_go_to_the_fallback_while_the_first_server_is_away() -> None:
    with Rep(listen="inproc://second") as rep, FallbackReq(dial="inproc://first", fallback=rep.address) as req:
        rep.wait_for_peers(timeout=5)
        reply = Background(req.request, b"question", timeout=5.0)
        rep.recv(timeout=5).reply(b"answer")
        assert reply.result() == b"answer"


# --8<-- [end:acceptance]
test_fallback_req_behaves_as_a_socket_of_nngkit()
test_requests_go_to_the_fallback_while_the_first_server_is_away()
print("passed")  # passed
