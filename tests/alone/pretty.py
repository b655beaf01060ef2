"""The extra `pretty`: the board of examples/demo.py."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

board = import_module("_demo.board").Board(time.monotonic())
board.launched("a", 1, board.started)
pretty = import_module("_demo.screen").Pretty(board)
pretty.say(0.0, "demo", "hello")
pretty.finish([], 1.0)
