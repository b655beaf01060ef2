"""What the README, and the page of a room, show first is true."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("page", ["README.md", "docs/documents.md"])
def test_the_first_example_prints_what_the_page_says(page: str, tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```\n\nIt prints `(.*?)`", (ROOT / page).read_text(), re.DOTALL)
    assert found is not None
    done = subprocess.run([sys.executable, "-c", found[1]], capture_output=True, text=True, timeout=30, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (found[2] + "\n", "")


def consoles(text: str) -> list[list[str]]:
    """The commands of each console block."""
    return [
        [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    ]


def test_the_first_command_installs_it_and_a_checkout_has_its_own() -> None:
    assert consoles(README) == [
        ["pip install nngkit", "nngkit --help"],
        ["python3 dev.py demo", "python3 dev.py test", ".venv/bin/nngkit --help"],
    ]


def test_the_extras_that_it_names_are_there() -> None:
    named = set(re.findall(r"\[(\w+)\]['`]", README))
    assert named
    assert named <= PROJECT["optional-dependencies"].keys()


def test_its_links_are_absolute_and_lead_somewhere() -> None:
    """A package index shows it without the tree around it."""
    source = PROJECT["urls"]["Source"]
    ours = re.compile(re.escape(source) + r"/(?:blob|tree)/main/([^)#]+)")
    for target in [*re.findall(r"\]\(([^)]+)\)", README), *PROJECT["urls"].values()]:
        assert target.startswith("https://"), target
        if found := ours.match(target):
            assert (ROOT / found[1]).exists(), target


def test_the_links_of_the_documentation_lead_somewhere() -> None:
    for document in (ROOT / "docs").glob("*.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
