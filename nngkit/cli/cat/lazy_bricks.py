"""Bringing in the bricks without what a cat command never uses: half of what `import pynng` costs is asyncio.

pynng imports asyncio by name and touches it only when an asyncio program calls it. So it is given a stand-in meanwhile,
which becomes the real one when it is first asked for something. (importlib's LazyLoader will not do: before Python 3.12
the second `import asyncio` loads it.) benchmarks/start_up.py has the figures.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["load_bricks"]


class _PutOff(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def load_bricks() -> None:
    """`import nngkit.protocols`, at 15 ms less of CPU."""
    if "nngkit.protocols" in sys.modules:
        return
    absent = "asyncio" not in sys.modules
    if absent:
        sys.modules["asyncio"] = _PutOff("asyncio")
    collected = gc.isenabled()
    gc.disable()  # what modules are made of stays: looking for garbage in it takes 5 ms and finds none
    try:
        import_module("nngkit.protocols")
    finally:
        if absent:
            del sys.modules["asyncio"]  # whoever imports it from now on gets the real one
        gc.freeze()
        if collected:
            gc.enable()
