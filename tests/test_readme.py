"""The README matches the project: its commands, its extras, its links. tests/test_docs.py runs its programs."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def consoles(text: str) -> list[list[str]]:
    """Return the commands of each console block."""
    return [
        [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    ]


def test_users_install_with_pip_and_a_checkout_runs_dev_py() -> None:
    assert consoles(README) == [
        ["pip install nngkit", "nngkit --help"],
        ["python3 dev.py demo --quick", "python3 dev.py test", ".venv/bin/nngkit --help"],
    ]


def test_the_extras_it_names_exist() -> None:
    named = set(re.findall(r"\[(\w+)\]['`]", README))
    assert named
    assert named <= PROJECT["optional-dependencies"].keys()


def test_its_links_are_absolute_and_lead_to_files_that_exist() -> None:
    """A package index shows the README without the tree around it."""
    source = PROJECT["urls"]["Source"]
    ours = re.compile(re.escape(source) + r"/(?:blob|tree)/main/([^)#]+)")
    for target in [*re.findall(r"\]\(([^)]+)\)", README), *PROJECT["urls"].values()]:
        assert target.startswith("https://"), target
        if found := ours.match(target):
            assert (ROOT / found[1]).exists(), target
