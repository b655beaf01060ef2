"""Trust: a realm signs passes, the peers prove their names by them, and a policy says what each name may do.

::

    python3 examples/trust.py

prints::

    render.w1 asks for a quote: 42, for render.w1
    desk.ada asks for the last one: 41, for desk.ada
    desk.ada asks for a quote: quotes refused desk.ada: it may not call quotes/now
    desk.eve has a pass of another realm: certificate refused: self-signed certificate in certificate chain
    render.w1 is revoked: revoked: render.w1

The server compares each call with the policy; its handlers see who calls. The files are those of `nngkit trust new
farm`, `pass`, `sign` and `revoke`. The policy lies beside the server's pass, and is read again within a second of a
change: a revoked peer leaves, and stays out.
"""

import logging
import re
import tempfile
from pathlib import Path

import trio

from nngkit.calls import Client, Server
from nngkit.calls.handlers import Calling
from nngkit.errors import AccessDenied
from nngkit.protocols import Req
from nngkit.trust import Folder, Realm, Trust, write

POLICY = """\
realm = "farm"
version = 2
revoked = []

[role.quotes]
names = ["quotes"]
offer = ["quotes"]          # callers believe it

[role.workers]
names = ["render.*"]
call = ["quotes"]           # all methods

[role.desks]
names = ["desk.*"]
call = ["quotes/last"]
"""


def quoting(trust: Trust) -> Server:
    server = Server("quotes", listen="tls+tcp://127.0.0.1:0", trust=trust, codec="cbor", discovery=())

    @server.method
    async def now(body: None, calling: Calling) -> str:
        return f"42, for {calling.who}"

    @server.method
    async def last(body: None, calling: Calling) -> str:
        return f"41, for {calling.who}"

    return server


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

    worker, desk = own("render.w1"), own("desk.ada")
    async with quoting(own("quotes")) as server:
        async with Client("quotes", addresses=server.address, trust=worker, codec="cbor", timeout=10) as quotes:
            print("render.w1 asks for a quote:", await quotes.request(None, method="now"))
        async with Client("quotes", addresses=server.address, trust=desk, codec="cbor", timeout=10) as quotes:
            print("desk.ada asks for the last one:", await quotes.request(None, method="last"))
            try:
                await quotes.request(None, method="now")
            except AccessDenied as denied:
                print("desk.ada asks for a quote:", denied)
        write(folder / "other" / "eve.pass", Realm.new("farm").issue("desk.eve"))
        with Req(dial=server.address, trust=Trust(folder / "other" / "eve.pass")) as eve:
            print("desk.eve has a pass of another realm:", await reason(eve, "refused"))
        with Req(dial=server.address, trust=worker, reconnect=0.05) as req:
            await req.await_for_peers(1, 10)
            farm.revoke("render.w1")
            print("render.w1 is revoked:", (await reason(req, "revoked")).partition(" (")[0])


logging.getLogger("nngkit").addHandler(logging.NullHandler())  # the server logs what it refuses, too
with tempfile.TemporaryDirectory() as temporary:
    trio.run(main, Path(temporary))
