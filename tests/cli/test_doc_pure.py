"""The pure parts of `nngkit doc`: differences, values, file names, rows of a screen, keys."""

from __future__ import annotations

import itertools
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.cli.doc import differences
from nngkit.cli.doc.differences import applied, edits, rebased
from nngkit.cli.doc.editor.rows import DELETIONS, MOVES, Other, Rows, pressed, shown
from nngkit.cli.doc.folders import name_of, path_of, walk, write
from nngkit.cli.doc.log import sittings
from nngkit.cli.doc.values import delta_text, from_json, to_json
from nngkit.documents.engine.codepoints import Delete, Delta, Insert, Keep
from nngkit.documents.names import check_name
from nngkit.documents.records import Entry
from nngkit.documents.versions import EditStream
from nngkit.errors import ConfigError
from tests.documents.deltas import patched

TEXTS = st.text("ab\nö😀", max_size=25)
SCREENS = st.text("ab\n\tö漢😀\u0301\x1b\u200d\u202e🇩", max_size=40)


# ---- differences


def distance(old: str, new: str) -> int:
    """Return the minimal number of code points deleted and inserted, by dynamic programming."""
    row = list(range(len(new) + 1))
    for i, a in enumerate(old, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(new, 1):
            before, row[j] = row[j], before if a == b else min(row[j], row[j - 1]) + 1
    return row[-1]


@given(TEXTS, TEXTS)
def test_edits_make_the_new_text_and_are_minimal(old: str, new: str) -> None:
    made = edits(old, new)
    assert applied(old, made) == new
    assert sum(deleted + len(inserted) for _, deleted, inserted in made) == distance(old, new)
    assert all(a + n <= b for (a, n, _), (b, _, _) in itertools.pairwise(made))


@given(TEXTS, TEXTS, st.integers(0, 4))
def test_edits_of_many_differences_are_coarser_and_correct(old: str, new: str, most: int) -> None:
    before, differences.MOST = differences.MOST, most  # type: ignore[misc]
    try:
        assert applied(old, edits(old, new)) == new
        same = differences.matches(old, new)
        assert (same is None) == (distance(old, new) > most)
        if same is not None:
            assert all(old[i] == new[j] for i, j in same)
            assert len(old) + len(new) - 2 * len(same) == distance(old, new)
    finally:
        differences.MOST = before  # type: ignore[misc]


def test_two_large_different_texts_are_compared_quickly() -> None:
    assert len(edits("ab" * 200_000, "cd" * 200_000)) == 1


def deltas(text: str, kept: list[int], inserted: dict[int, str]) -> Delta:
    """Return a delta: `kept` positions stay, texts are inserted before others."""
    found: list[Keep | Insert | Delete] = []
    for at in range(len(text) + 1):
        if at in inserted:
            found.append(Insert(inserted[at]))
        if at < len(text):
            found.append(Keep(1) if at in kept else Delete(1))
    return tuple(found)


@given(st.data())
def test_rebased_edits_keep_the_changes_of_both_sides(data: st.DataObject) -> None:
    began = "".join(map(chr, range(0x4E00, 0x4E00 + data.draw(st.integers(0, 12)))))
    places = st.integers(0, len(began))
    mine = applied(
        began,
        [
            (at, min(count, len(began) - at), text)
            for at, count, text in [data.draw(st.tuples(places, st.integers(0, 4), st.text("ABC", max_size=3)))]
        ],
    )
    made = edits(began, mine)
    kept = data.draw(st.lists(st.sampled_from(range(len(began))), unique=True)) if began else []
    inserted = data.draw(st.dictionaries(places, st.text("xyz", min_size=1, max_size=3)))
    theirs = deltas(began, kept, inserted)
    now = patched(began, theirs)
    both = applied(now, rebased(made, theirs))
    assert [char for char in both if char in began] == [
        char for at, char in enumerate(began) if at in kept and char in mine
    ]
    assert sorted(char for char in both if char in "xyz") == sorted("".join(inserted.values()))
    assert [char for char in both if char in "ABC"] == [char for char in mine if char in "ABC"]
    if not theirs or theirs == tuple(Keep(1) for _ in began):
        assert both == mine


# ---- values and names

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "$bytes", "$number", "$object", "ö"]), inside, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_every_value_round_trips_through_json(value: Any) -> None:
    assert from_json(json.loads(json.dumps(to_json(value), allow_nan=False))) == value


@pytest.mark.parametrize("bad", [{"$bytes": "?"}, {"$bytes": 1}, {"$number": "1"}, {"$number": []}, {"$object": 1}])
def test_an_invalid_mark_is_rejected(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"\$"):
        from_json([bad])


def test_a_delta_as_text_has_positions_of_the_new_text() -> None:
    assert delta_text((Keep(3), Insert("hé"), Delete(2), Keep(1), Insert("x"))) == '@3 +"hé" -2 @6 +"x"'


SEGMENTS = st.sampled_from(["a", "a.json", "a.txt", "a.texts", ".a", "%2E", "ö 漢", "a.json.json", "~", "CON"])


@given(st.lists(SEGMENTS, min_size=1, max_size=4), st.sampled_from([None, "body", "a", "../..", "a/b", ".", "%", "ö"]))
def test_names_and_paths_round_trip(segments: list[str], root: str | None) -> None:
    name = check_name("/".join(segments))
    path = path_of(name, root)
    assert name_of(path) == (name, root)
    assert all((part and not part.startswith(".")) or "%2F" in part for part in path.split("/"))
    assert ".." not in path.split("/")


@given(st.lists(st.tuples(st.lists(SEGMENTS, min_size=1, max_size=3), st.sampled_from([None, "body", "a", "a/b"]))))
def test_no_file_is_the_folder_of_another(documents: list[tuple[list[str], str | None]]) -> None:
    files = {path_of("/".join(segments), root) for segments, root in documents}
    folders = {"/".join(path.split("/")[:n]) for path in files for n in range(1, path.count("/") + 1)}
    assert not files & folders


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (inside / "notes").symlink_to(outside)
    with pytest.raises(OSError, match=r"symbolic|directory"):
        write(inside, path_of("notes/secret"), b"{}")
    assert list(outside.iterdir()) == []
    (outside / "kept.json").write_text("theirs")
    (inside / "kept.json").symlink_to(outside / "kept.json")
    write(inside, path_of("kept"), b"{}")  # the link is replaced, and not what it leads to
    assert (outside / "kept.json").read_text() == "theirs"
    (inside / "linked.json").symlink_to(outside / "kept.json")
    assert [name for name, _, _ in walk(inside)] == ["kept"]


def test_a_file_with_an_invalid_name_is_reported(tmp_path: Path) -> None:
    (tmp_path / "%2E%2E.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"%2E%2E\.json.*segment"):
        list(walk(tmp_path))


def test_a_sitting_is_of_one_stream_and_ends_with_a_pause() -> None:
    one, other = EditStream(b"11111111", 1), EditStream(b"22222222", 1)
    entries = [Entry(one, 1, 0.0, 10), Entry(other, 1, 1.0, 5), Entry(one, 2, 100.0, 7), Entry(one, 3, 500.0, 1)]
    assert [(each.stream, each.first, each.last, each.edits, each.size) for each in sittings(entries)] == [
        (one, 0.0, 100.0, 2, 17),
        (other, 1.0, 1.0, 1, 5),
        (one, 500.0, 500.0, 1, 1),
    ]


# ---- rows and keys

LINES = {"up": -1, "down": 1, "page up": -4, "page down": 4}
KEYS = [*LINES, *MOVES, *DELETIONS, "c-m"]


@given(SCREENS, st.integers(1, 12))
def test_rows_contain_the_whole_text_and_fit_the_screen(text: str, columns: int) -> None:
    rows = Rows(text, columns)
    assert rows.starts == sorted(set(rows.starts))
    for row, start in enumerate(rows.starts):
        assert rows.row(start) == row
        assert rows.column(start) == 0
    assert {0, *(at + 1 for at, char in enumerate(text) if char == "\n")} <= set(rows.starts)
    for at in range(len(text) + 1):
        assert 0 <= rows.column(at) < columns
    assert Rows(text, columns, Rows(text + "\nx", columns)).starts == rows.starts


@given(SCREENS, st.integers(1, 12), st.data())
def test_any_keys_edit_the_text_consistently_and_it_is_shown(text: str, columns: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    for key in data.draw(st.lists(st.sampled_from([*KEYS, "ö\n\x1b"]), max_size=8)):
        rows = Rows(text, columns)
        if key in LINES:
            at = rows.moved(at, LINES[key], rows.column(at))
        else:
            start, deleted, inserted = pressed(text, at, key, key if key not in KEYS else "")
            assert 0 <= start <= start + deleted <= len(text)
            text = text[:start] + inserted + text[start + deleted :]
            at = start + len(inserted)
        assert 0 <= at <= len(text)
        rows = Rows(text, columns)
        others = [Other(data.draw(st.integers(-1, len(text))), "A\x1bda", "reverse")]
        for row in range(len(rows.starts)):
            drawn = "".join(part for _, part in rows.drawn(row, others))
            assert all(unicodedata.category(char) not in ("Cc", "Zl", "Zp") for char in drawn)
            assert "\u202e" not in drawn


def test_the_cursor_moves_by_visible_characters() -> None:
    text = "e\u0301👩\u200d🔬🇩🇪🇳🇴👍🏽漢"
    stops = [0]
    while stops[-1] < len(text):
        stops.append(pressed(text, stops[-1], "right")[0])
    assert [text[a:b] for a, b in itertools.pairwise(stops)] == [
        "e\u0301", "👩\u200d🔬", "🇩🇪", "🇳🇴", "👍🏽", "漢",
    ]  # fmt: skip
    back = [len(text)]
    while back[-1] > 0:
        back.append(pressed(text, back[-1], "left")[0])
    assert back == stops[::-1]


def test_up_and_down_keep_the_column_over_short_lines() -> None:
    rows = Rows("0123456\nab\n漢字漢字\n", 10)
    assert rows.moved(5, 1, 5) == 10  # the end of the short one
    assert rows.moved(10, 1, 5) == 13  # behind two wide ones, at column 4
    assert rows.moved(13, -2, 5) == 5
    assert rows.moved(5, -1, 5) == 0
    assert rows.moved(len(rows.text), 1, 0) == len(rows.text)


def test_a_long_line_wraps() -> None:
    rows = Rows("x" * 25, 10)
    assert rows.moved(3, 1, 3) == 13
    assert rows.moved(23, -4, 3) == 3
    assert (rows.column(20), rows.moved(9, 1, 9)) == (0, 19)
    assert Rows("x" * 20, 10).starts == [0, 10, 20]
    assert Rows("ab漢", 3).starts == [0, 2]


@pytest.mark.parametrize(
    ("text", "at", "key", "edit"),
    [
        ("ae\u0301b", 3, "c-h", (1, 2, "")),
        ("a👩\u200d🔬b", 1, "delete", (1, 3, "")),
        ("one two", 3, "c-k", (3, 4, "")),
        ("a\nb", 1, "c-k", (1, 1, "")),
        ("a", 1, "c-k", (1, 0, "")),
        ("", 0, "c-h", (0, 0, "")),
        ("", 0, "delete", (0, 0, "")),
        ("one, zwölf", 10, "c-left", (5, 0, "")),
        ("one, zwölf", 3, "c-right", (10, 0, "")),
        ("ab\ncd", 4, "home", (3, 0, "")),
        ("ab\ncd", 0, "end", (2, 0, "")),
        ("ab", 1, "c-home", (0, 0, "")),
        ("ab", 1, "c-m", (1, 0, "\n")),
        ("ab", 1, "c-t", (1, 0, "")),
    ],
)
def test_the_edits_of_keys(text: str, at: int, key: str, edit: tuple[int, int, str]) -> None:
    assert pressed(text, at, key) == edit


def test_pasted_text_has_no_control_characters() -> None:
    assert pressed("", 0, "", "one\r\ntwo\rthree\t\x1b[A\x00\udcff")[2] == "one\ntwo\nthree\t[A\ufffd"


def test_cursors_of_others_are_shown_with_names() -> None:
    rows = Rows("hello\nworld", 20)
    others = [Other(-1, "Bob", "b"), Other(1, "Ada", "a"), Other(11, "Grace", "g")]
    assert rows.drawn(0, others) == [
        *[("", "h"), ("a", "e"), ("", "l"), ("", "l"), ("", "o")],
        *[("", " " * 10), ("a", " Ada ")],
    ]
    assert rows.drawn(1, others)[5:] == [("g", " "), ("", " " * 7), ("g", " Grace ")]  # behind the last character
    assert Rows("hello world", 12).drawn(0, [Other(1, "Ada", "a")])[-2:] == [("", "d"), ("", " ")]
    assert Rows("", 40).drawn(0, [Other(0, "漢" * 9, "a")])[-1] == ("a", f" {'漢' * 8} ")


def test_characters_that_a_terminal_interprets_are_replaced() -> None:
    assert shown("A\x1b[2J\u202eb\xa0\x85\x7f") == "A^[[2J·b ·^?"
    assert Rows("a\tb\u0301\n\u0301", 20).drawn(0, [])[:3] == [("", "a"), ("", " " * 7), ("", "b")]
    assert Rows("\u0301", 20).drawn(0, [])[0] == ("", " \u0301")
