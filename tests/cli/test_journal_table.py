"""`nngkit journal export --iceberg|--delta`, as a process."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from nngkit.lakehouse import open_table
from tests.cli.commands import ROOT, assert_fails, command, environment, nngkit, valid
from tests.lakehouse.journals import seal
from tests.preloaded import Popen


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_export_prints_the_snapshot_and_what_it_added(kind: str, tmp_path: Path) -> None:
    seal(tmp_path / "j", 10)
    where = [str(tmp_path / "j"), f"--{kind}", str(tmp_path / "t")]
    done = nngkit("journal", "export", *where, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    fields = valid(done.stdout, "journal-table.json")
    assert (fields["added"], fields["removed"], fields["kept"], fields["offsets"]) == (1, 0, 0, {"0": 10})
    assert open_table(tmp_path / "t").snapshots()[0].id == fields["snapshot"]
    again = nngkit("journal", "export", *where)
    assert again.stdout == "nothing new: 0 files added, 0 removed; partition 0 up to offset 10\n"
    assert valid(nngkit("journal", "export", *where, "--json").stdout, "journal-table.json")["snapshot"] is None


@pytest.mark.parametrize(
    ("arguments", "option", "says"),
    [
        (["ls", "--watch", "3"], "--watch", "is for export only"),
        (["export", "--watch", "3"], "--watch", "add --iceberg TARGET or --delta TARGET"),
        (["export", "--delta", "t", "--topic", "a"], "--topic", "has all sealed segments"),
        (["export", "--delta", "t", "--output", "f"], "--output", "has all sealed segments"),
        (["export", "--delta", "t", "--in-place"], "in_place", "Iceberg"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments: list[str], option: str, says: str, tmp_path: Path) -> None:
    seal(tmp_path / "j", 1)
    action, *rest = arguments
    rest = [str(tmp_path / "t") if word == "t" else word for word in rest]
    assert_fails(nngkit("journal", action, str(tmp_path / "j"), *rest), 2, option, says)
    assert not (tmp_path / "t").exists()


@pytest.mark.slow
def test_watch_exports_what_is_sealed_until_sigterm(tmp_path: Path) -> None:
    seal(tmp_path / "j", 10)
    argv = command("journal", "export", str(tmp_path / "j"), "--delta", str(tmp_path / "t"), "--watch", "0.1", "--json")
    with Popen(argv, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["offsets"] == {"0": 10}
            seal(tmp_path / "j", 5, 10)
            assert json.loads(process.stdout.readline())["offsets"] == {"0": 15}
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 128 + signal.SIGTERM
        finally:
            process.kill()
    assert open_table(tmp_path / "t").arrow().count_rows() == 15
