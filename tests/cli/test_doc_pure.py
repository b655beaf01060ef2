"""The pure parts of `nngkit doc`: differences, values, file names, keys, layout, caret, view."""

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
from nngkit.cli.doc.editor import layout
from nngkit.cli.doc.editor.caret import Caret, Size
from nngkit.cli.doc.editor.keys import Decoder, Event, Key, Pasted, Typed
from nngkit.cli.doc.editor.view import Other, Span, Style, cut, framed
from nngkit.cli.doc.folders import name_of, path_of, walk, write
from nngkit.cli.doc.log import sittings
from nngkit.cli.doc.values import delta_text, from_json, to_json
from nngkit.documents.engine.codepoints import Delete, Delta, Insert, Keep, patched
from nngkit.documents.names import check_name
from nngkit.documents.records import Entry
from nngkit.documents.versions import EditStream
from nngkit.errors import ConfigError

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


# ---- keys

PRESSED: list[tuple[bytes, list[Event]]] = [
    (b"abc", [Typed("abc")]),
    ("漢😀é".encode(), [Typed("漢😀é")]),
    (b"a\rb\tc", [Typed("a\nb\tc")]),
    (b"\x1b[A\x1bOB\x1b[C\x1b[D", [Key("up"), Key("down"), Key("right"), Key("left")]),
    (b"\x1b[1~\x1b[4~\x1b[H\x1bOF", [Key("home"), Key("end"), Key("home"), Key("end")]),
    (b"\x1b[5~\x1b[6~\x1b[3~\x7f\x08", [Key(n) for n in ("page up", "page down", "delete", "backspace", "backspace")]),
    (b"\x1b[1;5C\x1b[1;5H", [Key("word right"), Key("top")]),
    (b"\x13\x11\x1a\x19", [Key("save"), Key("leave"), Key("undo"), Key("redo")]),
    (b"\x1b[99;99R\x1b[200;1z\x02x", [Typed("x")]),
    (b"\x1bfx", [Typed("x")]),
    (b"\x1b[200~one\r\ntwo\x1b[201~!", [Pasted("one\ntwo"), Typed("!")]),
    (b"\x1b[200~\x1b[A\x00\x1b[201~", [Pasted("[A")]),
    (b"\xffa", [Typed("\ufffda")]),
]


def joined(events: list[Event]) -> list[Event]:
    """Join the texts of neighbouring events."""
    found: list[Event] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, Typed) and isinstance(last, Typed):
            found[-1] = Typed(last.text + event.text)
        elif isinstance(event, Pasted) and isinstance(last, Pasted):
            found[-1] = Pasted((last.text + event.text).replace("\r\n", "\n"))
        else:
            found.append(event)
    return found


@pytest.mark.parametrize(("sent", "means"), PRESSED)
def test_keys_are_decoded_however_the_input_is_split(sent: bytes, means: list[Event]) -> None:
    assert Decoder().feed(sent) == means
    for at in range(1, len(sent)):
        decoder = Decoder()
        assert joined(decoder.feed(sent[:at]) + decoder.feed(sent[at:])) == means, at


def test_a_single_escape_is_dropped_by_flush() -> None:
    decoder = Decoder()
    assert (decoder.feed(b"\x1b"), decoder.pending) == ([], True)
    assert (decoder.flush(), decoder.pending) == ([], False)
    assert decoder.feed(b"x") == [Typed("x")]


def test_the_terminals_own_sequences_are_known() -> None:
    assert Decoder({b"\x1b[[A": "up", b"x": "down"}).feed(b"\x1b[[Ax") == [Key("up"), Typed("x")]


@given(st.lists(st.binary(max_size=9), max_size=9))
def test_the_decoder_survives_any_bytes(pieces: list[bytes]) -> None:
    decoder = Decoder()
    for piece in pieces:
        for event in decoder.feed(piece):
            if not isinstance(event, Key):
                assert all(char in "\n\t" or char >= " " for char in event.text)
    decoder.flush()
    assert len(decoder._buffer) <= 70


# ---- layout, caret, view

KEYS = ["up", "down", "left", "right", "home", "end", "page up", "page down", "word left", "word right"]
CHANGES = ["backspace", "delete", "cut"]


@given(SCREENS, st.integers(1, 12))
def test_rows_contain_the_whole_text_and_fit_the_screen(text: str, columns: int) -> None:
    at: int | None = 0
    starts = []
    while at is not None:
        starts.append(at)
        start, end = layout.row(text, at, columns)
        assert start == at
        assert layout.column(text, start, end, columns) <= columns
        at = layout.next_row(text, at, columns)
    assert "".join(text[a : layout.row(text, a, columns)[1]] for a in starts) == text.replace("\n", "")
    backwards = [starts[-1]]
    while (above := layout.previous_row(text, backwards[-1], columns)) is not None:
        backwards.append(above)
    assert backwards == starts[::-1]


@given(SCREENS, st.integers(1, 12), st.integers(1, 8), st.data())
def test_any_keys_edit_the_text_consistently_and_it_is_shown(
    text: str, columns: int, rows: int, data: st.DataObject
) -> None:
    caret = Caret(text, data.draw(st.integers(0, len(text))))
    top = 0
    for name in data.draw(st.lists(st.sampled_from([*KEYS, *CHANGES, "ö\n"]), max_size=8)):
        before = caret.text
        event = Typed(name) if name == "ö\n" else Key(name)
        made = caret.press(event, Size(columns, rows))
        assert applied(before, made) == caret.text
        assert 0 <= caret.at <= len(caret.text)
        others = [Other(data.draw(st.integers(0, len(caret.text))), "A\x1bda", 1)]
        frame = framed(caret.text, caret.at, top, columns, rows, others, [Span("st\x1batus", Style())], "hint")
        top = frame.top
        assert len(frame.rows) == rows
        assert 0 <= frame.cursor[0] < rows
        assert 0 <= frame.cursor[1] < columns
        for row in frame.rows:
            shown = "".join(span.text for span in row)
            assert all(unicodedata.category(char) not in ("Cc", "Zl", "Zp") for char in shown)
            assert "\u202e" not in shown
            assert sum(map(layout.width, shown)) <= columns or columns == 1


def test_the_cursor_moves_by_visible_characters() -> None:
    text = "e\u0301👩\u200d🔬🇩🇪🇳🇴👍🏽漢"
    stops = [0]
    while stops[-1] < len(text):
        stops.append(layout.after(text, stops[-1]))
    assert [text[a:b] for a, b in itertools.pairwise(stops)] == [
        "e\u0301", "👩\u200d🔬", "🇩🇪", "🇳🇴", "👍🏽", "漢",
    ]  # fmt: skip
    back = [len(text)]
    while back[-1] > 0:
        back.append(layout.before(text, back[-1]))
    assert back == stops[::-1]


def pressed(text: str, at: int, *names: str, columns: int = 10, rows: int = 5) -> tuple[str, int]:
    caret = Caret(text, at)
    for name in names:
        caret.press(Key(name), Size(columns, rows))
    return caret.text, caret.at


def test_up_and_down_keep_the_column_over_short_lines() -> None:
    text = "0123456\nab\n漢字漢字\n"
    assert pressed(text, 5, "down")[1] == 10  # the end of the short one
    assert pressed(text, 5, "down", "down")[1] == 13  # behind two wide ones, at column 4
    assert pressed(text, 5, "down", "down", "up", "up")[1] == 5
    assert pressed(text, 5, "up")[1] == 0
    assert pressed(text, 13, "down", "down")[1] == len(text)


def test_a_long_line_wraps() -> None:
    text = "x" * 25
    assert pressed(text, 3, "down")[1] == 13
    assert pressed(text, 3, "down", "end")[1] == 25
    assert pressed(text, 23, "page up")[1] == 3


def test_deletion_is_by_visible_characters() -> None:
    assert pressed("ae\u0301b", 3, "backspace") == ("ab", 1)
    assert pressed("a👩\u200d🔬b", 1, "delete") == ("ab", 1)
    assert pressed("one two", 0, "word right", "cut") == ("one", 3)
    assert pressed("a\nb", 1, "cut") == ("ab", 1)
    assert pressed("", 0, "delete", "backspace", "cut") == ("", 0)


def test_cursors_of_others_are_shown_with_names() -> None:
    frame = framed("hello\nworld", 0, 0, 20, 5, [Other(1, "Ada", 3), Other(11, "Grace", 4)], [Span("s", Style())])
    assert frame.rows[0][1] == Span("e", Style(3, reverse=True))
    assert frame.rows[0][-1] == Span(" Ada ", Style(3, reverse=True))
    assert frame.rows[1][-1] == Span(" Grace ", Style(4, reverse=True))
    assert frame.rows[1][1] == Span(" ", Style(4, reverse=True))  # behind the last character
    narrow = framed("hello world", 0, 0, 12, 3, [Other(1, "Ada", 3)])
    assert narrow.rows[0] == [Span("h", Style()), Span("e", Style(3, reverse=True)), Span("llo world", Style())]


def test_the_view_scrolls_minimally() -> None:
    text = "\n".join(map(str, range(100)))
    first = framed(text, 0, 0, 20, 12)
    assert first.top == 0
    ninth = text.index("\n9\n") + 1
    assert framed(text, ninth, first.top, 20, 12).top == 0
    tenth = framed(text, text.index("10"), 0, 20, 12)
    assert (tenth.top, tenth.cursor) == (2, (9, 0))
    assert framed(text, text.index("50"), tenth.top, 20, 12).cursor[0] == 9
    assert framed(text, 4, text.index("50"), 20, 12).top == 4


def test_control_characters_in_names_are_replaced() -> None:
    assert cut("A\x1b[2J\u202eb" * 9, 10) == "A^[[2J·bA"
