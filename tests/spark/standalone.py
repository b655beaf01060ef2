"""Spark's standalone cluster on this machine: a master and workers as processes.

::

    with standalone(workers=2) as cluster:
        ... cluster.master                # spark://127.0.0.1:40123
        cluster.workers[0].kill()         # to see how a job copes

The system picks the ports; everything listens on 127.0.0.1 only. Requires PySpark for its scripts.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nngkit.errors import Broken
from nngkit.spark.java import Source, find_java, home_for_spark
from nngkit.spark.session import check_packages

__all__ = ["Cluster", "standalone"]

START_TIMEOUT: Final = 120.0  # seconds for a JVM to start: 3 on an idle machine, 40 observed on a busy one
HOME: Final = "127.0.0.1"


@dataclass
class Cluster:
    """Running cluster: the master's URL, and the workers in the order of their start."""

    master: str
    folder: Path
    environment: dict[str, str]
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    workers: list[subprocess.Popen[str]] = field(default_factory=list)

    def add_worker(self, cores: int = 1, memory: str = "1g") -> None:
        """Start one more worker; return once the master has registered it."""
        number = len(self.workers)
        options = ["--host", HOME, "--port", "0", "--webui-port", "0", "--cores", str(cores), "--memory", memory]
        work = ["--work-dir", str(self.folder / f"worker-{number}")]
        worker, _ = _start(
            self, "worker.Worker", [*options, *work, self.master], r"Successfully registered with master"
        )
        self.workers.append(worker)


@contextlib.contextmanager
def standalone(
    workers: int = 2,
    cores: int = 1,
    memory: str = "1g",
    java: Source | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Iterator[Cluster]:
    """Run a master and `workers`, each with `cores` and `memory`; end them and their children on exit.

    Raises Broken with the last lines of a process that does not start.
    """
    with tempfile.TemporaryDirectory(prefix="nngkit-cluster-", ignore_cleanup_errors=True) as scratch:
        environment = dict(environ) | {
            "JAVA_HOME": str(home_for_spark(find_java(environ, java))),
            "SPARK_LOCAL_IP": HOME,
            "SPARK_NO_DAEMONIZE": "1",
        }
        cluster = Cluster("", Path(scratch), environment)
        try:
            _, found = _start(
                cluster,
                "master.Master",
                ["--host", HOME, "--port", "0", "--webui-port", "0"],
                r"Starting Spark master at (spark://\S+)",
            )
            cluster.master = found[1]
            for _ in range(workers):
                cluster.add_worker(cores, memory)
            yield cluster
        finally:
            _end(cluster.processes)


def _start(cluster: Cluster, what: str, arguments: list[str], says: str) -> tuple[subprocess.Popen[str], re.Match[str]]:
    check_packages()
    import pyspark

    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    process = subprocess.Popen(
        [os.path.join(home, "bin", "spark-class"), f"org.apache.spark.deploy.{what}", *arguments],
        env=cluster.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # so that its executors, its children, can be ended with it
    )
    cluster.processes.append(process)
    said: list[str] = []
    found: list[re.Match[str]] = []
    heard = threading.Event()

    def listen() -> None:  # until the end: a full pipe would block the process
        assert process.stderr is not None
        for line in process.stderr:
            del said[:-20]
            said.append(line)
            if not found and (match := re.search(says, line)):
                found.append(match)
                heard.set()
        heard.set()

    threading.Thread(target=listen, name=f"spark {what}", daemon=True).start()
    heard.wait(START_TIMEOUT)
    if not found:
        raise Broken(f"Spark's {what} has not started: {''.join(said[-3:]).strip() or 'no output'}")
    return process, found[0]


def _end(processes: list[subprocess.Popen[str]]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in reversed(processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        deadline = time.monotonic() + 10
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
    for process in processes:
        if process.stderr is not None:
            with contextlib.suppress(OSError):
                process.stderr.close()
