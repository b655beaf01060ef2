"""A recorder of documents among real peers: what it wrote makes their documents again, whatever happened on the way."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from nngkit.documents import Document, DocumentPeer, EditStream, NetworkFaults
from nngkit.documents.versions import Versions, covers, merge
from nngkit.errors import AccessDenied, ConfigError, TimedOut
from nngkit.journal import Recorder, read
from nngkit.recording import DocumentRecorder, parse

HERE = "tcp://127.0.0.1:0"
PATIENCE = 20.0  # seconds that anything may take on a busy machine; what is waited for is an event, not a time


async def until(true: Callable[[], bool]) -> None:
    """Wait for what has no event of its own."""
    with trio.fail_after(PATIENCE):
        while not true():  # noqa: ASYNC110
            await trio.sleep(0.005)


def applied(journal: Path, topic: str = "documents") -> dict[str, Document]:
    """The documents, by applying what the journal has in its order, each edit once."""
    made: dict[str, Document] = {}
    for record in read(journal, topics=topic, distinct=True):
        kept = parse(record)
        made.setdefault(kept.doc, Document(kept.doc)).merge(kept.update, None)
    return made


def digests(documents: Mapping[str, Document]) -> dict[str, bytes]:
    return {name: document.digest() for name, document in documents.items()}


def edits_in(journal: Path) -> Counter[tuple[str, EditStream, int]]:
    """How often each edit is there."""
    kept = [parse(record) for record in read(journal)]
    return Counter((each.doc, each.stream, each.seq) for each in kept if each.stream is not None)


async def test_what_three_peers_edit_under_loss_is_in_the_journal_once_and_makes_the_same(tmp_path: Path) -> None:
    faults = NetworkFaults(loss=0.3, delay=0.005)
    rng = random.Random(7)
    async with AsyncExitStack() as stack:
        peers: list[DocumentPeer] = []
        for name in ("ada", "grace", "edsger"):
            dial = [peer.address for peer in peers]
            made = DocumentPeer(listen=HERE, dial=dial, name=name, faults=faults)
            peers.append(await stack.enter_async_context(made))
        recorder = await stack.enter_async_context(Recorder(tmp_path / "j"))
        dial = [peer.address for peer in peers]
        kept = await stack.enter_async_context(
            DocumentRecorder(recorder, listen=HERE, dial=dial, faults=NetworkFaults(loss=0.3, delay=0.005))
        )
        await kept.wait_for_peers(3, PATIENCE)
        docs = [[peer.open(name) for peer in peers] for name in ("minutes", "notes")]
        await until(lambda: kept.digests.keys() == {"minutes", "notes"})
        for number in range(60):
            for same in docs:
                text = rng.choice(same).text("body")
                if len(text) > 20 and rng.random() < 0.3:
                    del text[3:9]
                else:
                    text.insert(rng.randint(0, len(text)), f"é{number};")
            await trio.sleep(0.002)
        await until(lambda: len({doc.digest() for doc in docs[0]}) == len({doc.digest() for doc in docs[1]}) == 1)
        expected = {same[0].name: same[0].digest() for same in docs}
        await until(lambda: kept.digests == expected)
        versions = {same[0].name: peers[0].versions(same[0].name) for same in docs}
        await kept.synced()
        # before anybody leaves: what is on the disk is read while it is written
        assert digests(applied(tmp_path / "j")) == expected
        assert faults.lost
        stats = kept.stats
        assert stats.edits + stats.merges == len(list(read(tmp_path / "j")))
    times = edits_in(tmp_path / "j")
    assert set(times.values()) == {1}
    written = {(doc, of, seq) for doc in versions for of, last in versions[doc].items() for seq in range(last + 1)}
    assert times.keys() <= written
    headers = [dict(record.headers or ()) for record in read(tmp_path / "j")]
    authors = {each["from"] for each in headers if "from" in each}
    assert authors <= {b"ada", b"grace", b"edsger"}
    assert authors


async def test_a_late_one_keeps_as_one_record_what_comes_as_one(tmp_path: Path) -> None:
    async with DocumentPeer(listen=HERE, name="ada") as ada:
        doc = ada.open("minutes")
        for number in range(1000):
            doc.text("body").insert(len(doc.text("body")), f"{number};")
            if number % 100 == 0:
                await trio.lowlevel.checkpoint()
        async with Recorder(tmp_path / "j") as recorder, DocumentRecorder(recorder, dial=ada.address) as kept:
            await until(lambda: kept.digests.get("minutes") == doc.digest())
            assert kept.versions("minutes") == {ada.me: 1000}
            doc.text("body").insert(0, "and on; ")
            await doc.synced(1, PATIENCE)
        records = [parse(record) for record in read(tmp_path / "j")]
    assert [(each.stream, each.seq) for each in records] == [(None, 0), (ada.me, 1001)]
    assert (records[0].deps, records[0].versions) == ({}, {ada.me: 1000})
    assert digests(applied(tmp_path / "j")) == {"minutes": doc.digest()}


async def test_it_goes_on_from_where_the_journal_ends(tmp_path: Path) -> None:
    async with DocumentPeer(listen=HERE) as ada:
        doc = ada.open("minutes")
        for start in range(3):
            async with Recorder(tmp_path / "j") as recorder, DocumentRecorder(recorder, dial=ada.address) as kept:
                for number in range(20):
                    doc.text("body").insert(0, f"{start}.{number};")
                await doc.synced(1, PATIENCE)
                assert kept.digests == {"minutes": doc.digest()}
                assert kept.stats.restored == (1 if start else 0)
                assert (kept.stats.left, kept.stats.bad) == (0, 0)
            doc.text("body").insert(0, "while nobody listens;")
    # Nothing is there twice, not even before deduplication: it knew what it had.
    have: Versions = {}
    for kept_record in map(parse, read(tmp_path / "j")):
        brings = kept_record.versions if kept_record.stream is None else {kept_record.stream: kept_record.seq}
        assert not covers(have, brings)
        have = merge(have, brings)
    assert have == {ada.me: 62}
    text = str(applied(tmp_path / "j")["minutes"].text("body"))
    assert "while nobody listens;" + text == str(doc.text("body"))


async def test_it_gives_back_what_everybody_else_has_lost(tmp_path: Path) -> None:
    async with Recorder(tmp_path / "j") as recorder:
        async with DocumentRecorder(recorder, listen=HERE) as kept, DocumentPeer(dial=kept.addresses) as ada:
            doc = ada.open("minutes")
            doc.text("body").insert(0, "hello")
            await doc.synced(1, PATIENCE)
        async with DocumentRecorder(recorder, listen=HERE) as kept, DocumentPeer(dial=kept.addresses) as grace:
            late = grace.open("minutes")
            await late.joined(PATIENCE)
            assert str(late.text("body")) == "hello"


async def test_where_the_beginning_is_gone_a_peer_gives_the_whole(tmp_path: Path) -> None:
    async with DocumentPeer(listen=HERE) as ada:
        doc = ada.open("minutes")
        async with Recorder(tmp_path / "j") as recorder, DocumentRecorder(recorder, dial=ada.address):
            for number in range(100):  # more than are asked for one by one
                doc.text("body").insert(0, f"{number};")
            await doc.synced(1, PATIENCE)
        # as retention does, which takes whole segments
        async with Recorder(tmp_path / "j") as recorder, DocumentRecorder(recorder, dial=ada.address):
            doc.text("body").insert(0, "and another;")
            await doc.synced(1, PATIENCE)
        oldest, *_ = sorted((tmp_path / "j").rglob("*.parquet"))
        oldest.unlink()
        async with Recorder(tmp_path / "j") as recorder, DocumentRecorder(recorder, dial=ada.address) as kept:
            assert kept.stats.left == 1
            await until(lambda: kept.digests.get("minutes") == doc.digest())
        *_, whole = (parse(record) for record in read(tmp_path / "j", missing="skip"))
    assert (whole.deps, whole.versions) == ({}, {ada.me: 101})
    alone = Document("minutes")
    alone.merge(whole.update, None)
    assert alone.digest() == doc.digest()


async def test_only_what_matches_and_no_more_than_asked_for(tmp_path: Path) -> None:
    async with (
        DocumentPeer(listen=HERE) as ada,
        Recorder(tmp_path / "j") as recorder,
        DocumentRecorder(recorder, "notes", only="minutes/*", most=2, dial=ada.address) as kept,
    ):
        docs = [ada.open(name) for name in ("minutes/1", "private", "minutes/2", "minutes/3")]
        for doc in docs:
            doc.text("body").insert(0, doc.name)
        await docs[0].synced(1, PATIENCE)
        await until(lambda: kept.stats.refused > 0 and len(kept.digests) == 2)
        with pytest.raises(TimedOut, match="on the disks of 0 of 1"):
            await docs[1].synced(1, 0.2)
        await kept.synced()
        taken = kept.digests.keys()
    assert taken < {"minutes/1", "minutes/2", "minutes/3"}
    assert applied(tmp_path / "j", "notes").keys() == taken


async def test_a_token_opens_the_door_and_closes_it(tmp_path: Path) -> None:
    async with DocumentPeer(listen="ws://127.0.0.1:0", token="secret") as ada:
        doc = ada.open("minutes")
        doc.text("body").insert(0, "hello")
        async with Recorder(tmp_path / "j") as recorder:
            async with DocumentRecorder(recorder, join=ada.repair_addresses, token="guessed") as kept:
                with pytest.raises(AccessDenied):
                    await kept.wait_for_peers(1, PATIENCE)
                assert kept.digests == {}
            async with DocumentRecorder(recorder, join=ada.repair_addresses, token="secret"):
                await doc.synced(1, PATIENCE)
            with pytest.raises(ConfigError, match="with a token it has to be on ws"):
                DocumentRecorder(recorder, listen=HERE, token="secret")
            # And its own door: who has another is told nothing.
            async with (
                DocumentRecorder(recorder, listen="ws://127.0.0.1:0", token="secret") as kept,
                DocumentPeer(join=kept.repair_addresses, token="guessed") as thief,
            ):
                with pytest.raises(AccessDenied):
                    await thief.wait_for_peers(1, PATIENCE)
    assert digests(applied(tmp_path / "j")) == {"minutes": doc.digest()}


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bool]]:
    """A disk that takes no byte more while it is `full`, as far as logs go."""
    state = {"full": False}
    write = os.write

    def limited(file: int, data: bytes) -> int:
        if state["full"] and os.readlink(f"/proc/self/fd/{file}").endswith(".log"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(os, "write", limited)
    yield state
    state["full"] = False


async def test_a_full_disk_is_not_called_durable_and_holds_up_nobody(
    tmp_path: Path, disk: dict[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "nngkit.documents")
    async with (
        DocumentPeer(listen=HERE) as ada,
        DocumentPeer(listen=HERE, dial=ada.address) as grace,
        Recorder(tmp_path / "j", room=1 << 16) as recorder,
        DocumentRecorder(recorder, dial=[ada.address, grace.address]),
    ):
        doc, same = ada.open("minutes"), grace.open("minutes")
        doc.text("body").insert(0, "kept;")
        await doc.synced(1, PATIENCE)
        disk["full"] = True
        doc.text("body").insert(0, "not yet;")
        with pytest.raises(TimedOut, match="on the disks of 0 of 1"):
            await doc.synced(1, 1.0)
        for number in range(2000):  # thirty times the room, for a disk that takes nothing
            doc.text("body").insert(0, f"{number}".ljust(1000))
            await trio.lowlevel.checkpoint()
        await until(lambda: same.digest() == doc.digest())
        assert recorder.stats.waiting < 1 << 20
        assert str(applied(tmp_path / "j")["minutes"].text("body")) == "kept;"
        assert "No space left on device" in (recorder.stats.failure or "")
        disk["full"] = False
        await doc.synced(1, PATIENCE)
        assert recorder.stats.log.unstored == 0
    assert "not confirmed as durable" in caplog.text
    assert digests(applied(tmp_path / "j")) == {"minutes": doc.digest()}
