"""Start a Python program repeatedly, for start_up.py."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _child import report

LEAST = 5  # starts, regardless of their duration


def start(task: dict[str, Any]) -> None:
    """Measure CPU and duration of a start: medians of as many starts as fit into the given time."""
    cpu, took, begun = [], [], time.perf_counter()
    # with bytecode, as in an installed package, also if the environment disables writing it
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parent.parent / "build" / "bench" / "bytecode")
    warm: subprocess.CompletedProcess[bytes] | None = None
    while len(cpu) < LEAST or time.perf_counter() - begun < task["seconds"]:
        used, at = _cpu(), time.perf_counter()
        command = [sys.executable, *task["arguments"]]
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60
        )
        if warm is None:  # the first start compiles missing bytecode
            warm = done
            continue
        took.append(time.perf_counter() - at)
        cpu.append(_cpu() - used)
    report(p50_us=statistics.median(took) * 1e6, cpu_us=statistics.median(cpu) * 1e6)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
