"""`nngkit spark sql` at a terminal: one session for all that a person does there."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.terminals import Terminal
from tests.spark.journals import write


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_prompt_runs_completes_cancels_and_explains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cli.terminals.WAIT", 60)  # seconds for a step: Spark starts, on a busy machine
    write(tmp_path / "j", 100, topics=("a", "b"))
    words = ("spark", "sql", "--journal", str(tmp_path / "j"), "--small")
    with Terminal(*words, columns=100, rows=30, XDG_STATE_HOME=str(tmp_path)) as terminal:
        terminal.shows("nngkit>")
        terminal.send("SELECT topic, count(*) AS n\r")
        terminal.shows("...>")
        terminal.send("FROM rec\t")
        terminal.shows("FROM records")
        terminal.send("GROUP BY topic ORDER BY topic;\r")
        terminal.shows("topic   n", "a      50", "b      50")
        terminal.send("SELECT topik FROM records;\r")
        terminal.shows("no column `topik`; there are records: timestamp, topic, key, value")
        # More than a second's work for any machine: it ends only because it is cancelled.
        terminal.send("SELECT count(*) FROM range(1000000000) a JOIN range(1000000000) b ON a.id * 7 < b.id * b.id;\r")
        terminal.shows("tasks")
        terminal.process.send_signal(signal.SIGINT)  # what Ctrl-C does
        terminal.shows("nngkit spark sql: cancelled")
        terminal.send("\\d edges\r")
        terminal.shows("source", "bigint")
        terminal.send("\\q\r")
        assert terminal.end() == 0
    assert b"Exception" not in terminal.written
    assert b"\tat " not in terminal.written
    assert "GROUP BY topic" in (tmp_path / "nngkit" / "sql_history").read_text()
