"""Modules loaded by the command: imports cost CPU at every start, so help and wrong options load almost nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nngkit.cli.commands import COMMANDS
from tests.cli.commands import ROOT

EVENT_LOOPS_AND_NNG = {"trio", "pynng", "asyncio", "cbor2", "rich"}
NEVER_FOR_A_CAT = {"trio", "asyncio", "argparse", "nngkit.discovery"}


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules loaded at the end of `nngkit ARGUMENTS`."""
    script = (
        "import sys, os; from nngkit.cli.main import main\n"
        f"main({list(arguments)!r})\n"
        "os.write(3, ' '.join(sys.modules).encode())"
    )
    shell = f'exec "{sys.executable}" -c "$0" 3>&1 >/dev/null 2>/dev/null'
    done = subprocess.run(["/bin/sh", "-c", shell, script], cwd=ROOT, capture_output=True, text=True, timeout=30)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["cat", "--help"],
        ["pub", "--help"],
        ["cat", "--bogus"],
        ["nngcat", "--help"],
        ["nngcat", "--version"],
        ["nanocat", "--help"],
        ["nngcat", "--bogus"],
        ["nn_push", "-l1"],
    ],
    ids=" ".join,
)
def test_help_and_a_wrong_option_load_no_event_loop_and_no_nng(arguments: list[str]) -> None:
    loaded = loaded_by(*arguments)
    assert "nngkit.cli.main" in loaded
    assert not loaded & (EVENT_LOOPS_AND_NNG | NEVER_FOR_A_CAT)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_no_help_loads_an_event_loop_or_nng(command: str) -> None:
    loaded = loaded_by(command, "--help")
    assert "nngkit.cli.main" in loaded
    assert not loaded & EVENT_LOOPS_AND_NNG


@pytest.mark.parametrize("command", [["nanocat", "--pull", "-l1"], ["cat", "--pull", "-l1"]], ids=" ".join)
def test_a_cat_loads_no_trio_and_no_argparse(command: list[str]) -> None:
    loaded = loaded_by(*command, "--recv-timeout", "0")
    assert "pynng" in loaded
    assert not loaded & NEVER_FOR_A_CAT


def test_later_imports_get_the_real_asyncio() -> None:
    script = (
        "from nngkit.cli.cat.lazy_bricks import load_bricks; load_bricks()\n"
        "import asyncio, pynng\n"
        "async def both():\n"
        "    with pynng.Pair0(listen='inproc://a') as a, pynng.Pair0(dial='inproc://a') as b:\n"
        "        await a.asend(b'x'); return await b.arecv()\n"
        "print(asyncio.run(both()))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("b'x'\n", "")
