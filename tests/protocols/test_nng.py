"""The findings of docs/nng.md about NNG and pynng: every script of docs/nng/ runs in a process of its own.

A script that fails shows that NNG or pynng has changed: then the page, and the workaround in nngkit, may change too.
Nothing here imports nngkit.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SCRIPTS = sorted(path.stem for path in (DOCS / "nng").glob("[!_]*.py"))
WAIT = 45.0  # seconds for one script; each ends earlier by itself

# Defects that depend on chance, with the seconds for which each is tried: the result is printed and not asserted.
BY_CHANCE = {
    "aio_stop_completing": 4,
    "close_while_receiving": 5,
    "exit_with_sockets_open": 4,
    "listener_close_leaks": 4,
    "pipe_events_order": 4,
    "push_departing_pipe": 8,
    "push_young_pipe": 8,
    "raw_send_kept": 8,
    "signal_unnoticed": 4,
    "stream_dialer_free": 4,
    "stream_ws_dialer_close": 4,
    "wss_dialer_close": 6,
    "wss_listener_close": 5,
}
# Defects that always crash a child of the script, with the signal that its output must name.
CRASHES = {
    "fork_aborts": "-6",
    "long_name": "-11",
    "stream_exit_aborts": "-6",
    "stream_partial_fault": "-6",
    "stream_post_pending": "-6",
    "unlimited_size": "-6",
}


def result_of(script: str, *arguments: str) -> tuple[int, str]:
    """Run `script`; return its exit code and the one line that it prints."""
    command = [sys.executable, str(DOCS / "nng" / f"{script}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    (line,) = done.stdout.splitlines() or [f"nothing printed: {done.stderr}"]
    return done.returncode, line


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [script for script in SCRIPTS if script not in BY_CHANCE],
)
def test_defect_is_reproduced(script: str) -> None:
    code, line = result_of(script)
    assert code == 0, line
    if (ending := CRASHES.get(script)) is not None:
        assert re.search(rf"(?<!\d){ending}\b", line), line


@pytest.mark.slow
@pytest.mark.parametrize("script", BY_CHANCE)
def test_defect_by_chance_is_tried(script: str) -> None:
    code, line = result_of(script, str(BY_CHANCE[script]))
    print(f"{script}: {line}")  # noqa: T201
    assert code in (0, 1), line


def test_the_page_and_the_folder_list_the_same_scripts() -> None:
    named = re.findall(r"\(nng/(\w+)\.py\)", (DOCS / "nng.md").read_text())
    assert sorted(set(named)) == SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_states_expected_and_observed(script: str) -> None:
    head = (DOCS / "nng" / f"{script}.py").read_text().split('"""')[1]
    assert "pynng 0.9.0 (NNG 1.11.0)" in head
    assert re.search(r"^Expected\b.*:", head, re.MULTILINE)
    assert re.search(r"^Observed:", head, re.MULTILINE)


def test_lists_contain_scripts_only() -> None:
    assert {*BY_CHANCE, *CRASHES} <= {*SCRIPTS}
