"""The page for tests: builds it where npm is there, and skips with the reason where it is not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nngkit.web.doc import page_folder

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "nngkit" / "web" / "doc"


def built_page() -> Path:
    """The folder of the built page, built now if something has changed since."""
    if shutil.which("npm") is None:
        pytest.skip("the program npm is not installed (Debian: npm), and the page is built with it")
    done = subprocess.run([sys.executable, "dev.py", "web"], cwd=ROOT, capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stderr
    return page_folder()
