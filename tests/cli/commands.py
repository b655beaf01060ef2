"""Run the command as users do: as a process, with a clean environment. Shared by its tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

from nngkit.discovery.settings import VARIABLES
from tests.preloaded import Popen, run

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
OURS = {name for row in VARIABLES for name in (row.name, row.article)} | {
    *("NO_COLOR", "TERM"),
    *("COLUMNS", "LINES"),  # set by pytest-xdist, and curses prefers them to the terminal's size
}
WAIT = 30


def environment(**variables: str) -> dict[str, str]:
    """Return the environment without variables that affect the command."""
    return {name: value for name, value in os.environ.items() if name not in OURS} | variables


def command(*arguments: str) -> list[str]:
    """Return the command line of `nngkit ...`, on PATH or not."""
    return [sys.executable, "-m", "nngkit", *arguments]


def nngkit(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `nngkit ...` to its end."""
    return run(
        command(*arguments),
        cwd=ROOT,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT,
    )


def assert_fails(done: subprocess.CompletedProcess[str], code: int, *says: str) -> None:
    """Assert that it ended with `code` and one line on stderr with these texts, and no other output."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert re.fullmatch(r"nngkit[^\n]*\n", done.stderr), done.stderr
    for what in says:
        assert what in done.stderr


def valid(line: str, schema: str) -> dict[str, Any]:
    """Parse a JSON line and validate it against a schema of docs/schemas/."""
    found: dict[str, Any] = json.loads(line)
    jsonschema.validate(found, json.loads((SCHEMAS / schema).read_text()), cls=jsonschema.Draft202012Validator)
    return found


@dataclass
class Running:
    """A daemon under test: its addresses, and its output by lines."""

    process: subprocess.Popen[str]
    surveys: str
    answers: str
    warnings: list[str]

    def line(self) -> str:
        """Return the next line of its output; the test's timeout bounds the wait."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def change(self) -> dict[str, Any]:
        """Return the next line as JSON."""
        return valid(self.line(), "discoverd.json")


@contextmanager
def discoverd(*arguments: str, stdout: int = subprocess.PIPE, **variables: str) -> Iterator[Running]:
    """Run `nngkit discoverd` until the block ends, by default with port 0 and short times."""
    given = {"NNGKIT_LISTEN": "tcp://127.0.0.1:0", "NNGKIT_DEADLINE": "500", "NNGKIT_INTERVAL": "100", **variables}
    with Popen(
        command("discoverd", *arguments),
        cwd=ROOT,
        env=environment(**{name: value for name, value in given.items() if value}),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            warnings = []
            while not (found := re.search(r"surveys at (\S+).*, answers at (\S+)", line := process.stderr.readline())):
                assert line, "it has ended"
                warnings.append(line)
            yield Running(process, found[1], found[2], warnings)
        finally:
            process.kill()
