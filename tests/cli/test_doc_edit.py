"""`nngkit doc edit` in a terminal: typing, the screen, and restoring the terminal."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nngkit.documents.store import Store
from tests.cli.commands import assert_fails, command, nngkit, valid
from tests.cli.processes import Running
from tests.cli.terminals import PASTED, Terminal

pytestmark = pytest.mark.slow  # programs of seconds; CI runs them

HOME, END = "\x1b[1;5H", "\x1b[1;5F"  # the beginning and the end of the text
UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"
SAVE, LEAVE, UNDO, REDO = "\x13", "\x11", "\x1a", "\x19"


def edit(store: Path, *arguments: str, columns: int = 60, rows: int = 12, **variables: str) -> Terminal:
    """Run an editor with its own store."""
    words = ("doc", "edit", "minutes", "--store", str(store), "--name", "Ada", *arguments)
    return Terminal(*words, argv=None, columns=columns, rows=rows, **variables)


def text_of(store: Path) -> str:
    done = nngkit("doc", "cat", "minutes", "--store", str(store))
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def home(tmp_path: Path) -> Iterator[str]:
    """Run `doc serve`; yield its join address."""
    folder = str(tmp_path / "home")
    with Running("doc", "serve", folder, "--listen", "ws://127.0.0.1:0", "--no-page", "--json") as running:
        told = valid(running.line(), "doc.json")
        yield f"{told['join'][0]}#token={Path(told['token_file']).read_text().strip()}"


# ---- alone


def test_typed_text_is_shown_and_stored(tmp_path: Path) -> None:
    store = tmp_path / "docs.sqlite"
    with edit(store) as terminal:
        terminal.shows("minutes", "Ctrl-Q quit")
        terminal.send("Grüße 漢字\r😀e\u0301!")
        terminal.shows("Grüße 漢字", "😀é!")  # pyte composes
        terminal.until(lambda: terminal.screen.place == (1, 4))
        terminal.send(SAVE)
        terminal.shows("saved on my disk", "on my disk / ")
        terminal.send(LEAVE)
        assert terminal.end() == 0
        assert terminal.is_as_before()
    assert text_of(store) == "Grüße 漢字\n😀e\u0301!"


def test_keys_have_their_effect(tmp_path: Path) -> None:
    store = tmp_path / "docs.sqlite"
    with edit(store) as terminal:
        terminal.shows("Ctrl-Q quit")
        terminal.send("one two\rthree")
        terminal.send(UP + "\x1b[H" + "\x1b[3~" + RIGHT + "\x7f")  # delete `o`, backspace `n`
        terminal.shows("e two")
        terminal.send("\x1b[F" + "!" + DOWN + "\x1b[1~" + ">" + LEFT + "<")
        terminal.shows("e two!", "<>three")
        terminal.send(HOME + "\x0b" + END + "漢" + "\x7f")
        terminal.shows("<>three")
        terminal.until(lambda: terminal.screen.text[0] == "")
        terminal.send("\x03")
        terminal.shows("Ctrl-Q quits")
        terminal.send(SAVE + LEAVE)
        assert terminal.end() == 0
    assert text_of(store) == "\n<>three"


def test_unknown_keys_do_nothing(tmp_path: Path) -> None:
    with edit(tmp_path / "docs.sqlite") as terminal:
        terminal.shows("Ctrl-Q quit")
        for keys in ("\x1bf", "\x02", "\x1b[200;1z", "\x1bOQ", "\x1b[1;3A", "\x1b"):  # Alt, Ctrl, F2, an escape alone
            terminal.send(f"x{keys}")
            terminal.settle()
        terminal.send("one two\x1b[1;3D\x1b[1;2D<")  # Alt and Shift
        terminal.shows("xxxxxxone< two")


def test_steps_are_undone_and_redone(tmp_path: Path) -> None:
    with edit(tmp_path / "docs.sqlite") as terminal:
        terminal.shows("Ctrl-Q quit")
        terminal.send("first")
        terminal.shows("first")
        terminal.send(LEFT + RIGHT + " second")  # the cursor has moved: another step, however soon
        terminal.shows("first second")
        terminal.send(UNDO)
        terminal.until(lambda: terminal.screen.text[0] == "first")
        terminal.send(UNDO)
        terminal.until(lambda: terminal.screen.text[0] == "")
        terminal.send(UNDO)
        terminal.shows("nothing to undo")
        terminal.send(REDO + REDO)
        terminal.shows("first second")
        terminal.until(lambda: terminal.screen.place == (0, 12))


def test_a_paste_is_one_edit_with_its_lines(tmp_path: Path) -> None:
    store = tmp_path / "docs.sqlite"
    pasted = "\r\n".join(f"line {number} ö" for number in range(200))
    with edit(store) as terminal:
        terminal.shows("Ctrl-Q quit")
        assert terminal.screen.has(PASTED)
        terminal.send(f"\x1b[200~{pasted}\x1b[201~")
        terminal.shows("line 199 ö")
        terminal.send(SAVE)
        terminal.shows("saved")
        terminal.send(LEAVE)
        assert terminal.end() == 0
    assert text_of(store) == pasted.replace("\r\n", "\n")
    with Store.open(store) as opened:
        assert len(list(opened.log("minutes"))) < 20  # the terminal hands it over in pieces of some kilobytes


def test_a_long_text_scrolls_with_the_cursor(tmp_path: Path) -> None:
    with edit(tmp_path / "docs.sqlite", columns=30, rows=10) as terminal:
        terminal.shows("Ctrl-S")
        terminal.send("\r".join(map(str, range(50))))
        terminal.until(lambda: terminal.screen.text[:8] == [str(number) for number in range(42, 50)])
        terminal.send("\x1b[5~\x1b[5~")
        terminal.until(lambda: terminal.screen.text[0] == "35")
        terminal.send(HOME)
        terminal.until(lambda: terminal.screen.text[0] == "0")
        terminal.until(lambda: terminal.screen.place == (0, 0))
        terminal.send("x" * 31)
        terminal.until(lambda: terminal.screen.text[:3] == ["x" * 30, "x0", "1"])


def test_the_window_can_be_resized(tmp_path: Path) -> None:
    with edit(tmp_path / "docs.sqlite", columns=40, rows=10) as terminal:
        terminal.shows("Ctrl-S save")
        terminal.send("a" * 30)
        terminal.shows("a" * 30)
        terminal.resize(20, 6)
        terminal.until(lambda: terminal.screen.text[:2] == ["a" * 20, "a" * 10])
        terminal.until(lambda: terminal.screen.text[4].startswith(" minutes"))  # a frame comes in pieces
        terminal.resize(1, 1)
        terminal.settle()
        terminal.resize(60, 12)
        terminal.until(lambda: terminal.screen.text[0] == "a" * 30)
        assert terminal.process.poll() is None


def test_it_opens_the_stored_text_and_quits_at_once_if_unchanged(tmp_path: Path) -> None:
    store = tmp_path / "docs.sqlite"
    (tmp_path / "minutes.txt").write_text("kept\n")
    assert nngkit("doc", "import", str(tmp_path / "minutes.txt"), "--store", str(store)).returncode == 0
    with edit(store, "--json") as terminal:
        terminal.shows("kept")
        terminal.send(LEAVE)
        assert terminal.end() == 0
        told = valid("".join(terminal.screen.text[:3]), "doc.json")
    assert (told["event"], told["characters"], told["kept"]) == ("left", 5, True)


# ---- together


def test_two_editors_and_a_third_peer_write_at_once(tmp_path: Path) -> None:
    with (
        home(tmp_path) as join,
        edit(tmp_path / "ada.sqlite", "--join", join) as ada,
        Terminal("doc", "edit", "minutes", "--join", join, "--name", "Grace") as grace,
    ):
        ada.shows("1 peer", "Grace")
        grace.shows("1 peer", "Ada")
        ada.send("Ada was here.\r")
        grace.shows("Ada was here.")
        grace.until(lambda: not grace.screen.text[1].startswith("~"), "a second line")
        grace.send(END + "Grace 漢 too.")
        ada.shows("Grace 漢 too.")
        (tmp_path / "minutes.txt").write_text("Third: Ada was here.\nGrace 漢 too.")
        assert nngkit("doc", "import", str(tmp_path / "minutes.txt"), "--join", join).returncode == 0
        for terminal in (ada, grace):
            terminal.shows("Third: Ada was here.", "Grace 漢 too.")
        ada.until(lambda: ada.screen.place == (1, 0), "a cursor that stays in its line")
        # Grace's cursor, in her colour, with her name
        ada.until(lambda: ada.screen.text[1].endswith(" Grace"), "her name")
        style = ada.screen.style
        ada.until(lambda: style(1, 13).reverse and style(1, 13) == style(1, 58), "her cursor, and her name as it")
        assert {style(1, 13).fg, style(1, 13).bg} != {"default"}
        assert not style(1, 12).reverse
        # concurrently, at two places
        for letter in "xyz":
            ada.send(letter)
            grace.send(letter.upper())
        for terminal in (ada, grace):
            terminal.until(lambda screen=terminal.screen: screen.text[1].startswith("xyzGrace 漢 too.XYZ"))  # type: ignore[misc]
        ada.shows("on my disk / on 1 other's disk")
        grace.send(SAVE)
        grace.shows("saved on another's disk")
        ada.send(UNDO)  # only one's own edits
        grace.until(lambda: grace.screen.text[1].startswith("Grace 漢 too.XYZ"))
        grace.send(LEAVE)
        assert grace.end() == 0
        ada.until(lambda: not any("Grace " in line for line in ada.screen.text[9:]), "her end")
        ada.send(LEAVE)
        assert ada.end() == 0
    assert text_of(tmp_path / "ada.sqlite") == "Third: Ada was here.\nGrace 漢 too.XYZ"
    assert text_of(tmp_path / "home" / "docs.sqlite") == "Third: Ada was here.\nGrace 漢 too.XYZ"


def test_quitting_asks_before_it_discards_edits_on_no_disk(tmp_path: Path) -> None:
    with Terminal("doc", "edit", "a", "--listen", "tcp://127.0.0.1:0", "--timeout", "0.2", columns=100) as terminal:
        terminal.shows("on no disk yet")
        terminal.send("lost")
        terminal.shows("lost")
        terminal.send(SAVE)
        terminal.shows("NOT saved")
        terminal.send(LEAVE * 2 + "D" + LEAVE)  # typed ahead: it answers no question
        terminal.shows("D discards the text")
        terminal.shows("lostD")
        terminal.send("!")
        terminal.shows("lostD!", "Ctrl-Q quit")
        terminal.send(LEAVE)
        terminal.shows("D discards the text")
        terminal.send("D")
        assert terminal.end() == 0
        assert any("not known to be on any disk" in line for line in terminal.screen.text)


def test_text_on_no_disk_is_in_a_file_after_a_signal(tmp_path: Path) -> None:
    options = ("--listen", "tcp://127.0.0.1:0", "--timeout", "0.2")
    with Terminal("doc", "edit", "notes/a", *options, columns=200, TMPDIR=str(tmp_path)) as terminal:
        terminal.shows("on no disk yet")
        terminal.send("precious")
        terminal.shows("precious")
        terminal.process.send_signal(signal.SIGHUP)
        assert terminal.end() == 128 + signal.SIGHUP
        [path] = tmp_path.glob("nngkit-*/a.txt")
        assert path.read_text() == "precious"
        assert any(str(path) in line for line in terminal.screen.text)


def test_a_terminal_that_closes_ends_it_and_the_text_is_in_a_file(tmp_path: Path) -> None:
    words = command("doc", "edit", "a", "--listen", "tcp://127.0.0.1:0", "--timeout", "0.2")
    argv = ["/bin/sh", "-c", 'exec "$@" 2>"$0"', str(tmp_path / "stderr"), *words]
    with Terminal(argv=argv, TMPDIR=str(tmp_path)) as it:
        it.shows("on no disk yet")
        it.send("precious")
        it.shows("precious")
        it.hang_up()
        assert it.process.wait(30) == 128 + signal.SIGHUP
        [path] = tmp_path.glob("nngkit-*/a.txt")
        assert path.read_text() == "precious"
        assert str(path) in (tmp_path / "stderr").read_text()


def test_a_wrong_token_is_shown_in_the_status_line(tmp_path: Path) -> None:
    with home(tmp_path) as join, edit(tmp_path / "a.sqlite", "--join", join.partition("#")[0], columns=100) as terminal:
        terminal.shows("refused: ")
        terminal.send("still mine" + LEAVE)
        assert terminal.end() == 0
    assert text_of(tmp_path / "a.sqlite") == "still mine"


# ---- the terminal


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_restores_the_terminal_and_loses_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with edit(tmp_path / "docs.sqlite") as terminal:
        terminal.shows("Ctrl-Q quit")
        terminal.send("written")
        terminal.shows("written")
        terminal.process.send_signal(number)
        assert terminal.end() == 128 + number
        assert terminal.is_as_before()
    assert text_of(tmp_path / "docs.sqlite") == "written"


def test_a_crash_restores_the_terminal(tmp_path: Path) -> None:
    script = (
        "import sys, nngkit.cli.doc.editor.screen as editing; from nngkit.cli.main import main\n"
        "def crash(*_): raise ZeroDivisionError('a bug')\n"
        "editing.Editor._take_back = crash\n"
        f"sys.exit(main(['doc', 'edit', 'a', '--store', {str(tmp_path / 'docs.sqlite')!r}]))"
    )
    with Terminal(argv=[sys.executable, "-c", script], columns=100, rows=40) as terminal:
        terminal.shows("Ctrl-Q quit")
        terminal.send(UNDO)
        assert terminal.end() == 1
        assert any("ZeroDivisionError: a bug" in line for line in terminal.screen.text)
        assert terminal.is_as_before()


def test_without_its_extra_the_editor_names_it(tmp_path: Path) -> None:
    words = ["doc", "edit", "a", "--store", str(tmp_path / "docs.sqlite")]
    script = (
        f"import sys; sys.modules['prompt_toolkit'] = None\nfrom nngkit.cli.main import main; sys.exit(main({words!r}))"
    )
    with Terminal(argv=[sys.executable, "-c", script], columns=120) as terminal:
        assert terminal.end() == 2
        said = "nngkit doc edit: the editor: prompt_toolkit is not installed: pip install 'nngkit[editor]'"
        assert [line for line in terminal.screen.text if line] == [said]
    assert not (tmp_path / "docs.sqlite").exists()


def test_no_color_is_honoured(tmp_path: Path) -> None:
    with home(tmp_path) as join, edit(tmp_path / "a.sqlite", "--join", join, NO_COLOR="1") as terminal:
        with Terminal("doc", "edit", "minutes", "--join", join, "--name", "Grace") as grace:
            grace.shows("Ada")
            grace.send("here")
            terminal.shows("here", "Grace")
        assert not re.search(rb"\x1b\[[\d;]*[34]8;5;", terminal.written)
        assert not re.search(rb"\x1b\[(?:\d+;)*(?:3[0-7]|4[0-7])m", terminal.written)


def test_control_characters_are_shown_not_interpreted(tmp_path: Path) -> None:
    (tmp_path / "minutes.txt").write_text("a\x1b[31mb\x07\u202ec\rd\te\u2028f")
    store = tmp_path / "docs.sqlite"
    assert nngkit("doc", "import", str(tmp_path / "minutes.txt"), "--store", str(store)).returncode == 0
    with edit(store) as terminal:
        terminal.shows("a^[[31mb^G·c^Md e·f")


def test_a_dumb_terminal_gets_an_external_editor(tmp_path: Path) -> None:
    for term in ("dumb", "no-such-terminal"):
        with edit(tmp_path / term, TERM=term, EDITOR="printf 'by %s\\n' hand >>") as terminal:
            # without a shell: the words are an argument of printf
            assert terminal.end() == 0
            assert any("minutes: 0 edits" in line for line in terminal.screen.text)


# ---- --editor


def script(tmp_path: Path, source: str) -> str:
    """Return an editor that is a Python program; `path` is its file."""
    path = tmp_path / "editor.py"
    path.write_text(f"import sys, time, pathlib\npath = pathlib.Path(sys.argv[1])\n{source}\n")
    return f"{sys.executable} {path}"


def test_the_text_saved_by_an_external_editor_is_merged(tmp_path: Path) -> None:
    store = tmp_path / "docs.sqlite"
    editor = script(tmp_path, "path.write_text(path.read_text() + 'Grüße 😀\\n')")
    done = nngkit("doc", "edit", "minutes", "--editor", "--store", str(store), "--json", VISUAL=editor)
    told = valid(done.stdout, "doc.json")
    assert (told["event"], told["edits"], told["kept"], done.stderr) == ("merged", 1, True, "")
    assert text_of(store) == "Grüße 😀\n"


def test_concurrent_edits_survive_an_external_editor(tmp_path: Path) -> None:
    gone, open_ = tmp_path / "go on", tmp_path / "open"
    editor = script(
        tmp_path,
        "text = path.read_text()\n"
        f"pathlib.Path({str(open_)!r}).touch()\n"
        f"while not pathlib.Path({str(gone)!r}).exists(): time.sleep(0.01)\n"
        "path.write_text(text.replace('two', 'TWO').replace('four', '') + 'five\\n')",
    )
    (tmp_path / "minutes.txt").write_text("one\ntwo\nthree\nfour\n")
    with home(tmp_path) as join:
        assert nngkit("doc", "import", str(tmp_path / "minutes.txt"), "--join", join).returncode == 0
        with Running("doc", "edit", "minutes", "--editor", "--join", join, "--json", EDITOR=editor) as running:
            deadline = time.monotonic() + 30
            while not open_.exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            (tmp_path / "minutes.txt").write_text("zero 漢\none\ntwo\nTHREE\nfour!\n")
            assert nngkit("doc", "import", str(tmp_path / "minutes.txt"), "--join", join).returncode == 0
            gone.touch()
            told = valid(running.line(), "doc.json")
            assert told["theirs"] > 0
            assert running.process.wait(30) == 0
        done = nngkit("doc", "cat", "minutes", "--join", join)
    assert done.stdout == "zero 漢\none\nTWO\nTHREE\n\nfive!\n"


def test_an_editor_that_fails_changes_nothing_and_loses_nothing(tmp_path: Path) -> None:
    editor = script(tmp_path, "path.write_text('half'); sys.exit(3)")
    done = nngkit("doc", "edit", "a", "--editor", "--store", str(tmp_path / "s"), EDITOR=editor, VISUAL="")
    assert_fails(done, 1, "ended with 3: not merged")
    kept = re.search(r"is in (\S+)", done.stderr)
    assert kept is not None
    assert Path(kept[1]).read_text() == "half"
    os.unlink(kept[1])
    os.rmdir(os.path.dirname(kept[1]))


@pytest.mark.parametrize(("editor", "says"), [("/nonexistent/editor", "No such file"), ("'", "No closing quotation")])
def test_an_editor_that_cannot_start_is_a_one_line_error(tmp_path: Path, editor: str, says: str) -> None:
    done = nngkit(
        "doc", "edit", "a", "--editor", "--store", str(tmp_path / "s"), EDITOR=editor, VISUAL="", TMPDIR=str(tmp_path)
    )
    assert done.returncode == 2
    assert says in done.stderr


def test_invalid_utf_8_is_not_merged(tmp_path: Path) -> None:
    editor = script(tmp_path, "path.write_bytes(b'\\xff')")
    done = nngkit(
        "doc", "edit", "a", "--editor", "--store", str(tmp_path / "s"), EDITOR=editor, VISUAL="", TMPDIR=str(tmp_path)
    )
    assert_fails(done, 1, "not merged", "a.txt")


def test_a_root_that_is_not_a_text_is_not_edited(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"body": [1]}')
    store = str(tmp_path / "s")
    assert nngkit("doc", "import", str(tmp_path / "a.json"), "--store", store).returncode == 0
    done = nngkit("doc", "edit", "a", "--editor", "--store", store, EDITOR="true", VISUAL="")
    assert_fails(done, 2, "--text: 'body' of 'a' is not a text")
