"""Frozen objects cost the garbage collector nothing, and each forked worker freezes its own."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc, os, time
import pyarrow, pyspark.sql.datasource
from nngkit.spark.reading.worker import freeze

def took():
    begun = time.process_time()
    gc.collect()
    return time.process_time() - begun

before = took()
freeze()
frozen = gc.get_freeze_count()
assert frozen > 10_000, frozen
assert took() < before / 5, (took(), before)
made = [[] for _ in range(1000)]
freeze()
assert gc.get_freeze_count() <= frozen, "a second call must not freeze newer objects"
child = os.fork()
if not child:
    freeze()
    os._exit(0 if gc.get_freeze_count() >= frozen + 1000 else 1)
assert os.waitpid(child, 0)[1] == 0, "a forked process must freeze its own objects"
assert gc.isenabled()
"""


def test_imported_objects_are_frozen_once_in_each_process() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
