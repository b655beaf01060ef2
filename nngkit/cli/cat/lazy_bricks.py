"""Import the protocol sockets without asyncio, which is half the cost of `import pynng` and unused by cat commands.

pynng imports asyncio, and uses it only when an asyncio program calls. So it gets a proxy module, which loads the real
one at the first access. (importlib's LazyLoader does not work: before Python 3.12 the second `import asyncio` loads
it.) benchmarks/start_up.py measures this.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def load_bricks() -> None:
    """Import nngkit.protocols, with 15 ms less CPU."""
    if "nngkit.protocols" in sys.modules:
        return
    absent = "asyncio" not in sys.modules
    if absent:
        sys.modules["asyncio"] = _LazyModule("asyncio")
    collected = gc.isenabled()
    gc.disable()  # imports leave no garbage, and the search for it takes 5 ms
    try:
        import_module("nngkit.protocols")
    finally:
        if absent:
            del sys.modules["asyncio"]  # later imports get the real module
        gc.freeze()
        if collected:
            gc.enable()
