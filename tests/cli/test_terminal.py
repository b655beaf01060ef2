"""Text of a peer is shown on a terminal, and controls it nowhere: errors, log lines, tables, JSON."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from nngkit.blocking import Server
from nngkit.cli.streams.log_lines import log_to_stderr
from nngkit.cli.streams.output import columns, json_line
from nngkit.cli.streams.stderr import say
from nngkit.errors import RemoteError
from tests.cli.commands import nngkit

HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\u202egone"
SHOWN = r"\x1b[2J\x1b]0;title\x07\x9b31m\u202egone"


def test_an_error_and_a_log_line_show_escapes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    say("nngkit", f"refused: {HOSTILE}\n now")
    assert capsys.readouterr().err == f"nngkit: refused: {SHOWN} now\n"
    monkeypatch.setattr(logging.root, "handlers", [])
    log_to_stderr("nngkit record", "nngkit.journal")
    logging.getLogger("nngkit.journal").warning("a peer said %s", HOSTILE)
    assert capsys.readouterr().err == f"nngkit record: a peer said {SHOWN}\n"


def test_a_table_shows_escapes_and_keeps_its_own_colours() -> None:
    assert columns(("A", "B"), [(HOSTILE, "\033[32mup\033[0m")]).splitlines()[1] == f"{SHOWN}  \033[32mup\033[0m"


def test_a_line_of_json_has_escapes_that_json_reads() -> None:
    line = json_line({"why": HOSTILE, "name": "Zoë 😀"})
    assert line.isprintable()
    assert json.loads(line) == {"why": HOSTILE, "name": "Zoë 😀"}
    assert "Zoë 😀" in line


@pytest.mark.slow
def test_the_error_of_a_remote_handler_is_shown() -> None:
    server = Server("answer", listen="tcp://127.0.0.1:0", codec="json", discovery=[])

    @server.method
    def refuse(body: Any) -> None:
        raise RemoteError(HOSTILE, kind="declined")

    with server:
        done = nngkit("call", "answer", "--address", server.address, "--codec", "json", "--method", "refuse", "-D", "1")
        assert done.returncode == 1
        assert done.stderr == f"nngkit call: {server.address}: declined: {SHOWN}\n"
