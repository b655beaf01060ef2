"""Every option of the stand-ins with every protocol: exit code, stdout and stderr equal the originals'."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import pytest

from nngkit.cli.main import main
from tests.cli.cases import recorded
from tests.cli.matrix import ENDLESS, RECORDED, by, lines, run_all
from tests.protocols.programs import needed

AT_ONCE = 16  # of ours, which spend more of their time on a CPU
PATIENCE = 60.0  # seconds for what is to end by itself; as long as it takes on a busy machine


def deviates(program: str, line: str) -> bool:
    """Return True for the deviations listed in docs/command.md."""
    words = line.split()
    if program == "nngcat":
        return "--pair" in words and "--bind" in words  # the original finds no protocol
    return "--delay -1" in line  # the original aborts


def by_chance(program: str, line: str) -> bool:
    """Return True where the original fails if a millisecond passes while it sends.

    Without an interval (-1), it sets a receive timeout of -1 less the milliseconds that the sending took: endless, or
    "Cannot set recv timeout: Invalid argument" (sendrecv in nngcat.c of 1.5.2).
    """
    words = line.split()
    return program == "nngcat" and {"--surveyor", "--count"} <= set(words) and "--interval" not in words


def refused(outcome: dict[str, Any]) -> bool:
    """Return True if the original rejected the arguments or addresses before any wait."""
    return outcome["code"] in (1, 3) and not outcome["stderr"].startswith(
        ("Unable to", "Send error", "Receive error", "Can't send", "Can't recv")
    )


@pytest.mark.parametrize("program", ["nngcat", "nanocat"])
def test_the_stand_in_rejects_the_same_lines_as_the_original(
    program: str, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    expected = recorded(RECORDED, program)
    tried = [line for line in lines(program) if refused(expected[line]) and not deviates(program, line)]
    assert len(tried) > 80
    for line in tried:
        code = main([program, *shlex.split(line)])
        out, err = capsysbinary.readouterr()
        assert {"code": code, "stdout": out.decode(), "stderr": err.decode()} == expected[line], line


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", [pytest.param(each, marks=needed(each)) for each in ("nngcat", "nanocat")])
def test_the_whole_matrix_differs_only_by_the_listed_deviations(program: str) -> None:
    outcomes = recorded(RECORDED, program)
    expected = {line: outcomes[line] for line in lines(program) if not deviates(program, line)}

    def longest(line: str) -> float:
        return ENDLESS if expected[line]["code"] is None else PATIENCE

    certain = {line: outcome for line, outcome in expected.items() if not by_chance(program, line)}
    assert len(expected) - len(certain) <= 2
    assert run_all(by([program], longest), list(certain)) == certain
    # what is refused is compared by the test above, without a process for each
    ours = [line for line, outcome in expected.items() if not refused(outcome)]
    found = run_all(by([sys.executable, "-m", "nngkit", program], longest), ours, AT_ONCE)
    assert found == {line: expected[line] for line in ours}
