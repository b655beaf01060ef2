"""Checks of `nngkit spark doctor`: the requirements of Spark on this machine, each with advice if it is missing.

Imports no PySpark, as it must run without it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Final, Literal

from nngkit.errors import ConfigError
from nngkit.spark.java import candidates, find_java, home_for_spark

Level = Literal["ok", "warning", "problem"]

LEAST: Final = {"pyspark": (4, 3), "pyarrow": (18,), "pandas": (2, 2), "py4j": (0, 10, 9), "numpy": (1, 23)}
BELOW: Final = {"pandas": (3,)}
NEEDED_BY: Final[dict[str, tuple[Level, str, str]]] = {  # package -> level, the feature that needs it, the extra
    "google-crc32c": ("problem", "every read of a journal", "spark"),
    "pycrdt": ("warning", "the job documents", "documents"),
}
START_TIMEOUT: Final = 120.0  # seconds for Spark to start and to count; 20 were observed on a busy machine


@dataclass(frozen=True)
class Check:
    """Result of one check; `advice` is the remedy."""

    level: Level
    what: str
    advice: str = ""


def check_environment(environ: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Run all checks except starting Spark."""
    yield from _packages()
    yield from _javas(environ)
    for program, why in (("bash", "Spark's scripts require it"), ("sh", "nngkit's Java launcher requires it")):
        if shutil.which(program, path=environ.get("PATH")):
            yield Check("ok", f"{program} is installed")
        else:
            yield Check("problem", f"{program} is not installed", f"install it: {why}")
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
        yield Check("ok", "listening on 127.0.0.1 works")
    except OSError as error:
        yield Check("problem", f"cannot listen on 127.0.0.1: {error.strerror}", "bring up the loopback device")
    if given := environ.get("SPARK_HOME"):
        yield Check(
            "warning", f"SPARK_HOME is {given}", "this Spark is used instead of PySpark's own; unset it if in doubt"
        )
    if (python := environ.get("PYSPARK_PYTHON")) and python != sys.executable:
        yield Check("warning", f"PYSPARK_PYTHON is {python}", "the workers use this Python; it must have nngkit")


def _packages() -> Iterator[Check]:
    for name, least in LEAST.items():
        wanted = ".".join(map(str, least))
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Check("problem", f"{name} is not installed", "pip install 'nngkit[spark]'")
            continue
        have = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
        if have < least:
            yield Check("problem", f"{name} is {version}, required is {wanted}", "pip install 'nngkit[spark]'")
        elif name in BELOW and have >= BELOW[name]:
            most = ".".join(map(str, BELOW[name]))
            yield Check(
                "problem", f"{name} is {version}, PySpark requires one below {most}", f"pip install '{name}<{most}'"
            )
        else:
            yield Check("ok", f"{name} {version}")
    for name, (level, what, extra) in NEEDED_BY.items():
        try:
            yield Check("ok", f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            yield Check(level, f"{name} is not installed, required by {what}", f"pip install 'nngkit[{extra}]'")


def _javas(environ: Mapping[str, str]) -> Iterator[Check]:
    for java in candidates(environ):
        what = f"Java {java.version or '(does not run)'} from {java.source}: {java.home}"
        if java.good:
            yield Check("ok", what + ("" if java.has_vector else ", through nngkit's launcher"))
        else:
            yield Check("warning", what, "ignored: Spark requires 17 or newer")
    try:
        yield Check("ok", f"Spark runs with JAVA_HOME={home_for_spark(find_java(environ))}")
    except ConfigError as error:
        yield Check("problem", str(error), "pip install 'nngkit[java]', or Debian's openjdk-17-jre-headless")


def check_start() -> Check:
    """Start Spark in a process of its own and run Python workers; takes seconds."""
    script = (
        "from nngkit.spark import session\n"
        "with session('local[1]') as spark:\n"
        "    batches = spark.range(3).mapInArrow(lambda batches: batches, 'id long')\n"
        "    assert batches.count() == 3\n"
        "    print(spark.version)\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=START_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return Check(
            "problem", f"Spark did not start and count to 3 in {START_TIMEOUT:g} s", "is the machine very busy?"
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Check("problem", f"Spark does not start: {last}", "fix the problems above and run it again")
    return Check("ok", f"Spark {done.stdout.split()[-1]} started, and counted to 3 in Python")
