"""Real Yjs in random schedules with peers in Python: all hold the same in the end, and nothing acknowledged is missing.

`python -m tests.web.page_schedules 1000` plays a thousand.
"""

import pytest

from tests.web.page_schedules import node, play
from tests.web.pages import built_page

pytestmark = pytest.mark.needs_program("node", package="nodejs")
SOME = 30  # schedules: seconds


@pytest.mark.timeout(180)
def test_pages_and_peers_agree_after_every_schedule() -> None:
    built_page()
    problems: list[str] = []
    edits = 0
    with node() as process:
        for seed in range(SOME):
            outcome = play(seed, process)
            problems += outcome.problems
            edits += outcome.edits
    assert problems == []
    assert edits > 10 * SOME
