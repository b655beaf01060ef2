"""Record the fixtures of test_upgrading.py with an older checkout of nngkit. Run by hand, from any folder::

    PYTHONPATH=OLD OLD/.venv/bin/python tests/upgrading/record.py OLD

OLD is a checkout of the version before the names of October 2026 ("Unreleased / Changed" in CHANGELOG.md): this file
uses its names. It replaces beside itself:

    journal/         a partition with sealed segments and a log that is not sealed
    store.sqlite     documents of two sessions, with the edits of another peer and saved versions
    expected.json    what the older version reads from the store
    messages.json    each kind of message of discovery and documents: its bytes and its fields
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import trio
from described import RECORDS, described, record

FOLDER = Path(__file__).parent


async def until(true: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not true():  # noqa: ASYNC110 - has no event
            await trio.sleep(0.01)


async def equal(one: Any, other: Any) -> None:
    await until(lambda: one.digest() == other.digest())


async def record_journal(folder: Path) -> None:
    from nngkit.journal import Recorder

    shutil.rmtree(folder, ignore_errors=True)
    scratch = folder.with_name("scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    async with Recorder(scratch, segment_bytes=2048) as recorder:
        for number in range(RECORDS):
            recorder.put(**record(number))
            await recorder.flush()
        await until(lambda: len(list(scratch.glob("*/*.log"))) == 1)  # a full log is being sealed
        shutil.copytree(scratch, folder, ignore=shutil.ignore_patterns("lock"))  # leaving would seal the last log
    shutil.rmtree(scratch)


async def record_store(path: Path) -> dict[str, Any]:
    from nngkit.documents import DocumentPeer
    from nngkit.documents.store import Store

    for each in path.parent.glob(path.name + "*"):
        each.unlink()
    for session in range(2):
        async with (
            DocumentPeer(listen="tcp://127.0.0.1:0", store=path) as peer,
            DocumentPeer(dial=peer.address, repair=(), name="grace") as other,
        ):
            await other.wait_for_peers(timeout=10)
            minutes, theirs = peer.open("minutes"), other.open("minutes")
            await theirs.joined(timeout=10)
            minutes.text("body").insert(0, f"Session {session}: café 🙂. ")
            await equal(minutes, theirs)
            theirs.text("body").insert(0, "Grace: ")
            theirs.map("facts")["session"] = session
            await equal(minutes, theirs)
            await minutes.save_version(f"after {session}")
            shopping = peer.open("lists/shopping")
            shopping.array("items").append(f"apple {session}")
            shopping.array("items").append({"name": "pear", "number": session})
            await minutes.durable()
            await shopping.durable()
    found: dict[str, Any] = {}
    async with DocumentPeer(store=path) as peer:
        for name in ("minutes", "lists/shopping"):
            doc = peer.open(name)
            found[name] = {"plain": doc.plain(), "digest": doc.digest().hex()}
            found[name]["saved"] = {each.name: doc.at(each.name).plain() for each in doc.saved_versions()}
    with Store.open(path) as store:
        for name, each in found.items():
            each["log"] = [described(entry) for entry in store.log(name)]
            each["versions"] = [described(entry) for entry in store.versions(name)]
    for each in path.parent.glob(path.name + "-*"):
        each.unlink()
    return found


def discovery_messages() -> Iterator[tuple[str, str, Any, bytes]]:
    from nngkit.discovery import Provider, queries, watch
    from nngkit.discovery import messages as m
    from nngkit.discovery.provider import Reason, RoundFigures, State, Status

    provider = Provider("answer", "tcp://10.0.0.7:9000", "p7", 1767225600123, "1.2", "oslo", 3, 50, frozenset({"gpu"}))
    status = Status(provider, State.UP, Reason.ANSWERED, 99.0, 1, 99.5, 0.25, False, (3, 4), 17)
    figures = RoundFigures(17, False, 98.0, 99.0, 3, 2, 3, 1, 0)
    survey = [
        ("survey query", m.Query("d1", 17, frozenset({"text"}))),
        ("survey reply", m.Reply("p7", (provider,), relay=True)),
        ("survey reply, version 1", m.Reply("p7", (Provider("answer", "tcp://10.0.0.7:9000", "p7", 7),), version=1)),
        ("survey reply, bye", m.Reply("p7", bye=True)),
        ("survey reply, text", m.TextReply("answer", "tcp://10.0.0.7:9000")),
    ]
    asked = [
        ("snapshot query", queries.AskSnapshot("answer", True, ("a", "tcp://h:1", "p1", 5))),
        ("resolve query", queries.AskResolve("answer", "oslo")),
        ("rounds query", queries.AskRounds(5)),
    ]
    answers = [
        ("snapshot reply", queries.Snapshot("d1", (status,), ("answer", "tcp://10.0.0.7:9000", "p7", 1767225600123))),
        ("resolve reply", queries.Resolved("d1", provider)),
        ("rounds reply", queries.Rounds("d1", (figures,), {"replies": 5, "text": 1}, 2)),
        ("refused reply", queries.Refused("d1", "not found", "service not found: x")),
    ]
    yield from (("survey", name, each, each.encode()) for name, each in survey)
    yield from (("daemon query", name, each, each.encode()) for name, each in asked)
    yield from (("daemon reply", name, each, each.encode(100.0)) for name, each in answers)
    for kind, each in (("watch query", watch.AskWatch("d1", 7, 2.5)), ("watch reply", watch.Changed("d1", 8))):
        yield kind, kind, each, each.encode()  # type: ignore[attr-defined]


def document_messages(old: Path) -> Iterator[tuple[str, str, Any, bytes]]:
    from nngkit.documents import messages, wire

    path = old / "tests" / "documents" / "test_wire.py"  # its examples have every kind, each pinned to its bytes
    spec = importlib.util.spec_from_file_location("old_wire", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, (message, _) in module.PINNED.items():
        bus = isinstance(message, messages.Updates | messages.Beat | messages.Aware | messages.Bye)
        asks = ("Hello", "Nack", "Want", "Pull", "Give", "Have")
        kind = "bus" if bus else "request" if type(message).__name__ in asks else "reply"
        yield kind, name, message, wire.encode(message)


def main(old: Path) -> None:
    import nngkit

    if not Path(nngkit.__file__).is_relative_to(old):
        sys.exit(f"record.py: {nngkit.__file__} is not of {old}: set PYTHONPATH")
    trio.run(record_journal, FOLDER / "journal")
    expected = trio.run(record_store, FOLDER / "store.sqlite")
    (FOLDER / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=0) + "\n")
    messages = [
        {"kind": kind, "name": name, "fields": described(message), "hex": data.hex()}
        for kind, name, message, data in (*discovery_messages(), *document_messages(old))
    ]
    (FOLDER / "messages.json").write_text(json.dumps(messages, indent=0) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
