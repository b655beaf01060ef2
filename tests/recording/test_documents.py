"""A document recorder among real peers: its records rebuild the documents, despite loss, restarts and failures."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from nngkit.documents import Document, DocumentPeer, EditStream, NetworkFaults
from nngkit.documents.versions import Versions, covers, merge
from nngkit.errors import AccessDenied, ConfigError, TimedOut
from nngkit.journal import Recorder, read
from nngkit.recording import DocumentRecorder, parse
from nngkit.testing import aeventually

HERE = "tcp://127.0.0.1:0"
PATIENCE = 20.0  # seconds: an upper bound for a busy machine; tests wait for events, not for times


def applied(journal: Path, topic: str = "documents") -> dict[str, Document]:
    """Rebuild the documents by applying the journal's records in order, each edit once."""
    made: dict[str, Document] = {}
    for record in read(journal, topics=topic, distinct=True):
        kept = parse(record)
        made.setdefault(kept.doc, Document(kept.doc)).merge(kept.update, None)
    return made


def digests(documents: Mapping[str, Document]) -> dict[str, bytes]:
    return {name: document.digest() for name, document in documents.items()}


def edits_in(journal: Path) -> Counter[tuple[str, EditStream, int]]:
    """Count how often each edit is recorded."""
    kept = [parse(record) for record in read(journal)]
    return Counter((each.doc, each.stream, each.seq) for each in kept if each.stream is not None)


async def test_edits_of_three_peers_under_loss_are_recorded_once_and_rebuild_the_documents(tmp_path: Path) -> None:
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
        await aeventually(lambda: kept.digests.keys() == {"minutes", "notes"})
        for number in range(60):
            for same in docs:
                text = rng.choice(same).text("body")
                if len(text) > 20 and rng.random() < 0.3:
                    del text[3:9]
                else:
                    text.insert(rng.randint(0, len(text)), f"é{number};")
            await trio.sleep(0.002)
        await aeventually(lambda: len({doc.digest() for doc in docs[0]}) == len({doc.digest() for doc in docs[1]}) == 1)
        expected = {same[0].name: same[0].digest() for same in docs}
        await aeventually(lambda: kept.digests == expected)
        # of all peers: an edit that changes nothing, as another deleted the same, may be on its way to one of them
        versions = [(same[0].name, peer.versions(same[0].name)) for same in docs for peer in peers]
        await kept.synced()
        # while all peers are connected: the journal is read while it is written
        assert digests(applied(tmp_path / "j")) == expected
        assert faults.lost
        stats = kept.stats
        assert stats.edits + stats.merges == len(list(read(tmp_path / "j")))
    times = edits_in(tmp_path / "j")
    assert set(times.values()) == {1}
    written = {(doc, of, seq) for doc, numbers in versions for of, last in numbers.items() for seq in range(last + 1)}
    assert times.keys() <= written
    headers = [dict(record.headers or ()) for record in read(tmp_path / "j")]
    authors = {each["from"] for each in headers if "from" in each}
    assert authors <= {b"ada", b"grace", b"edsger"}
    assert authors


async def test_late_recorder_stores_a_merged_update_as_one_record(tmp_path: Path) -> None:
    async with DocumentPeer(listen=HERE, name="ada") as ada:
        doc = ada.open("minutes")
        for number in range(1000):
            doc.text("body").insert(len(doc.text("body")), f"{number};")
            if number % 100 == 0:
                await trio.lowlevel.checkpoint()
        async with Recorder(tmp_path / "j") as recorder, DocumentRecorder(recorder, dial=ada.address) as kept:
            await aeventually(lambda: kept.digests.get("minutes") == doc.digest())
            assert kept.versions("minutes") == {ada.me: 1000}
            doc.text("body").insert(0, "and on; ")
            await doc.synced(1, PATIENCE)
        records = [parse(record) for record in read(tmp_path / "j")]
    assert [(each.stream, each.seq) for each in records] == [(None, 0), (ada.me, 1001)]
    assert (records[0].deps, records[0].versions) == ({}, {ada.me: 1000})
    assert digests(applied(tmp_path / "j")) == {"minutes": doc.digest()}


async def test_recorder_resumes_at_the_end_of_the_journal(tmp_path: Path) -> None:
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
            doc.text("body").insert(0, "before a listener;")
    # No record is redundant, not even before deduplication: the recorder knew what it had.
    have: Versions = {}
    for kept_record in map(parse, read(tmp_path / "j")):
        brings = kept_record.versions if kept_record.stream is None else {kept_record.stream: kept_record.seq}
        assert not covers(have, brings)
        have = merge(have, brings)
    assert have == {ada.me: 62}
    text = str(applied(tmp_path / "j")["minutes"].text("body"))
    assert "before a listener;" + text == str(doc.text("body"))


async def test_recorder_restores_a_document_lost_by_all_other_peers(tmp_path: Path) -> None:
    async with Recorder(tmp_path / "j") as recorder:
        async with DocumentRecorder(recorder, listen=HERE) as kept, DocumentPeer(dial=kept.addresses) as ada:
            doc = ada.open("minutes")
            doc.text("body").insert(0, "hello")
            await doc.synced(1, PATIENCE)
        async with DocumentRecorder(recorder, listen=HERE) as kept, DocumentPeer(dial=kept.addresses) as grace:
            late = grace.open("minutes")
            await late.joined(PATIENCE)
            assert str(late.text("body")) == "hello"


async def test_peer_supplies_the_whole_document_if_its_beginning_has_expired(tmp_path: Path) -> None:
    async with DocumentPeer(listen=HERE) as ada:
        doc = ada.open("minutes")
        async with Recorder(tmp_path / "j") as recorder, DocumentRecorder(recorder, dial=ada.address):
            for number in range(100):  # more than peers request one by one
                doc.text("body").insert(0, f"{number};")
            await doc.synced(1, PATIENCE)
        # a second segment, as retention deletes whole segments
        async with Recorder(tmp_path / "j") as recorder, DocumentRecorder(recorder, dial=ada.address):
            doc.text("body").insert(0, "and another;")
            await doc.synced(1, PATIENCE)
        oldest, *_ = sorted((tmp_path / "j").rglob("*.parquet"))
        oldest.unlink()
        async with Recorder(tmp_path / "j") as recorder, DocumentRecorder(recorder, dial=ada.address) as kept:
            assert kept.stats.left == 1
            await aeventually(lambda: kept.digests.get("minutes") == doc.digest())
        *_, whole = (parse(record) for record in read(tmp_path / "j", missing="skip"))
    assert (whole.deps, whole.versions) == ({}, {ada.me: 101})
    alone = Document("minutes")
    alone.merge(whole.update, None)
    assert alone.digest() == doc.digest()


async def test_only_matching_documents_up_to_the_limit_are_recorded(tmp_path: Path) -> None:
    async with (
        DocumentPeer(listen=HERE) as ada,
        Recorder(tmp_path / "j") as recorder,
        DocumentRecorder(recorder, "notes", only="minutes/*", most=2, dial=ada.address) as kept,
    ):
        docs = [ada.open(name) for name in ("minutes/1", "private", "minutes/2", "minutes/3")]
        for doc in docs:
            doc.text("body").insert(0, doc.name)
        await docs[0].synced(1, PATIENCE)
        await aeventually(lambda: kept.stats.refused > 0 and len(kept.digests) == 2)
        with pytest.raises(TimedOut, match="on the disks of 0 of 1"):
            await docs[1].synced(1, 0.2)
        await kept.synced()
        taken = kept.digests.keys()
    assert taken < {"minutes/1", "minutes/2", "minutes/3"}
    assert applied(tmp_path / "j", "notes").keys() == taken


async def test_token_is_required_in_both_directions(tmp_path: Path) -> None:
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
            # The recorder itself rejects peers with another token.
            async with (
                DocumentRecorder(recorder, listen="ws://127.0.0.1:0", token="secret") as kept,
                DocumentPeer(join=kept.repair_addresses, token="guessed") as thief,
            ):
                with pytest.raises(AccessDenied):
                    await thief.wait_for_peers(1, PATIENCE)
    assert digests(applied(tmp_path / "j")) == {"minutes": doc.digest()}


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bool]]:
    """A disk that rejects writes to logs while it is `full`."""
    state = {"full": False}
    write = os.write

    def limited(file: int, data: bytes) -> int:
        if state["full"] and os.readlink(f"/proc/self/fd/{file}").endswith(".log"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(os, "write", limited)
    yield state
    state["full"] = False


@pytest.mark.slow
async def test_full_disk_reports_nothing_durable_and_blocks_no_peer(
    tmp_path: Path, disk: dict[str, bool], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "nngkit.documents")
    async with (
        DocumentPeer(listen=HERE) as ada,
        DocumentPeer(listen=HERE, dial=ada.address) as grace,
        Recorder(tmp_path / "j", buffer_bytes=1 << 16) as recorder,
        DocumentRecorder(recorder, dial=[ada.address, grace.address]),
    ):
        doc, same = ada.open("minutes"), grace.open("minutes")
        doc.text("body").insert(0, "kept;")
        await doc.synced(1, PATIENCE)
        disk["full"] = True
        doc.text("body").insert(0, "not yet;")
        with pytest.raises(TimedOut, match="on the disks of 0 of 1"):
            await doc.synced(1, 1.0)
        for number in range(2000):  # thirty times the buffer, while the disk is full
            doc.text("body").insert(0, f"{number}".ljust(1000))
            await trio.lowlevel.checkpoint()
        await aeventually(lambda: same.digest() == doc.digest())
        assert recorder.stats.waiting < 1 << 20
        assert str(applied(tmp_path / "j")["minutes"].text("body")) == "kept;"
        assert "No space left on device" in (recorder.stats.failure or "")
        disk["full"] = False
        await doc.synced(1, PATIENCE)
        assert recorder.stats.log.unstored == 0
    assert "not confirmed as durable" in caplog.text
    assert digests(applied(tmp_path / "j")) == {"minutes": doc.digest()}
