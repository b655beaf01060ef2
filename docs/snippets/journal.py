"""A stream that is kept and read again; the pages of docs/ include the section."""

import tempfile

import trio

from nngkit.journal import Recorder, read
from nngkit.protocols import Rep, Req


# --8<-- [start:stored]
async def main(folder: str) -> None:
    async with (
        Recorder(folder) as recorder,
        Rep(listen="tcp://127.0.0.1:0") as rep,
        Req(dial=rep.address) as req,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(lambda: recorder.record(rep, "orders", plain=True))
        await req.arequest(b"one apple", timeout=5)  # answered when the record is on the disk
        nursery.cancel_scope.cancel()
    print([record.value for record in read(folder, topics="orders")])  # [b'one apple']


# --8<-- [end:stored]

with tempfile.TemporaryDirectory() as folder:
    trio.run(main, folder)
