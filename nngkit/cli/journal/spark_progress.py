"""Progress of Spark's stages on standard error, as one line that is redrawn while a job runs.

::

    with watched(spark.sparkContext, asked=arguments.watch):
        rows.collect()

A thread asks Spark every 0.2 s. On a terminal the line is erased at the end, so that results never follow it on the
same line; elsewhere, if asked for, a line is printed whenever it has changed, at most one a second.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from nngkit.cli.streams.output import span

TICK: Final = 0.2  # seconds between two looks: 3 calls into the JVM, of about a millisecond each
EVERY: Final = 1.0  # seconds between two lines that are not redrawn
WIDTH: Final = 20


class Stage(NamedTuple):
    """Tasks of a running stage."""

    number: int
    done: int
    total: int
    running: int


class StageClock:
    """Knows since when each stage has been running."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[float, int]] = {}

    def rate(self, stage: Stage, now: float) -> float:
        """Return the tasks done a second since the stage was first seen; 0 while none is known."""
        since, done = self._since.setdefault(stage.number, (now, stage.done))
        return (stage.done - done) / (now - since) if now > since else 0.0


def line(stages: Sequence[Stage], clock: StageClock, now: float) -> str:
    """Return the text for the running stages: the one that is furthest, and how many others there are."""
    if not stages:
        return "Spark is planning"
    rates = {stage.number: clock.rate(stage, now) for stage in stages}
    first = max(stages, key=lambda stage: (stage.running > 0, stage.done / max(1, stage.total), -stage.number))
    rate = rates[first.number]
    bar = "#" * (WIDTH * first.done // max(1, first.total))
    text = f"[{bar:<{WIDTH}}] stage {first.number}: {first.done}/{first.total} tasks"
    if rate > 0:
        text += f", {rate:.3g}/s, {span((first.total - first.done) / rate + 0.999)} left"
    return text + (f" (+{len(stages) - 1} more)" if len(stages) > 1 else "")


def stages_of(context: Any) -> list[Stage]:
    """Ask Spark for its running stages."""
    tracker = context.statusTracker()
    infos = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    return [
        Stage(info.stageId, info.numCompletedTasks, info.numTasks, info.numActiveTasks)
        for info in infos
        if info is not None
    ]


@contextmanager
def watched(context: Any, asked: bool = False) -> Iterator[None]:
    """Show the progress while the block runs, if standard error is a terminal or if it is asked for."""
    stream = sys.stderr
    redraws = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    if stream is None or not (redraws or asked):
        yield
        return
    ended = threading.Event()
    show = _redrawn if redraws else _printed
    thread = threading.Thread(target=show, args=(lambda: stages_of(context), ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _redrawn(stages: Callable[[], list[Stage]], ended: threading.Event) -> None:
    clock = StageClock()
    while not ended.wait(TICK):
        columns = os.get_terminal_size(2).columns
        os.write(2, f"\r\033[K{line(stages(), clock, time.monotonic())[: columns - 1]}".encode())
    os.write(2, b"\r\033[K")


def _printed(stages: Callable[[], list[Stage]], ended: threading.Event) -> None:
    clock, before, next_at = StageClock(), "", 0.0
    while not ended.wait(TICK):
        found, now = stages(), time.monotonic()
        text = line(found, clock, now)
        if found and text != before and now >= next_at:
            print(text, file=sys.stderr, flush=True)
            before, next_at = text, now + EVERY
