"""Memory of a document's server after peers that came, edited, and went."""

from __future__ import annotations

import gc
import time
from collections import Counter

import pytest
import trio

from nngkit.documents import DocumentPeer, EditStream
from nngkit.documents.sync.history import History, Settings
from nngkit.documents.versions import Edit
from nngkit.testing import aeventually
from tests.driving import limits

HERE = "tcp://127.0.0.1:0"
PATIENCE = 20.0
AN_HOUR = 3600.0
VISITORS = 6
KEPT = (EditStream, Edit)  # the vector of a document and its recent edits, which have caps of their own


def objects() -> Counter[type]:
    """Return the objects of nngkit by type."""
    gc.collect()
    found = Counter(type(one) for one in gc.get_objects())
    ours = [one for one in found if str(one.__module__).startswith("nngkit") and one not in KEPT]
    return Counter({one: found[one] for one in ours})


async def visit(server: DocumentPeer, value: int) -> None:
    async with DocumentPeer(dial=server.address) as visitor:
        document = visitor.open("minutes")
        document.awareness.local = {"value": value}
        await document.joined(PATIENCE)
        document.map("values")["last"] = value
        await aeventually(lambda: visitor.me in server.versions("minutes"))


@pytest.mark.slow
async def test_visitors_leave_no_objects() -> None:
    async with (
        DocumentPeer(listen=HERE) as server,
        DocumentPeer(dial=server.address),  # it stays: its heartbeats follow the last messages of the others
    ):
        await server.wait_for_peers(1, PATIENCE)
        values = server.open("minutes").map("values")

        async def visits(first: int) -> None:
            async with trio.open_nursery() as nursery:
                for value in range(first, first + VISITORS):
                    nursery.start_soon(visit, server, value)
            await aeventually(lambda: len(server.peers) == 1)
            server.open("minutes").awareness.expire(time.monotonic() + AN_HOUR)

        await visits(1)
        before = objects()
        await visits(100)
        await aeventually(lambda: max((objects() - before).values(), default=0) < VISITORS)
        assert values["last"] >= 100
        assert len(server.versions("minutes")) == 2 * VISITORS


def test_streams_beyond_the_vector_leave_nothing() -> None:
    """A server may never edit: then nothing else empties the list of streams that its next edit depends on."""
    with limits(documents__versions={"STREAMS": 20}):
        history = History("minutes", EditStream(b"server..", 1), Settings(log_edits=20), {}, ())
        for number in range(1, 200):
            history.take(EditStream(number.to_bytes(8), number), 1, Edit(b"x", {}), None, float(number))
            history.ready.clear()
            assert not history.incomplete()
        kept = {name: len(value) for name, value in vars(history).items() if hasattr(value, "__len__")}
        assert max(kept.values()) <= 20
        assert len(history.edited(b"y", 200.0).edits[0].deps) == 20
