"""`nngkit consume` as a process: output, acknowledgement, the server, failures."""

from __future__ import annotations

import base64
import signal
from pathlib import Path

import pytest

from nngkit.journal.writing.partition import Partition
from tests.cli.commands import assert_fails, nngkit, valid
from tests.cli.processes import Running
from tests.journal.partitions import entry, stored


@pytest.fixture
def journal(tmp_path: Path) -> str:
    partition = Partition.open(tmp_path / "j")
    stored(partition, [entry(b"%d" % number, timestamp=number * 1_000_000, key=b"k") for number in range(5)])
    partition.close()
    return str(tmp_path / "j")


def test_consume_prints_each_record_once_over_two_runs(journal: str) -> None:
    done = nngkit("consume", "c", "--journal", journal, "--count", "3")
    assert done.stdout.split() == ["0", "1", "2"]
    done = nngkit("consume", "c", "--journal", journal, "--idle", "0.3", "--json")
    records = [valid(line, "consume.json") for line in done.stdout.splitlines()]
    assert [base64.b64decode(each["value"]) for each in records] == [b"3", b"4"]
    assert {each["deliveries"] for each in records} == {1}
    done = nngkit("consume", "--info", "--journal", journal, "--json")
    info = valid(done.stdout, "consume.json")
    assert (info["name"], info["floor"], info["behind"]) == ("c", 5, 0)


def test_consume_from_a_server_runs_a_command_until_it_succeeds(journal: str, tmp_path: Path) -> None:
    serving = Running("consume", "--serve", "--journal", journal, "--listen", f"ipc://{tmp_path}/s")
    with serving:
        assert serving.addresses()
        script = f'test "$NNGKIT_OFFSET" != 1 -o "$NNGKIT_DELIVERIES" != 1 && cat >> {tmp_path}/out'
        where = ("--server", f"ipc://{tmp_path}/s")
        done = nngkit("consume", "c", *where, "--exec", script, "--count", "5", "--retry", "0.01")
        assert done.returncode == 0
        assert "offset 1 of partition 0" in done.stderr
        assert sorted((tmp_path / "out").read_text()) == list("01234")
        assert nngkit("consume", "c", *where, "--delete").returncode == 0
        assert serving.end(signal.SIGTERM) == 143


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("consume", "../c", "--journal", "{journal}"), 2, ("consumer", "'../c'")),
        (("consume", "c"), 2, ("--server",)),
        (("consume", "--serve", "--journal", "{journal}"), 2, ("--serve", "--listen")),
        (("consume", "c", "--journal", "{journal}", "--from", "yesterday"), 2, ("--from", "'yesterday'")),
        (("consume", "c", "--journal", "{journal}/none"), 1, ("not found",)),
    ],
)
def test_bad_use_is_one_clear_line(journal: str, arguments: tuple[str, ...], code: int, words: tuple[str, ...]) -> None:
    done = nngkit(*(each.replace("{journal}", journal) for each in arguments))
    assert_fails(done, code, *words)
