"""Decode the input of a terminal into keys and text. Pure; the input may be split anywhere.

>>> decoder = Decoder()
>>> decoder.feed(b"a\\xc3"), decoder.feed(b"\\xa9\\x1b["), decoder.feed(b"A\\x1b[200~x\\ry\\x1b[201~")
([Typed('a')], [Typed('é')], [Key('up'), Pasted('x\\ny')])

A single escape may be the start of a key: call `flush` after a moment without input, to end the wait for more.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["Decoder", "Event", "Key", "Pasted", "Typed"]

CONTROLS: Final = {
    0x01: "home",
    0x03: "interrupt",
    0x04: "delete",
    0x05: "end",
    0x08: "backspace",
    0x0B: "cut",  # to the end of the line, as in a shell
    0x0C: "redraw",
    0x11: "leave",
    0x13: "save",
    0x19: "redo",
    0x1A: "undo",
    0x1F: "undo",  # Ctrl-_, as in a shell
    0x7F: "backspace",
}
BREAKS: Final = {0x09: "\t", 0x0A: "\n", 0x0D: "\n"}
FINALS: Final = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end"}
NUMBERS: Final = {1: "home", 3: "delete", 4: "end", 5: "page up", 6: "page down", 7: "home", 8: "end"}
FAR: Final = {"left": "word left", "right": "word right", "home": "top", "end": "bottom"}  # with Ctrl or Alt
LONGEST: Final = 64  # bytes of an escape sequence
BEGIN: Final = b"\x1b[200~"
END: Final = b"\x1b[201~"
ESCAPE: Final = 0x1B


@dataclass(frozen=True, slots=True)
class Key:
    """A key by name."""

    name: str

    def __repr__(self) -> str:
        return f"Key({self.name!r})"


@dataclass(frozen=True, slots=True)
class Typed:
    """Text from the keyboard, newlines as \\n."""

    text: str

    def __repr__(self) -> str:
        return f"Typed({self.text!r})"


@dataclass(frozen=True, slots=True)
class Pasted:
    """Pasted text, as far as it has arrived."""

    text: str

    def __repr__(self) -> str:
        return f"Pasted({self.text!r})"


Event = Key | Typed | Pasted


class Decoder:
    """Incremental decoder. `more`: further sequences of the terminal, and the names of their keys."""

    def __init__(self, more: Mapping[bytes, str] | None = None) -> None:
        self._more = {sequence: name for sequence, name in (more or {}).items() if sequence[:1] == b"\x1b"}
        self._buffer = b""
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._pasting = False
        self._events: list[Event] = []

    @property
    def pending(self) -> bool:
        """Return True if a sequence is incomplete."""
        return bool(self._buffer) and not self._pasting

    def flush(self) -> list[Event]:
        """End the wait for the rest of a sequence; a single escape is dropped."""
        rest, self._buffer = self._buffer[1:], b""
        return self.feed(rest) if rest else []

    def feed(self, data: bytes) -> list[Event]:
        """Return the complete keys and texts."""
        self._buffer += data
        self._events = []
        while self._buffer:
            if not (self._paste() if self._pasting else self._next()):
                break
        return self._events

    def _paste(self) -> bool:
        at = self._buffer.find(END)
        if at < 0:  # the end mark, or a line end, may be incomplete
            half = (b"\r", *(END[:n] for n in range(1, len(END))))
            at = len(self._buffer) - max((len(each) for each in half if self._buffer.endswith(each)), default=0)
            rest = self._buffer[at:]
        else:
            rest, self._pasting = self._buffer[at + len(END) :], False
        pasted = self._text.decode(self._buffer[:at], final=not self._pasting)
        self._buffer = rest
        if pasted:
            pasted = pasted.replace("\r\n", "\n").replace("\r", "\n")
            self._add(Pasted("".join(each for each in pasted if each >= " " or each in "\n\t")))
        return not self._pasting

    def _next(self) -> bool:
        first = self._buffer[0]
        if first == ESCAPE:
            return self._sequence()
        if first in BREAKS:
            self._add(Typed(BREAKS[first]))
        elif first < 0x20 or first == 0x7F:
            if first in CONTROLS:
                self._add(Key(CONTROLS[first]))
        else:
            end = next((at for at, byte in enumerate(self._buffer) if byte < 0x20 or byte == 0x7F), len(self._buffer))
            if text := self._text.decode(self._buffer[:end]):
                self._add(Typed(text))
            self._buffer = self._buffer[end:]
            return True
        self._buffer = self._buffer[1:]
        return True

    def _add(self, event: Event) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(event, Typed) and isinstance(last, Typed):
            self._events[-1] = Typed(last.text + event.text)  # text that arrives together is one edit
        else:
            self._events.append(event)

    def _sequence(self) -> bool:
        """Decode an escape sequence; return False if it is incomplete."""
        buffer = self._buffer
        for sequence, name in self._more.items():
            if buffer.startswith(sequence):
                return self._key(name, len(sequence))
        if len(buffer) == 1:
            return False
        if buffer[1] == ESCAPE:
            return self._key("", 1)
        if buffer[1] == ord("O"):
            return len(buffer) > 2 and self._key(FINALS.get(chr(buffer[2]), ""), 3)
        if buffer[1] != ord("["):
            return self._key("", 2)  # with Alt
        end = next((at for at in range(2, len(buffer)) if 0x40 <= buffer[at] <= 0x7E), None)
        if end is None or end > LONGEST:
            return len(buffer) > LONGEST and self._key("", LONGEST)
        if buffer.startswith(BEGIN):
            self._buffer, self._pasting = buffer[len(BEGIN) :], True
            return True
        return self._key(_control(buffer[2:end].decode("latin-1"), chr(buffer[end])), end + 1)

    def _key(self, name: str, size: int) -> bool:
        if name:
            self._add(Key(name))
        self._buffer = self._buffer[size:]
        return True


def _control(parameters: str, final: str) -> str:
    """Return the key of `ESC [ parameters final`, "" if unknown."""
    numbers = [int(each) if each.isdigit() and len(each) < 4 else 1 for each in parameters.split(";")]
    name = NUMBERS.get(numbers[0], "") if final == "~" else FINALS.get(final, "")
    if len(numbers) > 1 and numbers[1] in (3, 5, 7):
        return FAR.get(name, name)
    return name
