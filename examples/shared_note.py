"""A shared note: three processes write one text at once, each on its own copy, and all read the same in the end.

::

    python3 examples/shared_note.py

prints::

    ada, bob and cleo hold the same text: yes
    lines of ada: 5, of bob: 5, of cleo: 5

The same by hand, in three terminals, with a cursor for everybody and a browser as the fourth::

    nngkit doc serve notes/                                     # says the address, and a link with a token
    nngkit doc edit minutes --join ADDRESS --token TOKEN        # in as many terminals as you like
"""

import multiprocessing
import sys
from multiprocessing.connection import Connection

import trio
import trio.lowlevel

from nngkit.documents import DocumentPeer

LINES = 5


async def write(name: str, others: list[str], parent: Connection) -> None:
    async with DocumentPeer(listen="tcp://127.0.0.1:0", dial=others, name=name) as peer:
        parent.send(peer.address)
        doc = peer.open("minutes")
        body = doc.text("body")
        await peer.wait_for_peers(2, timeout=10)
        for number in range(LINES):
            body.insert(0, f"{name} writes line {number}\n")  # always at the top: all meet there
            await trio.lowlevel.checkpoint()
        with trio.fail_after(10):
            while str(body).count("\n") < 3 * LINES:
                async for _ in doc.changes():
                    break
        parent.send((doc.digest(), str(body)))
        await trio.to_thread.run_sync(parent.recv)  # stay until the others have what we said


def process(name: str, others: list[str], parent: Connection) -> None:
    trio.run(write, name, others, parent)


def main() -> int:
    spawn = multiprocessing.get_context("spawn")  # NNG does not survive fork()
    addresses: list[str] = []
    started = []
    for name in ("ada", "bob", "cleo"):
        ours, theirs = spawn.Pipe()
        child = spawn.Process(target=process, args=(name, list(addresses), theirs))
        child.start()
        addresses.append(ours.recv())
        started.append((child, ours))
    ends = [ours.recv() for _, ours in started]
    for child, ours in started:
        ours.send("done")
        child.join(10)
    same = len(set(ends)) == 1
    print("ada, bob and cleo hold the same text:", "yes" if same else "NO")
    text = ends[0][1]
    print("lines of", ", of ".join(f"{name}: {text.count(name)}" for name in ("ada", "bob", "cleo")))
    return not same


if __name__ == "__main__":
    sys.exit(main())
