"""The extra `trust`: a realm, its passes, and a connection of two of them."""

from __future__ import annotations

from nngkit.cli.main import main
from nngkit.protocols import Pull, Push
from nngkit.trust import Trust, read

assert main(["trust", "new", "farm"]) == 0
for name in ("hub", "render.w1"):
    assert main(["trust", "pass", name]) == 0
assert read("render.w1.pass").name == "render.w1"
with (
    Pull(listen="tls+tcp://127.0.0.1:0", trust=Trust("hub.pass")) as pull,
    Push(dial=pull.address, trust=Trust("render.w1.pass")) as push,
):
    push.send(b"alone", timeout=20)
    assert pull.recv(timeout=20) == b"alone"
    assert [pipe.who for pipe in pull.pipes] == ["render.w1"]
assert main(["trust", "revoke", "render.w1"]) == 0
