"""Valid document names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.documents.names import LONGEST, check_name
from nngkit.errors import ConfigError


@pytest.mark.parametrize(
    "name",
    ["minutes", "minutes/2026-11", "a b", "mañana/😀", "...", "a/.b", "x" * LONGEST, "é" * (LONGEST // 2)],
)
def test_name_is_a_path_of_printable_text(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        ("/etc/passwd", "segment"),
        ("a//b", "segment"),
        ("a/", "segment"),
        ("..", "segment"),
        ("a/../b", "segment"),
        ("./a", "segment"),
        ("a\\..\\b", "backslash"),
        ("a\0b", "printed"),
        ("a\nb", "printed"),
        ("a\u202eb", "printed"),
        ("\ud800", "printed"),
        ("x" * (LONGEST + 1), "longer"),
        ("é" * (LONGEST // 2) + "x", "longer"),
    ],
)
def test_path_tricks_and_invisible_characters_are_rejected(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        check_name(name)
    assert str(refused.value).isascii()  # can be shown anywhere


@pytest.mark.parametrize("name", [5, None, b"minutes", ("minutes",)])
def test_names_that_are_no_text_are_rejected(name: Any) -> None:
    with pytest.raises(ConfigError, match="is not text"):
        check_name(name)


@given(st.text(max_size=300))
def test_valid_names_stay_below_their_folder(name: str) -> None:
    try:
        check_name(name)
    except ConfigError:
        return
    assert name.isprintable()
    assert all(segment not in ("", ".", "..") for segment in name.split("/"))
    assert 1 <= len(name.encode()) <= LONGEST
