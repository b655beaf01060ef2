"""Programs in processes of their own, for the socket tests. Every wait is bounded by WAIT.

Patterns, wires and callers are those of nngkit.testing; conftest.py makes them fixtures.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from nngkit.testing.callers import WAIT

__all__ = ["ROOT", "WAIT", "available_memory", "run_python", "said"]

ROOT = Path(__file__).parents[2]


def run_python(program: str, *arguments: str, timeout: float = WAIT) -> subprocess.CompletedProcess[str]:
    """Run ``program`` in a Python of its own; kill it after ``timeout`` seconds (subprocess.TimeoutExpired)."""
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def said(program: str, *arguments: str, timeout: float = WAIT) -> str:
    """Return the output of ``program``, which must exit with 0 and print nothing to standard error."""
    done = run_python(program, *arguments, timeout=timeout)
    assert (done.returncode, done.stderr) == (0, ""), f"exit code {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def available_memory() -> int:
    """Return the bytes that programs can get: free ones, and those of files that are only kept in memory."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0
