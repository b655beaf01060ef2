"""The journal: what was received is kept, read by offset and time, and sent once more.

::

    python3 examples/journal.py

prints::

    stored: offsets 0 to 2 of partition 0
    the same request again: offsets 3 to 5
    read: 6 records, 3 of them distinct
    sent once more: order 1, order 2, order 3

Who sends orders knows that they are on the disk when the answer comes. Whoever gets no answer asks again, so records
may be there twice: each carries the request's id, and `distinct=True` drops the second ones. From a shell the recorder
is `nngkit record journal --stream 'orders=rep listen=tcp://127.0.0.1:7000'`.
"""

import tempfile

import trio

from nngkit.journal import Recorder, encode_request, parse_reply, read, replay
from nngkit.protocols import Pull, Push, Rep, Req

ORDERS = [b"order 1", b"order 2", b"order 3"]


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = f"{folder}/journal"
        async with (
            Recorder(journal) as recorder,
            Rep(listen="tcp://127.0.0.1:0") as rep,
            Req(dial=rep.address) as req,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(recorder.record, rep, "orders")
            request = encode_request(b"request 7", ORDERS)
            stored = parse_reply(await req.arequest(request, timeout=10))
            print(f"stored: offsets {stored.first} to {stored.end - 1} of partition {stored.partition}")
            again = parse_reply(await req.arequest(request, timeout=10))
            print(f"the same request again: offsets {again.first} to {again.end - 1}")
            nursery.cancel_scope.cancel()

        everything, distinct = list(read(journal)), list(read(journal, topics="orders", distinct=True))
        print(f"read: {len(everything)} records, {len(distinct)} of them distinct")

        async with Pull(listen="tcp://127.0.0.1:0") as pull, Push(dial=pull.address) as push:
            await replay(journal, push, speed=None, end=3)
            values = [(await pull.arecv(timeout=10)).decode() for _ in ORDERS]
            print(f"sent once more: {', '.join(values)}")


trio.run(main)
