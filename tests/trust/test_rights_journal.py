"""Names in a journal: a record says which name sent it, as the pass of its sender proves it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from nngkit.journal import Recorder, read
from nngkit.journal.ingest import encode_request
from nngkit.journal.record import WHO
from nngkit.protocols import Pull, Push, Rep, Req
from nngkit.testing import aeventually
from tests.trust.one_realm import OneRealm

ANY = "tls+tcp://127.0.0.1:0"
WAIT = 15.0


@pytest.mark.parametrize("named", [True, False])
async def test_a_record_says_which_name_sent_it(named: bool, tmp_path: Path) -> None:
    farm = OneRealm(tmp_path / "farm")
    url, hub = (ANY, farm.trust("hub")) if named else ("tcp://127.0.0.1:0", None)
    shop, pay = (farm.trust("shop"), farm.trust("pay")) if named else (None, None)
    async with (
        Recorder(tmp_path / "j") as recorder,
        Pull(listen=url, trust=hub) as pull,
        Rep(listen=url, trust=hub) as rep,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(recorder.record, pull, "frames")
        nursery.start_soon(recorder.record, rep, "orders")
        async with Push(dial=pull.address, trust=shop) as push, Req(dial=rep.address, trust=pay) as req:
            await push.asend(b"frame")
            lie = encode_request(b"", [b"order"], headers=((WHO, b"boss"), ("x", b"y")))
            await req.arequest(lie, timeout=WAIT)
            await aeventually(lambda: recorder.stats.end == 2)
        nursery.cancel_scope.cancel()
    found = {record.topic: record for record in read(tmp_path / "j")}
    if named:
        assert {topic: record.who for topic, record in found.items()} == {"frames": "shop", "orders": "pay"}
        assert found["orders"].headers == (("x", b"y"), (WHO, b"pay"))
    else:
        assert [record.who for record in found.values()] == [None, None]
        assert found["orders"].headers == (("x", b"y"),)
