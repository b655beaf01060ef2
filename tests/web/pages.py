"""The page for tests: built if npm is installed, else skipped with the reason."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nngkit.web.doc import page_folder

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "nngkit" / "web" / "doc"


def built_page() -> Path:
    """Return the folder of the built page, after building it if its sources have changed."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed (Debian: npm); it is needed to build the page")
    done = subprocess.run([sys.executable, "dev.py", "web"], cwd=ROOT, capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stderr
    return page_folder()
