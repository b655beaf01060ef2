"""A document that cannot be loaded does not stop a peer from holding the others."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio

from nngkit.documents import DocumentPeer
from nngkit.documents.engine.interface import load_engine
from nngkit.documents.store import Record, Store, recover
from nngkit.documents.versions import EditStream
from nngkit.errors import StoreDamaged, TimedOut
from nngkit.testing import aeventually

HERE = "tcp://127.0.0.1:0"
PATIENCE = 10.0


async def written(path: Path) -> None:
    async with DocumentPeer(store=path) as peer:
        for name in ("minutes", "table"):
            peer.open(name).text("body").insert(0, f"words of {name}")


def flip(path: Path, where: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[data.rindex(where)] ^= 1
    path.write_bytes(data)


async def test_others_are_served_while_a_peer_announces_the_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "docs.sqlite"
    await written(path)
    flip(path, b"words of minutes")
    async with (
        DocumentPeer(listen=HERE, store=path, accept=lambda _: True) as home,
        DocumentPeer(dial=home.address) as other,
    ):
        minutes, table = other.open("minutes"), other.open("table")
        await aeventually(lambda: "table" in home.documents and "minutes" in home.damaged, timeout=PATIENCE)
        await table.joined(PATIENCE)
        assert str(table.text("body")) == "words of table"
        with pytest.raises(TimedOut, match="none of the 1 reachable peers has the document"):
            await minutes.joined(0.3)
        assert "minutes" not in home.documents
        assert "nngkit doc recover" in str(home.damaged["minutes"])
        with pytest.raises(StoreDamaged, match="'minutes'"):
            home.open("minutes")
        table.text("body").insert(0, "more ")
        await aeventually(lambda: str(home.documents["table"].text("body")).startswith("more"), timeout=PATIENCE)


async def test_record_that_the_engine_rejects_is_damage_of_its_document(tmp_path: Path) -> None:
    path = tmp_path / "docs.sqlite"
    async with Store.open(path) as store:
        me = EditStream(store.origin, store.epoch)
        store.append("minutes", Record(me, 1, b"\0nonsense", {}))
        scratch = load_engine().new()
        scratch.root("body", "text").insert(0, "fine")
        await store.synced(store.append("table", Record(me, 1, scratch.changes_since(), {})))
    async with DocumentPeer(store=path) as peer:
        with pytest.raises(StoreDamaged, match="records of 'minutes'"):
            peer.open("minutes")
        assert str(peer.open("table").text("body")) == "fine"
        await trio.lowlevel.checkpoint()
        assert list(peer.damaged) == ["minutes"]


async def test_damaged_head_of_one_document_stops_no_other_and_nothing_is_added_to_it(tmp_path: Path) -> None:
    path = tmp_path / "docs.sqlite"
    await written(path)
    with closing(sqlite3.connect(path)) as connection:
        ((key, body),) = connection.execute("SELECT key, body FROM heads WHERE key = 1").fetchall()
        connection.execute("UPDATE heads SET body = ? WHERE key = ?", (bytes([body[0] ^ 1]) + body[1:], key))
        connection.commit()
    for _ in range(2):  # the second time with what the first has written
        async with DocumentPeer(store=path) as peer:
            with pytest.raises(StoreDamaged, match="head of 'minutes'"):
                peer.open("minutes")
            peer.open("table").text("body").insert(0, "more ")
            peer.open("new").text("body").insert(0, "x")
            await peer.open("new").durable()
    async with Store.open(path) as store:
        assert store.names() == ["minutes", "new", "table"]
        for wrong in (store.load, store.versions, store.log):
            with pytest.raises(StoreDamaged, match="head of 'minutes'"):
                wrong("minutes")
        with pytest.raises(StoreDamaged, match="head of 'minutes'"):
            store.append("minutes", Record(EditStream(store.origin, store.epoch), 1, b"", {}))
    report = recover(path, tmp_path / "new.sqlite")
    assert {one.name for one in report.documents} == {"minutes", "new", "table"}
