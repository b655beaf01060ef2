"""`nngkit doc edit`: edit a text in the terminal, together with others.

Every key applies to the document's current text, the cursor is a relative position that moves with the text while
others write, and the screen is drawn from the document. Without a terminal, or with --editor, an external editor is
used (external_editor.py).
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import tempfile
from pathlib import Path
from typing import Any, Final

import trio

from nngkit.cli.doc.editor import external_editor
from nngkit.cli.doc.editor.caret import Caret, Size
from nngkit.cli.doc.editor.keys import Decoder, Event, Key, Typed
from nngkit.cli.doc.editor.screen import Screen, can_edit, sequences
from nngkit.cli.doc.editor.session import Session
from nngkit.cli.doc.editor.view import framed
from nngkit.cli.doc.opening import checked_root, in_trio, meets_others, opened, user
from nngkit.cli.streams.output import json_line
from nngkit.cli.streams.stderr import say
from nngkit.documents import Document
from nngkit.documents.changes import Delta, Insert, Keep, TextChange
from nngkit.errors import ConfigError

__all__ = ["run"]

NAME: Final = "nngkit doc edit"
READ: Final = 65536  # bytes read at once
ESCAPE: Final = 0.05  # seconds after which an escape is the key itself and not the start of a sequence
FRAME: Final = 0.02  # seconds between two drawings; changes in between are drawn together
HANGUP: Final = 128 + signal.SIGHUP
QUESTION: Final = "on no disk: D discards the text and quits, any other key goes on"
KEYS: Final = "Ctrl-S save  Ctrl-Z undo  Ctrl-Y redo  Ctrl-Q quit"


def run(arguments: argparse.Namespace) -> int:
    """Edit until the user quits; return the exit code."""
    if arguments.store is None and not meets_others(arguments) and not arguments.listen:
        raise ConfigError("--store", "the text would be lost: give a store, or peers (--join, --dial, --listen)")
    if arguments.editor or not can_edit():
        return external_editor.edit(arguments)
    done: dict[str, Any] = {}
    code = 0
    warned: list[str] = []
    rescued: list[Path] = []

    async def work() -> None:
        nonlocal code
        async with opened(arguments, new=True) as peer:
            document = peer.open(arguments.name)
            session = Session(
                peer,
                document,
                checked_root(document, arguments.text),
                name=user(arguments),
                stored=arguments.store is not None,
            )
            editor = _Editor(session, arguments.timeout)
            try:
                code = await editor.run()
            finally:
                done.update(left(document, session))
                if not done["kept"] and not editor.discarded:
                    rescued.append(rescue(arguments.name, str(session.text)))

    ended = in_trio(work, warned.append)  # printed after the screen is restored
    for text in dict.fromkeys(warned):
        say(NAME, text)
    if done:
        if not done["kept"]:
            where = "".join(f"; the text is in {path}" for path in rescued)
            say(NAME, f"{arguments.name}: the last edits are not known to be on any disk{where}")
        if arguments.json:
            print(json_line(done))
    return ended or code


def left(document: Document, session: Session) -> dict[str, Any]:
    """Return the JSON printed at the end; docs/schemas/doc.json."""
    return {
        "event": "left",
        "document": document.name,
        "characters": len(session.text),
        "digest": document.digest().hex(),
        "kept": session.is_kept or session.is_as_it_began,
    }


def rescue(name: str, text: str) -> Path:
    """Write a text that is on no disk to a new file, readable by its owner only; return its path."""
    path = Path(tempfile.mkdtemp(prefix="nngkit-")) / f"{name.rpartition('/')[2]}.txt"
    path.write_bytes(text.encode())
    return path


class _Editor:
    """The editor's loop. `timeout`: seconds that saving to a peer's disk may take."""

    def __init__(self, session: Session, timeout: float) -> None:
        self._session = session
        self._document = session.document
        self._text = session.text
        self._undo = session.document.undo(session.text)
        self._timeout = timeout
        self._decoder = Decoder(sequences())
        self._cursor = self._text.cursor(0, before=True)
        self._top = self._text.cursor(0, before=True)
        self._goal: int | None = None
        self._asking = False  # whether to discard the text
        self._typed_ahead = False  # input that was there before the question does not answer it
        self.discarded = False
        self._code = 0

    async def run(self) -> int:
        with trio.open_signal_receiver(signal.SIGWINCH, signal.SIGHUP) as signals, Screen() as screen:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._screen = screen
                nursery.start_soon(self._session.run)
                nursery.start_soon(self._draw_always)
                nursery.start_soon(self._handle, signals)
                await self._read()
                nursery.cancel_scope.cancel()
        return self._code

    async def _handle(self, signals: Any) -> None:
        async for number in signals:
            if number == signal.SIGHUP:  # the terminal has closed
                self._code = HANGUP
                self._nursery.cancel_scope.cancel()
                return
            self._screen.resized()
            self._session.notify()

    # ------------------------------------------------------------------ keys

    async def _read(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(0)
            answers = self._asking and not self._typed_ahead
            self._typed_ahead = False
            try:
                data = os.read(0, READ)
            except OSError:
                data = b""
            if not data:
                self._code = HANGUP
                return
            events = self._decoder.feed(data)
            while self._decoder.pending:
                with trio.move_on_after(ESCAPE) as waited:
                    await trio.lowlevel.wait_readable(0)
                events += self._decoder.flush() if waited.cancelled_caught else self._decoder.feed(os.read(0, READ))
            for event in events:
                if answers and event in (Typed("d"), Typed("D")):
                    self.discarded = True
                    return
                answers = False
                if await self._press(event):
                    return
            self._session.notify()

    async def _press(self, event: Event) -> bool:
        """Apply a key; return True to quit."""
        name = event.name if isinstance(event, Key) else ""
        if name == "leave":
            return await self._leave()
        self._asking = False
        self._session.message = ""
        match name:
            case "save":
                self._nursery.start_soon(self._save)
            case "interrupt":
                self._session.message = "Ctrl-Q quits"
            case "redraw":
                self._screen.redraw()
            case "undo" | "redo":
                self._take_back(name)
            case _:
                self._edit(event)
        return False

    def _edit(self, event: Event) -> None:
        caret = Caret(str(self._text), self._at(), self._goal)
        columns, rows = self._screen.size
        edits = caret.press(event, Size(max(1, columns), max(1, rows - 2)))
        for at, deleted, inserted in edits:
            self._text.splice(at, deleted, inserted)
        if not edits or edits[-1][2].endswith("\n"):  # a line ended or the cursor moved: one undo step
            self._undo.stop_capturing()
        self._goal = caret.goal
        self._place(caret.at)

    def _take_back(self, name: str) -> None:
        reader = self._document.changes()
        done = self._undo.undo() if name == "undo" else self._undo.redo()
        at = None
        for change in reader.unread():
            for part in change.parts:
                if isinstance(part, TextChange) and part.path == (self._session.root,):
                    at = _end_of(part.delta)
        if not done:
            self._session.message = f"nothing to {name}"
        elif at is not None:
            self._place(min(at, len(self._text)))

    async def _save(self) -> None:
        self._session.message = "saving ..."
        self._session.notify()
        self._session.message = await self._session.save(self._timeout)
        self._session.notify()

    async def _leave(self) -> bool:
        """Return True to quit. A text that is on no disk is discarded only if the user says so."""
        session = self._session
        if session.is_as_it_began:
            return True
        session.message = "quitting ..."
        self._draw()
        await session.save(self._timeout)
        if session.is_kept:
            return True
        session.message = QUESTION
        self._asking = True
        self._typed_ahead = bool(select.select([0], [], [], 0)[0])
        return False

    # ------------------------------------------------------------------ drawing

    def _at(self) -> int:
        at = self._text.index_of(self._cursor)
        return 0 if at is None else min(at, len(self._text))

    def _place(self, at: int) -> None:
        self._cursor = self._text.cursor(at, before=True)

    async def _draw_always(self) -> None:
        while True:
            self._session.notified.clear()
            self._draw()
            await trio.sleep(FRAME)
            await self._session.notified.wait()

    def _draw(self) -> None:
        text, at = str(self._text), self._at()
        columns, rows = self._screen.size
        frame = framed(
            text,
            at,
            self._text.index_of(self._top) or 0,
            columns,
            rows,
            self._session.others(),
            self._session.status(),
            self._session.message or KEYS,
        )
        self._top = self._text.cursor(frame.top, before=True)
        self._session.place(at)
        self._screen.draw(frame)


def _end_of(delta: Delta) -> int:
    """Return the end of the last edit of a delta."""
    at = end = 0
    for step in delta:
        match step:
            case Keep(count):
                at += count
            case Insert(value):
                at += len(value)
                end = at
            case _:
                end = at
    return end
