"""`nngkit record`, `replay` and `journal` as processes: output and failures."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit import Service
from nngkit.journal import open_journal, parse_reply, read
from nngkit.journal.writing.partition import Partition
from nngkit.protocols import Pub, Pull, Push, Req, Sub
from tests.cli.commands import ROOT, assert_fails, command, discoverd, environment, nngkit, valid
from tests.cli.processes import Running
from tests.journal.partitions import entry, folder, stored

ANY = "tcp://127.0.0.1:0"
WAIT = 20.0


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Create a journal of one partition: 10 records in a segment, 5 in an unsealed log."""
    partition = Partition.open(tmp_path / "j")
    values = [entry(b"%d" % number, timestamp=number * 1_000_000, key=b"k") for number in range(10)]
    stored(partition, values)
    partition.close()
    process = recorder(tmp_path / "j", "late=pull listen=" + ANY)
    with process, Push(dial=process.addresses()[0]) as push:
        push.send_many([b"late %d" % number for number in range(5)])
        counted(process, 5)
        process.end(signal.SIGKILL)
    return tmp_path / "j"


def recorder(where: Path, *streams: str, options: tuple[str, ...] = ()) -> Running:
    return Running("record", str(where), *(word for each in streams for word in ("--stream", each)), "--json", *options)


def counted(running: Running, synced: int) -> dict[str, object]:
    """Return the statistics once that many records are on the disk."""
    deadline = time.monotonic() + WAIT
    while True:
        running.process.send_signal(signal.SIGUSR1)
        fields = valid(running.line(), "record.json")
        if fields["synced"] >= synced:
            return fields
        assert time.monotonic() < deadline


def test_record_stores_messages_and_ends_in_order(tmp_path: Path) -> None:
    streams = (f"jobs=pull listen={ANY}", f"words=rep listen={ANY} plain")
    with recorder(tmp_path / "j", *streams) as running:
        jobs, words = running.addresses()
        with Push(dial=jobs) as push, Req(dial=words) as req:
            push.send_many([b"a", b"b"])
            counted(running, 2)
            assert parse_reply(req.request(b"c", timeout=WAIT)).first == 2
        assert running.end(signal.SIGTERM) == 143
        text, said = running.rest()
        fields = valid(text.splitlines()[-1], "record.json")
        assert (fields["synced"], fields["sealed"], fields["failure"]) == (3, 3, None)
        assert [each["received"] for each in fields["streams"]] == [2, 1]
        assert said == ""
    assert [(each.topic, each.value) for each in read(tmp_path / "j")] == [
        ("jobs", b"a"),
        ("jobs", b"b"),
        ("words", b"c"),
    ]


def test_record_counts_gaps_and_prints_text_statistics(tmp_path: Path) -> None:
    with Pub(listen=ANY, sequence=True) as pub:
        stream = f"weather=sub dial={pub.address} subscribe=eu. sequence"
        with Running("record", str(tmp_path / "j"), "--stream", stream) as running:
            assert f"partition 0, from offset 0 on; weather (sub) dials {pub.address}" in running.says()
            pub.wait_for_peers(1, WAIT)
            deadline = time.monotonic() + WAIT
            while not list((tmp_path / "j").rglob("*.log")):
                pub.send(b"eu.oslo")
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert running.end() == 130
            assert "records on the disk" in running.rest()[0]
    assert {each.key for each in read(tmp_path / "j")} == {b"eu."}


def test_a_lease_that_lapses_ends_it_in_order(tmp_path: Path) -> None:
    lease = tmp_path / "lease"
    options = ("--lease", str(lease))
    stream = f"t=pull listen={ANY}"
    assert_fails(nngkit("record", str(tmp_path / "j"), "--stream", stream, *options), 2, "--lease", "no such file")
    lease.touch()
    with recorder(tmp_path / "j", stream, options=options) as running:
        running.addresses()
        counted(running, 0)
        os.utime(lease, (1, 1))
        assert running.process.wait(WAIT) == 0
        assert "the lease has lapsed" in running.rest()[1]


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        ("x", "does not begin with NAME=PROTOCOL"),
        ("x=req dial=tcp://h:1", "does not begin with NAME=PROTOCOL"),
        ("x=pull", "neither listens nor dials"),
        ("x=pull listen=here", "is not an address"),
        ("x=pull listen=tcp://127.0.0.1:0 sequence", "'sequence' is not a word of a pull stream"),
        ("x=sub dial=tcp://127.0.0.1:1 colour=red", "'colour=red' is not a word of a sub stream"),
        ("'x", "is not a stream: No closing quotation"),
    ],
)
def test_an_invalid_stream_is_rejected(tmp_path: Path, stream: str, says: str) -> None:
    assert_fails(nngkit("record", str(tmp_path / "j"), "--stream", stream), 2, "--stream", says)
    assert not (tmp_path / "j").exists()


def test_a_second_recorder_of_a_partition_is_rejected(tmp_path: Path) -> None:
    stream = f"t=pull listen={ANY}"
    with recorder(tmp_path / "j", stream) as running:
        running.addresses()
        done = nngkit("record", str(tmp_path / "j"), "--stream", stream)
        assert_fails(done, 1, "partition-00000/lock", f"pid {running.process.pid}", "--partition")
        with recorder(tmp_path / "j", stream, options=("--partition", "1")) as other:
            other.addresses()


def test_ls_stats_and_verify_describe_a_journal(journal: Path) -> None:
    rows = [
        valid(line, "journal-ls.json") for line in nngkit("journal", "ls", str(journal), "--json").stdout.splitlines()
    ]
    assert [(row["kind"], row["first"], row["end"], row["records"]) for row in rows] == [
        ("segment", 0, 10, 10),
        ("log", 10, 15, 5),
    ]
    assert rows[0]["topics"] == {"topic": 10}
    assert f"{10:020}.log" in nngkit("journal", "ls", str(journal)).stdout
    found = nngkit("journal", "stats", str(journal), "--json").stdout.splitlines()
    counts = {row["topic"]: row["records"] for row in (valid(line, "journal-stats.json") for line in found)}
    assert counts == {"topic": 10, "late": 5}
    done = nngkit("journal", "verify", str(journal), "--json")
    states = [valid(line, "journal-verify.json")["state"] for line in done.stdout.splitlines()]
    assert (done.returncode, states) == (0, ["good", "good", "good"])
    assert nngkit("journal", "verify", str(journal)).stdout == "3 files, 15 records good\n"


def test_verify_names_damaged_files_and_changes_nothing(journal: Path) -> None:
    log = next(folder(journal).glob("*.log"))
    segment = next(folder(journal).glob("*.parquet"))
    for path in (log, segment):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    before = {path: path.read_bytes() for path in folder(journal).iterdir() if path.name != "lock"}
    done = nngkit("journal", "verify", str(journal))
    assert done.returncode == 1
    assert f"damaged: {segment}, offset 0: checksum " in done.stdout
    assert f"damaged: {log} at byte " in done.stdout
    assert "2 files damaged or missing" in done.stdout
    assert "--skip-missing" in done.stderr
    lines = nngkit("journal", "verify", str(journal), "--json").stdout.splitlines()
    assert [valid(line, "journal-verify.json")["state"] for line in lines] == ["good", "damaged", "damaged"]
    done = nngkit("record", str(journal), "--stream", f"t=pull listen={ANY}")
    assert_fails(done, 1, str(log), "offset 12", "--salvage")
    assert {path: path.read_bytes() for path in folder(journal).iterdir() if path in before} == before
    with recorder(journal, f"t=pull listen={ANY}", options=("--salvage",)) as running:
        assert "1 records are lost to damage" in running.says()
        assert running.end() == 130
    assert [lost.first for lost in open_journal(journal).manifest(0).lost] == [12]


def test_export_writes_the_records(journal: Path, tmp_path: Path) -> None:
    done = nngkit("journal", "export", str(journal), "--from-offset", "9", "--to-offset", "11")
    first, second = (valid(line, "journal-export.json") for line in done.stdout.splitlines())
    assert (first["offset"], first["topic"], base64.b64decode(first["value"])) == (9, "topic", b"9")
    assert (second["offset"], second["topic"], second["protocol"]) == (10, "late", "pull")
    window = ("--from-time", "1970-01-01T00:00:02Z", "--to-time", "4")
    raw = nngkit("journal", "export", str(journal), "--format", "raw", *window)
    assert raw.stdout == "2\n3\n"
    target = tmp_path / "out.parquet"
    assert nngkit("journal", "export", str(journal), "--format", "parquet", "--output", str(target)).returncode == 0
    from pyarrow import parquet

    assert parquet.read_table(target).num_rows == 15
    again = nngkit("journal", "export", str(journal), "--format", "parquet", "--output", str(target))
    assert_fails(again, 2, str(target), "File exists", "name a new file")
    assert parquet.read_table(target).num_rows == 15


def test_replay_sends_the_recorded_messages(journal: Path) -> None:
    with Pull(listen=ANY) as pull:
        done = nngkit("replay", str(journal), "push", "--dial", pull.address, "--speed", "max", "--json")
        fields = valid(done.stdout, "replay.json")
        assert (fields["records"], fields["late_p99"]) == (15, None)
        assert [pull.recv(WAIT) for _ in range(2)] == [b"0", b"1"]
    window = ("--topic", "topic", "--to-offset", "5", "--speed", "40")
    with (
        Running("replay", str(journal), "pub", "--listen", ANY, "--json", *window) as running,
        Sub(dial=running.addresses()[0], topics=b"") as sub,
    ):
        assert [sub.recv(WAIT) for _ in range(5)] == [b"%d" % number for number in range(5)]
        assert running.process.wait(WAIT) == 0
        fields = valid(running.line(), "replay.json")
    assert fields["records"] == 5
    assert fields["seconds"] >= 0.1  # four seconds, 40 times as fast
    assert fields["late_p50"] is not None


def test_messages_unsent_at_the_end_of_a_replay_are_reported(journal: Path) -> None:
    options = ("--dial", "tcp://127.0.0.1:1", "--peers", "0", "--speed", "max", "--linger", "0.1", "--json")
    done = nngkit("replay", str(journal), "push", *options)
    records = valid(done.stdout, "replay.json")["records"]
    assert records > 0
    assert done.returncode == 1
    told = f"{records} messages were dropped, 0 were being sent when their connection ended"
    assert done.stderr.splitlines()[-1] == f"nngkit replay: {told}"


def test_replay_ends_at_a_signal_with_its_progress(journal: Path) -> None:
    with Running("replay", str(journal), "pub", "--listen", ANY, "--json", "--speed", "0.001") as running:
        with Sub(dial=running.addresses()[0], topics=b"") as sub:
            assert sub.recv(WAIT) == b"0"
            assert running.end() == 130
        assert valid(running.line(), "replay.json")["records"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("journal", "ls", "{nowhere}"), 1, ("nowhere/journal.json", "not found")),
        (("journal", "shred", "{journal}"), 2, ("shred",)),
        (("journal", "ls", "{journal}", "--output", "x"), 2, ("--output", "is for export only")),
        (("journal", "export", "{journal}", "--from-time", "noon"), 2, ("--from-time", "'noon' is not a time")),
        (("journal", "export", "{journal}", "--partition", "3"), 2, ("no partition 3", "there are: 0")),
        (("journal", "export", "{journal}", "--to-offset", "99"), 2, ("offset 98 does not exist yet", "is 15")),
        (("journal", "ls", "{journal}", "--colour", "red"), 2, ("--colour",)),
        (("replay", "{journal}", "pub"), 2, ("--listen",)),
        (("replay", "{journal}", "push", "--dial", "tcp://127.0.0.1:1", "--sequence"), 2, ("--sequence", "pub only")),
        (("replay", "{journal}", "pub", "--listen", "tcp://127.0.0.1:0", "--speed", "0"), 2, ("--speed", "'0'")),
        (("record", "{journal}"), 2, ("--stream",)),
        (("journal", "ls", "gopher://x/y"), 2, ("gopher",)),
    ],
)
def test_wrong_usage_is_a_one_line_error(
    journal: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, says: tuple[str, ...]
) -> None:
    filled = [each.format(journal=journal, nowhere=tmp_path / "nowhere") for each in arguments]
    assert_fails(nngkit(*filled), code, *says)


def test_a_deleted_offset_is_reported_with_the_earliest(journal: Path) -> None:
    with recorder(journal, f"t=pull listen={ANY}", options=("--keep-age", "3600")) as running:
        running.addresses()
        running.end()
    done = nngkit("journal", "export", str(journal), "--from-offset", "0")
    assert_fails(done, 1, "manifest.json", "offset 0 is gone", "the earliest kept is 10")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system of 1 MB takes root")
@pytest.mark.needs_program("mount", package="mount")
def test_a_full_disk_acknowledges_only_stored_records(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        acknowledged = []
        with recorder(small / "j", f"t=rep listen={ANY} plain") as running:
            with Req(dial=running.addresses()[0]) as req:
                refusal = b""
                for number in range(100):
                    value = b"%d " % number * 5000
                    reply = req.request(value, timeout=WAIT)
                    if reply[1] == 1:
                        acknowledged.append(value)
                    else:
                        refusal = reply
                        break
                assert b"No space left on device" in refusal
                assert "No space left on device" in running.says()
                fields = counted(running, len(acknowledged))
                assert fields["refused"] == 1
                (small / "room").unlink(missing_ok=True)
            assert running.end() == 130
        assert len(acknowledged) > 10
        assert [each.value for each in read(small / "j")] == acknowledged
        assert nngkit("journal", "verify", str(small / "j")).returncode == 0
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.needs_program("strace", package="strace")
@pytest.mark.slow
def test_a_failed_sync_is_reported_and_survived(tmp_path: Path) -> None:
    trace = [
        "strace",
        "-f",
        "-qq",
        "-o",
        os.devnull,
        "-e",
        "trace=fdatasync",
        "-e",
        "inject=fdatasync:error=EIO:when=4..7",
    ]
    argv = command("record", str(tmp_path / "j"), "--stream", f"t=rep listen=ipc://{tmp_path}/t.sock plain")
    process = subprocess.Popen(
        [*trace, *argv], cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    acknowledged, refused = [], 0
    try:
        with Req(dial=f"ipc://{tmp_path}/t.sock") as req:
            for number in range(20):
                reply = req.request(b"%d" % number, timeout=WAIT)
                if reply[1] == 1:
                    acknowledged.append(b"%d" % number)
                else:
                    assert b"Input/output error" in reply
                    refused += 1
    finally:
        # strace forwards no signal: the recorder is its only child
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        said = process.communicate(timeout=WAIT)[1]
    assert refused
    assert len(acknowledged) > 10
    assert "Input/output error" in said
    assert [each.value for each in read(tmp_path / "j")] == acknowledged
    assert json.loads((folder(tmp_path / "j") / "manifest.json").read_text())["end"] == len(acknowledged)


async def test_the_rounds_of_a_discovery_daemon_are_recorded(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    with discoverd("--journal", str(journal), "--json") as running:
        async with Service("answer", "tcp://127.0.0.1:9000", discovery=[running.surveys]):
            topics: set[str] = set()
            with trio.fail_after(WAIT):
                while topics != {"discovery.rounds", "discovery.providers", "discovery.events"}:
                    await trio.sleep(0.05)
                    topics = {each.topic for each in read(journal)}
        running.process.send_signal(signal.SIGTERM)
        assert await trio.to_thread.run_sync(running.process.wait, WAIT) == 143
    provider = next(iter(read(journal, topics="discovery.providers")))
    assert (provider.key, provider.protocol) == (b"answer", "survey")
    fields = json.loads(provider.value)
    assert (fields["name"], fields["state"]) == ("answer", "up")
    assert {"daemon", "round", "time", "rtt", "zone"} <= fields.keys()
    figures = json.loads(next(iter(read(journal, topics="discovery.rounds"))).value)
    assert {"round", "asked", "answered", "missed"} <= figures.keys()
    event = json.loads(next(iter(read(journal, topics="discovery.events"))).value)
    assert (event["name"], event["was"], event["state"]) == ("answer", "joining", "up")


def test_a_manifest_is_rebuilt_from_segments_and_the_old_one_kept(journal: Path) -> None:
    where = folder(journal)
    (where / "manifest.json").write_bytes(b"{")
    assert_fails(nngkit("journal", "ls", str(journal)), 1, "manifest.json", "rebuild-manifest")
    done = nngkit("journal", "rebuild-manifest", str(journal), "--json")
    assert (done.returncode, done.stderr.count("adopted as")) == (0, 1)
    fields = valid(done.stdout, "journal-rebuild.json")
    assert (fields["segments"], fields["records"], fields["end"]) == (1, 10, 10)
    assert (where / fields["replaced"]).read_bytes() == b"{"
    assert len(list(read(journal))) == 15
    again = nngkit("journal", "rebuild-manifest", str(journal))
    assert again.stdout.startswith("partition 0: 1 segments, 10 records; the old manifest is manifest.json.")


def test_export_reports_skipped_records(journal: Path) -> None:
    segment = next(folder(journal).glob("*.parquet"))
    segment.unlink()
    done = nngkit("journal", "export", str(journal), "--skip-missing")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 5
    first, last = done.stderr.splitlines()
    assert first.startswith("nngkit journal: ")
    assert first.endswith(f"{segment.name}: skipped 10 records, offsets 0 to 9: the file is missing")
    assert last == "nngkit journal: 10 records were skipped"
    done = nngkit("journal", "export", str(journal), "--skip-missing", "--json")
    assert [set(valid(line, "journal-export.json")) for line in done.stdout.splitlines()][-1] == {"skipped"}
    assert json.loads(done.stdout.splitlines()[-1]) == {"skipped": 10}
    assert "10 records were skipped" in done.stderr


def test_stats_count_skipped_records_by_partition(journal: Path) -> None:
    next(folder(journal).glob("*.parquet")).unlink()
    assert_fails(nngkit("journal", "stats", str(journal)), 1, "the file is missing")
    done = nngkit("journal", "stats", str(journal), "--skip-missing", "--json")
    rows = [valid(line, "journal-stats.json") for line in done.stdout.splitlines()]
    assert [row["records"] for row in rows[:-1]] == [5]
    assert rows[-1] == {"partition": 0, "skipped": 10}
    text = nngkit("journal", "stats", str(journal), "--skip-missing")
    assert "skipped" not in text.stdout
    assert text.stderr.splitlines()[-1] == "nngkit journal: 10 records were skipped"


def test_compact_reports_segments_and_refuses_other_options(tmp_path: Path) -> None:
    partition = Partition.open(tmp_path / "j", segment_bytes=1)
    for number in range(20):
        stored(partition, [entry(b"%d" % number)])
    partition.close()
    done = nngkit("journal", "compact", str(tmp_path / "j"), "--json")
    fields = valid(done.stdout, "journal-compact.json")
    assert (fields["before"], fields["after"], fields["damaged"]) == (20, 1, [])
    again = nngkit("journal", "compact", str(tmp_path / "j"))
    assert again.stdout == "partition 0: 1 segments, now 1; 0 bytes rewritten\n"
    assert_fails(nngkit("journal", "ls", str(tmp_path / "j"), "--target", "5"), 2, "--target", "is for compact only")


def test_a_time_option_beyond_the_calendar_is_refused(journal: Path) -> None:
    done = nngkit("journal", "stats", str(journal), "--from-time", "1795713922049")  # milliseconds
    assert_fails(done, 2, "--from-time", "not in the years 1 to 9999")


@pytest.mark.parametrize("stamp", [1_795_713_922_049_132_954, 253_402_300_799_999_999, -62_135_596_800_000_001])
def test_a_time_that_no_calendar_has_stops_no_tool(tmp_path: Path, stamp: int) -> None:
    partition = Partition.open(tmp_path / "j")  # below `put`, which refuses two of them
    stored(partition, [entry(b"good"), entry(b"late", timestamp=stamp)])
    partition.close()
    rows: list[dict[str, Any]] = []
    nearest = "9999-12-31T23:59:59.999Z" if stamp > 0 else "0001-01-01T00:00:00.000Z"
    for action, names in (("ls", ("min_time", "max_time")), ("stats", ("from", "to")), ("export", ("time",))):
        done = nngkit("journal", action, str(tmp_path / "j"), "--json")
        rows = [valid(line, f"journal-{action}.json") for line in done.stdout.splitlines()]
        assert (done.returncode, done.stderr) == (0, "")
        assert nearest in {row[name] for row in rows for name in names}, action
    assert rows[-1]["timestamp"] == stamp  # of export: exactly what was recorded
