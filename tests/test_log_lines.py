"""Lines for the log that repeat."""

from __future__ import annotations

from nngkit.log_lines import AGAIN, MOST, LogLines


def test_a_line_is_said_once_and_after_a_minute_with_its_number() -> None:
    lines = LogLines()
    assert (
        lines.add("tcp://127.0.0.1:4000 is refused: wrong token", 0.0) == "tcp://127.0.0.1:4000 is refused: wrong token"
    )
    for at in range(1, 60):
        assert lines.add(f"tcp://127.0.0.1:{4000 + at} is refused: wrong token", float(at)) is None
    assert lines.add("tcp://127.0.0.2:4000 is refused: wrong token", 1.0) is not None
    again = lines.add("tcp://127.0.0.1:5000 is refused: wrong token", AGAIN)
    assert again == "tcp://127.0.0.1:5000 is refused: wrong token (59 times more since it was last said)"


def test_a_flood_of_different_lines_is_bounded_and_ends() -> None:
    lines = LogLines()
    said = [lines.add(f"line {'x' * number}", 0.0) for number in range(10 * MOST)]
    assert sum(line is not None for line in said) == MOST
    assert lines.add("another", AGAIN) == "another"
