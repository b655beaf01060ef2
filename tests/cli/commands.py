"""What the tests of the command share: it is run as users run it, as a process, with a clean environment."""

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

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
OURS = {name for row in VARIABLES for name in (row.name, row.article)} | {"NO_COLOR", "TERM"}
WAIT = 30


def environment(**variables: str) -> dict[str, str]:
    """The environment, without what would steer the command."""
    return {name: value for name, value in os.environ.items() if name not in OURS} | variables


def command(*arguments: str) -> list[str]:
    """`nngkit ...`, whether or not it is on PATH."""
    return [sys.executable, "-m", "nngkit", *arguments]


def nngkit(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT,
    )


def assert_fails(done: subprocess.CompletedProcess[str], code: int, *says: str) -> None:
    """It ended with that code and one line on stderr which says what and where, and nothing else."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert re.fullmatch(r"nngkit[^\n]*\n", done.stderr), done.stderr
    for what in says:
        assert what in done.stderr


def valid(line: str, schema: str) -> dict[str, Any]:
    """The JSON line, which has to be as docs/schemas/ says."""
    found: dict[str, Any] = json.loads(line)
    jsonschema.validate(found, json.loads((SCHEMAS / schema).read_text()), cls=jsonschema.Draft202012Validator)
    return found


@dataclass
class Running:
    """A daemon under test: where it surveys and answers, and its output line by line."""

    process: subprocess.Popen[str]
    surveys: str
    answers: str
    warnings: list[str]

    def line(self) -> str:
        """The next line of its output; the test's own timeout bounds it."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def change(self) -> dict[str, Any]:
        """The next line, as JSON."""
        return valid(self.line(), "discoverd.json")


@contextmanager
def discoverd(*arguments: str, stdout: int = subprocess.PIPE, **variables: str) -> Iterator[Running]:
    """`nngkit discoverd` until the block ends, with port 0 and short times unless told otherwise."""
    given = {"NNGKIT_LISTEN": "tcp://127.0.0.1:0", "NNGKIT_DEADLINE": "500", "NNGKIT_INTERVAL": "100", **variables}
    with subprocess.Popen(
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
