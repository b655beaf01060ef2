"""``python editing.py FILE ADDRESS``: a peer with a store that dials ADDRESS and edits "minutes" forever.

Each edit appends "epoch.number;" to the text; "epoch.number" is printed once it is durable. 8 edits are in flight.
"""

from __future__ import annotations

import os
import sys

import trio

from nngkit.documents import DocumentPeer


async def main() -> None:
    async with DocumentPeer(store=sys.argv[1], dial=sys.argv[2]) as peer:
        body = peer.open("minutes").text("body")
        number = 0

        async def edit() -> None:
            nonlocal number
            while True:
                number += 1
                mark = f"{peer.me.epoch}.{number}"
                body.insert(len(body), f"{mark};")
                await peer.open("minutes").durable()
                os.write(1, f"{mark}\n".encode())

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(edit)


trio.run(main)
