"""`nngkit record` of documents, as a process: killed and restarted, with a token, with invalid options.

4 kills; NNGKIT_KILLS=100 for more.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import trio

from nngkit.documents import Document, DocumentPeer
from nngkit.documents.versions import Versions, merge
from nngkit.journal import open_journal, read
from nngkit.journal.verify import verify
from nngkit.recording import parse
from nngkit.testing import aeventually
from tests.cli.commands import assert_fails, nngkit, valid
from tests.cli.processes import Running

HERE = "tcp://127.0.0.1:0"
WAIT = 30.0
KILLS = int(os.environ.get("NNGKIT_KILLS", "4"))


def recorder(journal: Path, *words: str, token: str = "") -> Running:
    stream = " ".join(("notes=documents", *words))
    return Running("record", str(journal), "--stream", stream, "--segment-size", "60000", "--json", NNGKIT_TOKEN=token)


def applied(journal: Path) -> tuple[dict[str, Document], dict[str, Versions]]:
    """Apply the journal in its order; return the documents and their versions."""
    made: dict[str, Document] = {}
    versions: dict[str, Versions] = {}
    for record in read(journal, topics="notes", distinct=True):
        kept = parse(record)
        made.setdefault(kept.doc, Document(kept.doc)).merge(kept.update, None)
        brings = kept.versions if kept.stream is None else {kept.stream: kept.seq}
        versions[kept.doc] = merge(versions.get(kept.doc, {}), brings)
    return made, versions


@pytest.mark.slow
@pytest.mark.timeout(60 + 15 * KILLS)
async def test_a_killed_recorder_loses_and_duplicates_no_acknowledged_edit(tmp_path: Path) -> None:
    chance = random.Random(time.time_ns())
    acknowledged: dict[str, Versions] = {}
    journal = tmp_path / "j"
    async with DocumentPeer(listen=HERE, name="ada") as ada, DocumentPeer(listen=HERE, dial=ada.address) as grace:
        docs = [(ada.open(name), grace.open(name)) for name in ("minutes", "notes")]
        stopping = trio.Event()

        async def edit() -> None:
            number = 0
            while not stopping.is_set():
                body = docs[number % 2][number % 3 % 2].text("body")
                body.insert(chance.randint(0, len(body)), f"{number};")
                number += 1
                await trio.sleep(0.002)

        async def ask(doc: Document) -> None:
            while not stopping.is_set():
                asked = ada.versions(doc.name)
                await doc.synced(1, WAIT)
                acknowledged[doc.name] = asked

        async with trio.open_nursery() as flow:
            flow.start_soon(edit)
            for doc, _ in docs:
                flow.start_soon(ask, doc)
            kills = []
            for _ in range(KILLS):
                due = {name: sum(acknowledged.get(name, {}).values()) + 30 for name in ("minutes", "notes")}
                with recorder(journal, f"dial={ada.address}", f"dial={grace.address}") as running:
                    for name, least in due.items():
                        await aeventually(lambda: sum(acknowledged.get(name, {}).values()) > least, WAIT)  # noqa: B023
                    await trio.sleep(chance.random() * 0.3)
                    kills.append(await trio.to_thread.run_sync(running.end, signal.SIGKILL))
            assert kills == [-signal.SIGKILL] * KILLS
            killed = applied(journal)[1]
            for name, versions in acknowledged.items():
                for stream, seq in versions.items():
                    assert killed[name].get(stream, 0) >= seq, "acknowledged, and not on the disk"
            with recorder(journal, f"dial={ada.address}", f"dial={grace.address}") as running:
                stopping.set()
                for pair in docs:
                    await aeventually(lambda: pair[0].digest() == pair[1].digest(), WAIT)  # noqa: B023
                    await pair[0].synced(1, WAIT)
                assert await trio.to_thread.run_sync(running.end, signal.SIGTERM) == 143
        expected = {doc.name: doc.digest() for doc, _ in docs}
        whole = {doc.name: ada.versions(doc.name) for doc, _ in docs}
    assert [each for each in verify(open_journal(journal)) if each.state != "good"] == []
    made, brought = applied(journal)
    assert {name: document.digest() for name, document in made.items()} == expected
    assert brought == whole
    kept = [parse(record) for record in read(journal, distinct=True)]
    times = Counter((each.doc, each.stream, each.seq) for each in kept if each.stream is not None)
    assert set(times.values()) == {1}
    everything, edits = len(list(read(journal))), sum(sum(one.values()) for one in whole.values())
    merges = sum(each.stream is None for each in kept)
    sys.stdout.write(
        f"{KILLS} kills: {edits} edits, 0 acknowledged missing; {everything} records, {merges} of them merges, "
        f"{everything - len(kept)} there twice\n"
    )


@pytest.mark.slow
async def test_the_token_can_come_from_the_environment(tmp_path: Path) -> None:
    async with DocumentPeer(listen="ws://127.0.0.1:0", token="secret") as ada:
        docs = [ada.open(name) for name in ("minutes/1", "private")]
        for doc in docs:
            doc.text("body").insert(0, doc.name)
        words = (f"join={ada.repair_addresses[0]}", "listen=ws://127.0.0.1:0", "only=minutes/*")
        with recorder(tmp_path / "j", *words, token="secret") as running:
            said = await trio.to_thread.run_sync(running.says)
            assert "notes (documents) is joined at ws://127.0.0.1:" in said
            assert "listens at" not in said, "where the BUS is is the secret"
            await docs[0].synced(1, WAIT)
            assert await trio.to_thread.run_sync(running.end) == 130
            fields = valid(running.rest()[0].splitlines()[-1], "record.json")
        [stream] = fields["streams"]
        assert (stream["topic"], stream["protocol"], stream["dropped"]) == ("notes", "documents", 0)
        assert fields["synced"] == stream["received"] == len(list(read(tmp_path / "j")))
        made, _ = applied(tmp_path / "j")
        assert {name: document.digest() for name, document in made.items()} == {"minutes/1": docs[0].digest()}
        # in the address, as printed by `nngkit doc serve`
        with recorder(tmp_path / "j", f"join={ada.repair_addresses[0]}#token=secret") as running:
            assert "#" not in await trio.to_thread.run_sync(running.says)
            await docs[1].synced(1, WAIT)
            assert await trio.to_thread.run_sync(running.end) == 130
        assert applied(tmp_path / "j")[0].keys() == {"minutes/1", "private"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "neither listens nor dials"),
        ("only=minutes/*", "neither listens nor dials"),
        (f"listen={HERE} plain", "'plain' is not a word of a documents stream"),
        (f"listen={HERE} subscribe=x", "'subscribe=x' is not a word of a documents stream"),
        ("join=here", "is not an address"),
    ],
)
def test_words_that_do_not_apply_to_documents_are_rejected(tmp_path: Path, words: str, says: str) -> None:
    done = nngkit("record", str(tmp_path / "j"), "--stream", f"notes=documents {words}")
    assert_fails(done, 2, "--stream", says)
    assert not (tmp_path / "j").exists()


def test_a_token_conflicts_with_an_open_bus(tmp_path: Path) -> None:
    stream = f"notes=documents listen={HERE}"
    done = nngkit("record", str(tmp_path / "j"), "--stream", stream, "--token", "secret")
    assert_fails(done, 2, "with a token it has to be on ws")
    assert_fails(
        nngkit("record", str(tmp_path / "j"), "--stream", "n=documents join=ws://h:1/r#token=a", "--token", "b"),
        2,
        "differs from --token or NNGKIT_TOKEN",
    )
