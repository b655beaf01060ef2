"""CDDL of docs/wire.md: it is that of the declared messages, and people's comments stay in it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).parents[1] / "docs"
CDDL: Final[dict[str, Any]] = runpy.run_path(str(DOCS / "cddl.py"))


def test_the_page_is_not_stale() -> None:
    text = (DOCS / "wire.md").read_text()
    assert CDDL["page"](text) == text, "python docs/cddl.py writes docs/wire.md anew"


def test_rules_are_written_and_comments_kept() -> None:
    block = (
        "<!-- cddl outbox -->\n```cddl\noutbox-entries = [ ; a message\n  first: 1..2, ; a number\n```\n<!-- /cddl -->"
    )
    lines = CDDL["page"](block).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "<!-- cddl outbox -->",
        "```cddl",
        "outbox-entries = [ ; a message",
        "kind: 1,",
        "outbox: bstr .size 16,",
        "first: 0..4611686018427387903, ; a number",
        "values: [1*65536 bstr],",
        "* any,",
        "]",
        "```",
        "<!-- /cddl -->",
    ]
