"""The log: docs/telemetry.md lists its loggers, a line that repeats is said once, JSON has the fields of a record."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from nngkit.cli.streams import stderr
from nngkit.cli.streams.log_lines import log_to_stderr

ROOT = Path(__file__).parents[2]


def test_the_page_lists_each_logger() -> None:
    sources = [*(ROOT / "nngkit").rglob("*.py"), *(ROOT / "protocols").rglob("*.py")]
    used = {name for path in sources for name in re.findall(r'getLogger\("(nngkit[\w.]*)"\)', path.read_text())}
    page = (ROOT / "docs" / "telemetry.md").read_text().partition("## The log")[2]
    assert re.findall(r"^\| `(nngkit[\w.]*)` \|", page, re.MULTILINE) == sorted(used)


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    yield
    logging.getLogger("nngkit.calls").setLevel(logging.NOTSET)


def test_a_warning_that_repeats_is_said_once_a_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # here: pytest adds its own before the test
    log_to_stderr("nngkit serve", "nngkit.calls")
    for port in range(100):
        logging.getLogger("nngkit.calls").warning("%s: refused", f"tcp://10.0.0.1:{port}")
    logging.getLogger("nngkit.calls").warning("another")
    assert capsys.readouterr().err.splitlines() == [
        "nngkit serve: tcp://10.0.0.1:0: refused",
        "nngkit serve: another",
    ]


def test_json_has_the_fields_of_a_record_and_the_lines_of_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(stderr, "form", stderr.form)
    log_to_stderr("nngkit serve", "nngkit.calls", as_json=True)
    hostile = "\033[2J\n{}"
    logging.getLogger("nngkit.calls").warning("not healthy: %s", hostile, extra={"service": hostile})
    stderr.say("nngkit serve", "listens")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    schema = json.loads((ROOT / "docs" / "schemas" / "log.json").read_text())
    for line in lines:
        jsonschema.validate(line, schema)
    first, second = lines
    assert (first["logger"], first["level"], first["service"]) == ("nngkit.calls", "warning", hostile)
    assert (second["logger"], second["level"], second["message"]) == ("nngkit.cli", "info", "listens")
