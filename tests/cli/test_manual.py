"""Texts made of the table of options agree: help, manual pages, docs/command.md, completion."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from nngkit.cli.cat.command_line.option_table import OPTIONS, options_of
from nngkit.cli.commands import COMMANDS, SHORTHANDS
from nngkit.cli.tools.catalogue import actions, choices, help_of, markdown
from nngkit.cli.tools.man import page
from tests.cli.commands import assert_fails, nngkit

DOCUMENT = Path(__file__).parents[2] / "docs" / "command.md"
MARK = "<!-- options: nngkit man --markdown writes what follows -->\n\n"


def test_the_table_in_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text().partition(MARK)[2] == markdown()


def test_every_command_has_its_section() -> None:
    documents = [
        DOCUMENT,
        *(DOCUMENT.with_name(name) for name in ("consumers.md", "devices.md", "journal.md", "pipeline.md", "tools.md")),
    ]
    headings = " ".join(re.findall(r"^## (.*)", "\n".join(each.read_text() for each in documents), re.MULTILINE))
    for command in COMMANDS:
        assert command in SHORTHANDS or f"nngkit {command}" in headings, command


def test_no_two_options_have_the_same_name() -> None:
    for command in ("cat", "nngcat", "nanocat"):
        names = [name for row in options_of(command) for name in row.names(command)]
        assert len(names) == len(set(names))
    keys = [row.key for row in OPTIONS]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_manual_page_have_every_option(command: str) -> None:
    text, roff = help_of(command), page(command).replace("\\-", "-")
    assert choices(command)
    for choice in choices(command):
        for name in choice.names:
            assert re.search(rf"{name}\b", text), name
            assert f"\\fB{name}\\fR" in roff, name


@pytest.mark.slow
def test_the_actions_of_a_command_are_in_its_page() -> None:
    for command in ("doc", "journal", "trust"):
        for name, what in actions(command).items():
            assert f"\\fB{name}\\fR\n{what}" in page(command).replace("\\-", "-")
            assert name in help_of(command)
    assert actions("sub") == actions("discover") == {}


def test_options_that_do_not_apply_are_missing_in_a_shorthands_help() -> None:
    assert "--subscribe" not in help_of("pub")
    assert "--subscribe" in help_of("sub")
    assert "--exec" not in help_of("req")


@pytest.mark.parametrize("command", ["", *COMMANDS])
@pytest.mark.needs_program("groff", package="groff-base")
def test_groff_renders_the_page_without_warnings(command: str) -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww"], input=page(command), capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "N\x08NA\x08AM\x08ME\x08E" in done.stdout  # printed twice: bold


def test_all_pages_are_written(tmp_path: Path) -> None:
    there = tmp_path / "man" / "man1"  # is made
    assert nngkit("man", "--dir", str(there)).returncode == 0
    assert {each.name for each in there.iterdir()} == {"nngkit.1", *(f"nngkit-{name}.1" for name in COMMANDS)}
    assert (there / "nngkit-sub.1").read_text() == nngkit("man", "sub").stdout
    assert_fails(nngkit("man", "--dir", "/dev/null/man1"), 2, "--dir: /dev/null/man1/nngkit.1: Not a directory")
    assert_fails(nngkit("man", "nothing"), 2, "COMMAND: no command 'nothing'")
