"""What the README, and the page of a room, show first is true."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", ["README.md", "docs/documents.md"])
def test_the_first_example_prints_what_the_page_says(page: str, tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```\n\nIt prints `(.*?)`", (ROOT / page).read_text(), re.DOTALL)
    assert found is not None
    done = subprocess.run([sys.executable, "-c", found[1]], capture_output=True, text=True, timeout=30, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (found[2] + "\n", "")


def test_the_two_commands_are_the_first_ones() -> None:
    found = re.search(r"```console\n(.*?)```", README, re.DOTALL)
    assert found is not None
    assert found[1] == "$ python3 dev.py demo\n$ python3 dev.py test\n"


def test_its_links_lead_somewhere() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
