"""The progress bar: only on a terminal, and erased before results are written."""

from __future__ import annotations

import os
import sys
import threading

import pytest
import trio

from nngkit.cli.streams import progress
from tests.cli.terminals import Screen


class Terminal:
    def isatty(self) -> bool:
        return True


async def test_a_bar_drawn_at_the_end_is_erased_before_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Simulate a slow terminal: the bar is written 0.1 s late, if nothing was written before."""
    written, begun, wiped = [], threading.Event(), threading.Event()

    def write(fd: int, data: bytes) -> int:
        if data == b"\r\033[K":
            written.append(data)
            wiped.set()
        else:
            begun.set()
            wiped.wait(0.1)
            written.append(data)
        return len(data)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    async with progress.shown("pipeline", 5.0):
        assert await trio.to_thread.run_sync(begun.wait, 5)
    screen = Screen(80, 2)
    screen.feed(b"".join(written) + b"result")
    assert screen.text == ["result", ""]
    assert b"pipeline" in written[0]


async def test_there_is_no_bar_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    async with progress.shown("pipeline", 5.0):
        pass
    assert capfd.readouterr().err == ""
