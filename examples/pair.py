"""PAIR: two players and nobody else; each move goes one way, its answer the other.

::

    python3 examples/pair.py

prints::

    white: f3
    black: e5
    white: g4
    black: Qh4#
    white: I resign

A pair is flow-controlled and in order, both ways at once. A third peer that dials the board is refused for as long as
the two are connected. Pair0 speaks with nanomsg, Pair1 with NNG's own newer form; they do not mix.
"""

import trio

from nngkit.protocols import Pair1


async def white(board: Pair1) -> None:
    for move in (b"f3", b"g4", b"I resign"):
        await board.asend(move)
        if move != b"I resign":
            print("black:", (await board.arecv()).decode())


async def black(board: Pair1) -> None:
    answers = {b"f3": b"e5", b"g4": b"Qh4#"}
    async for move in board:
        print("white:", move.decode())
        if move not in answers:
            return
        await board.asend(answers[move])


async def main() -> None:
    async with (
        Pair1(listen="tcp://127.0.0.1:0", recv_timeout=5) as here,
        Pair1(dial=here.address, recv_timeout=5) as there,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(white, here)
        nursery.start_soon(black, there)


trio.run(main)
