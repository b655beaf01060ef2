"""Trust: a realm signs passes, the peers prove their names by them, and a policy says what each name may do.

::

    python3 examples/trust.py

prints::

    render.w1 asks quotes: 42
    desk.ada asks quotes: right: desk.ada may not call quotes
    desk.eve has a pass of another realm: certificate refused: self-signed certificate in certificate chain
    render.w1 is revoked: revoked: render.w1

The files are those of `nngkit trust new farm`, `pass`, `sign` and `revoke`. The policy lies beside the server's pass,
and is read again within a second of a change: a revoked peer leaves, and stays out.
"""

import re
import tempfile
from pathlib import Path

import trio

from nngkit.errors import AccessDenied
from nngkit.protocols import Rep, Req
from nngkit.trust import Folder, Realm, Trust, write

POLICY = """\
realm = "farm"
version = 2
revoked = []

[role.workers]
names = ["render.*"]
call = ["quotes"]
"""


async def serve(rep: Rep, trust: Trust) -> None:
    async for request in rep:
        assert request.pipe is not None
        try:
            trust.require(request.pipe.who, "call", "quotes")
        except AccessDenied as denied:
            await request.areply(str(denied).encode())
        else:
            await request.areply(b"42")


async def reason(req: Req, pattern: str) -> str:
    """Wait until the connection is refused for a reason that matches."""
    for _ in range(200):
        if found := [cut.reason for cut in req.cuts if re.search(pattern, cut.reason)]:
            return found[-1]
        await trio.sleep(0.05)
    raise TimeoutError(pattern)


async def main(folder: Path) -> None:
    farm = Folder.new(folder, "farm")
    (folder / "policy.toml").write_text(POLICY)
    farm.sign()
    (folder / "other").mkdir()

    def own(name: str) -> Trust:
        write(folder / f"{name}.pass", farm.realm.issue(name, days=1))
        return Trust(folder / f"{name}.pass")

    quotes = own("quotes")
    async with trio.open_nursery() as nursery, Rep(listen="tls+tcp://127.0.0.1:0", trust=quotes) as rep:
        nursery.start_soon(serve, rep, quotes)
        async with (
            Req(dial=rep.address, trust=own("render.w1"), reconnect=0.05) as worker,
            Req(dial=rep.address, trust=own("desk.ada")) as desk,
        ):
            for name, req in (("render.w1", worker), ("desk.ada", desk)):
                print(f"{name} asks quotes: {(await req.arequest(b'?', timeout=10)).decode()}")
            write(folder / "other" / "eve.pass", Realm.new("farm").issue("desk.eve"))
            with Req(dial=rep.address, trust=Trust(folder / "other" / "eve.pass")) as eve:
                print("desk.eve has a pass of another realm:", await reason(eve, "refused"))
            farm.revoke("render.w1")
            print("render.w1 is revoked:", (await reason(worker, "revoked")).partition(" (")[0])
        nursery.cancel_scope.cancel()


with tempfile.TemporaryDirectory() as temporary:
    trio.run(main, Path(temporary))
