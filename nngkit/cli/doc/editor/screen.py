"""The editor in the terminal, by prompt_toolkit: it reads the keys, and sends the terminal what has changed.

prompt_toolkit runs under asyncio, in a thread of its own. It holds no text: each key, and each drawing, is a call into
the loop of trio, where the document is. So keys apply to the document's current text, the cursor is a relative position
that moves with the text while others write, and nothing changes between the reading of the text and the edit.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import trio
from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import Layout, UIContent, UIControl, Window
from prompt_toolkit.output import create_output

from nngkit.cli.doc.editor.rows import MOVES, Rows, pressed
from nngkit.cli.doc.editor.session import Session
from nngkit.documents.changes import Delete, Delta, Keep, TextChange

ESCAPE: Final = 0.05  # seconds after which an escape is the key itself and not the start of a sequence
FRAME: Final = 0.02  # seconds between two drawings; changes in between are drawn together
LOOK: Final = 1.0  # seconds between two drawings without a change: the number of peers
RESIZED: Final = 0.1  # seconds between two looks at the size: the signal of a new one is for the main thread only
HANGUP: Final = 128 + signal.SIGHUP
QUESTION: Final = "on no disk: D discards the text and quits, any other key goes on"
KEYS: Final = "Ctrl-S save  Ctrl-Z undo  Ctrl-Y redo  Ctrl-Q quit"

T = TypeVar("T")


class Editor(UIControl):
    """The control of the whole screen. `timeout`: seconds that saving to a peer's disk may take."""

    def __init__(self, session: Session, timeout: float) -> None:
        self._session = session
        self._text = session.text
        self._undo = session.document.undo(session.text)
        self._timeout = timeout
        self._cursor = self._top = self._text.cursor(0, before=True)
        self._rows: Rows | None = None
        self._height = 1
        self._goal: int | None = None  # the column that up and down keep
        self._unknown = False  # whether keys are the rest of a sequence that prompt_toolkit does not know
        self._leaving = False
        self._asking: bool | None = None  # whether the next key answers the question; None until that is drawn
        self.discarded = False
        self._code = 0
        keys = KeyBindings()
        keys.add(Keys.Any)(self._read)
        keys.add(Keys.Escape, Keys.Any)(self._read)  # with Alt
        keys.add("c-l")(lambda event: event.app.renderer.clear())
        self._application: Application[None] = Application(
            Layout(Window(self)),
            key_bindings=keys,
            # not sys.stdout, whose flush at the end of the process would fail once the terminal has closed
            output=create_output(os.fdopen(1, "w", encoding=sys.stdout.encoding, closefd=False)),
            full_screen=True,
            min_redraw_interval=FRAME,
            refresh_interval=LOOK,
            terminal_size_polling_interval=RESIZED,
        )
        self._application.timeoutlen = self._application.ttimeoutlen = ESCAPE

    async def run(self) -> int:
        """Edit until the user quits; return the exit code."""
        with trio.open_signal_receiver(signal.SIGHUP) as signals:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._session.run)
                self._nursery.start_soon(self._draw_when_notified)
                self._nursery.start_soon(self._end_on_hangup, signals)
                try:
                    await trio.to_thread.run_sync(self._run_application)
                except (EOFError, OSError):  # the terminal has closed
                    self._code = HANGUP
                self._nursery.cancel_scope.cancel()
        return self._code

    async def _draw_when_notified(self) -> None:
        try:
            while True:
                self._session.notified.clear()
                self._application.invalidate()
                await self._session.notified.wait()
        finally:  # the next drawing ends the application: it is cancelled
            self._application.invalidate()

    async def _end_on_hangup(self, signals: Any) -> None:
        async for _ in signals:
            self._code = HANGUP
            self._nursery.cancel_scope.cancel()

    # ------------------------------------------------------------------ in the thread of prompt_toolkit

    def _run_application(self) -> None:
        def begin() -> None:
            trio.from_thread.check_cancelled()
            asyncio.get_running_loop().set_exception_handler(self._fail)

        output = self._application.output
        try:
            self._application.run(pre_run=begin, set_exception_handler=False)
        finally:  # prompt_toolkit does so in its last drawing, of which an exception takes the place
            output.enable_autowrap()
            output.flush()

    def _fail(self, _: object, context: dict[str, Any]) -> None:
        """End the application by an exception of a key or a drawing."""
        if "exception" in context and self._application.future and not self._application.is_done:
            self._application.exit(exception=context["exception"])

    def _under_trio(self, function: Callable[..., T], *arguments: object) -> T:
        trio.from_thread.check_cancelled()
        return trio.from_thread.run_sync(function, *arguments)

    def create_content(self, width: int, height: int) -> UIContent:
        """Return the screen."""
        lines, cursor = self._under_trio(self._drawn, width, height)
        return UIContent(lines.__getitem__, len(lines), cursor)

    def _read(self, event: KeyPressEvent) -> None:
        *alt, press = event.key_sequence
        if not isinstance(press.key, Keys) or press.key is Keys.BracketedPaste:
            if alt:
                self._unknown = press.data == "["
            elif self._unknown:
                self._unknown = not "@" <= press.data <= "~"
            else:
                self._under_trio(self._press, "", press.data)
            return
        key = press.key.value.replace("s-", "")  # Shift changes nothing
        if alt:
            key = f"c-{key}" if key in MOVES else ""
        self._under_trio(self._press, key, "")

    # ------------------------------------------------------------------ keys

    def _press(self, key: str, typed: str) -> None:
        """Apply a key, or a text."""
        if self._asking and typed in ("d", "D"):
            self.discarded = True
            self._nursery.cancel_scope.cancel()
            return
        self._asking = None
        self._session.message = ""
        match key:
            case "c-q":
                self._nursery.start_soon(self._leave)
            case "c-s":
                self._session.message = "saving ..."
                self._nursery.start_soon(self._session.save, self._timeout)
            case "c-c":
                self._session.message = "Ctrl-Q quits"
            case "c-z" | "c-_" | "c-y":
                self._take_back("redo" if key == "c-y" else "undo")
            case _:
                self._edit(key, typed)

    def _edit(self, key: str, typed: str) -> None:
        text, at = str(self._text), self._at()
        steps = {"up": -1, "down": 1, "pageup": 1 - self._height, "pagedown": self._height - 1}
        if key.removeprefix("c-") in steps and self._rows is not None:
            rows = Rows(text, self._rows.columns, self._rows)
            self._goal = rows.column(at) if self._goal is None else self._goal
            at, deleted, inserted = rows.moved(at, steps[key.removeprefix("c-")], self._goal), 0, ""
        else:
            self._goal = None
            at, deleted, inserted = pressed(text, at, key, typed)
        if deleted or inserted:
            self._text.splice(at, deleted, inserted)
        if not (deleted or inserted) or inserted.endswith("\n"):  # a line ended or the cursor moved: one undo step
            self._undo.stop_capturing()
        self._place(at + len(inserted))

    def _take_back(self, what: str) -> None:
        reader = self._session.document.changes()
        if not (self._undo.undo() if what == "undo" else self._undo.redo()):
            self._session.message = f"nothing to {what}"
        for change in reader.unread():
            for part in change.parts:
                if isinstance(part, TextChange) and part.path == (self._session.root,):
                    self._place(min(_end_of(part.delta), len(self._text)))

    async def _leave(self) -> None:
        """Quit. A text that is on no disk is discarded only if the user says so."""
        if self._leaving:
            return
        self._leaving = True
        session, saved = self._session, True
        if not session.is_as_it_began:
            session.say("quitting ...")
            saved = await session.save(self._timeout)
            while saved and not session.is_kept:  # edits have arrived meanwhile
                saved = await session.save(self._timeout)
        if saved or session.is_kept:
            self._nursery.cancel_scope.cancel()
        else:
            session.say(QUESTION)
        self._leaving = False

    # ------------------------------------------------------------------ drawing

    def _at(self) -> int:
        at = self._text.index_of(self._cursor)
        return 0 if at is None else min(at, len(self._text))

    def _place(self, at: int) -> None:
        self._cursor = self._text.cursor(at, before=True)

    def _drawn(self, width: int, height: int) -> tuple[list[StyleAndTextTuples], Point]:
        """Return the lines of the screen, and where the cursor is. The text scrolls as little as shows the cursor."""
        session, at = self._session, self._at()
        below = min(2, height - 1)  # status and message, if there is room
        self._height = height - below
        rows, text = self._rows, str(self._text)
        if rows is None or (rows.text, rows.columns) != (text, width):
            rows = self._rows = Rows(text, width, rows)
        row = rows.row(at)
        top = rows.row(self._text.index_of(self._top) or 0)
        top = min(max(top, row - self._height + 1), row)
        self._top = self._text.cursor(rows.starts[top], before=True)
        session.place(at)
        others = session.others()
        lines = [rows.drawn(each, others) for each in range(top, min(top + self._height, len(rows.starts)))]
        lines += [[("dim", "~")]] * (self._height - len(lines))
        if session.message == QUESTION and self._asking is None:
            self._asking = not select.select([0], [], [], 0)[0]  # keys pressed before it do not answer it
        lines += [[*session.status(), ("reverse", " " * width)], [("dim", session.message or KEYS)]][:below]
        return [list(line) for line in lines], Point(rows.column(at), row - top)


def _end_of(delta: Delta) -> int:
    """Return the end of the last edit of a delta."""
    last = delta[-1].count if isinstance(delta[-1], Keep) else 0
    kept = (step.count if isinstance(step, Keep) else len(step.value) for step in delta if not isinstance(step, Delete))
    return sum(kept) - last
