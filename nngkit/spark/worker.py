"""What a worker of Spark's does once: put what it has imported out of the garbage collector's sight.

Spark's Python daemon has each worker collect garbage after each task. With pyarrow, pandas and PySpark in it, that
walks 80,000 objects that will never go: 57 ms, in three workers a micro-batch, and the next task waits for it. What is
frozen is not walked; a collection then takes 0.01 ms.
"""

from __future__ import annotations

import gc
import os

__all__ = ["freeze"]

_frozen = 0  # the process that has: workers are forked


def freeze() -> None:
    """Freeze what is there, the first time in each process. For a worker, behind its imports."""
    global _frozen
    if _frozen != os.getpid():
        _frozen = os.getpid()
        gc.collect()  # garbage that is frozen stays for ever
        gc.freeze()
