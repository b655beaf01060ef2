"""Exports are killed while a recorder seals: the table has each record once.

6 kills; `python3 dev.py bench kills --only exports`, or benchmarks/_export_kills.py --kills 100, for more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_killed_exports_lose_and_double_nothing(kind: str, tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "benchmarks" / "_export_kills.py"), "--kills", "6", "--format", kind]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert (figures["kills"], figures["lost"], figures["doubled"], figures["wrong"]) == (6, 0, 0, [])
    assert figures["records"] > 0
    assert figures["snapshots"] > 0
