r"""Output formats of received messages, byte for byte those of nngcat and nanocat. Pure.

=======  ============================================================================
no       nothing
raw      the message, unchanged
ascii    bytes 32 to 126 unchanged, others as a dot; nanocat adds a newline
quoted   "..." and a newline; \" \\ \n \r, others as \xNN; nngcat has \t, nanocat \x09
hex      "..." and a newline, every byte as \xNN
msgpack  a MessagePack byte string: bin 8, 16 or 32
=======  ============================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# str.translate over latin-1, which maps bytes to code points one to one, runs at the speed of C.
_HEX: Final = {byte: f"\\x{byte:02x}" for byte in range(256)}
_PRINTABLE: Final = {byte: "." for byte in range(256) if not 32 <= byte < 127}
_NANOCAT: Final = {byte: _HEX[byte] for byte in _PRINTABLE} | {10: r"\n", 13: r"\r", 34: r"\"", 92: r"\\"}
_QUOTED: Final = _NANOCAT | {9: r"\t"}


def _translated(body: bytes, table: dict[int, str]) -> bytes:
    return body.decode("latin-1").translate(table).encode("latin-1")


def raw(body: bytes) -> bytes:
    """Return the message unchanged."""
    return body


def nothing(body: bytes) -> bytes:
    """Return nothing."""
    return b""


def printable(body: bytes) -> bytes:
    """Replace all but printable ASCII by dots."""
    return _translated(body, _PRINTABLE)


def nanocat_ascii(body: bytes) -> bytes:
    """Replace all but printable ASCII by dots, and add a newline."""
    return printable(body) + b"\n"


def quoted(body: bytes) -> bytes:
    """Return a C string and a newline."""
    return b'"' + _translated(body, _QUOTED) + b'"\n'


def nanocat_quoted(body: bytes) -> bytes:
    r"""Return a C string, with a tab as \x09, and a newline."""
    return b'"' + _translated(body, _NANOCAT) + b'"\n'


def hexed(body: bytes) -> bytes:
    r"""Return a C string of \xNN only, and a newline."""
    return b'"' + _translated(body, _HEX) + b'"\n'


def msgpack(body: bytes) -> bytes:
    """Return a MessagePack byte string."""
    size = len(body)
    for tag, width in ((b"\xc4", 1), (b"\xc5", 2), (b"\xc6", 4)):
        if size < 1 << 8 * width:
            return tag + size.to_bytes(width, "big") + body
    raise ValueError("MessagePack has no byte strings of 4 GiB or more")  # no socket of nngkit receives one


Formatter = Callable[[bytes], bytes]
_NNGCAT: Final[dict[str, Formatter]] = {
    "no": nothing,
    "raw": raw,
    "ascii": printable,
    "quoted": quoted,
    "msgpack": msgpack,
    "hex": hexed,
}
FORMATTERS: Final = {"nngcat": _NNGCAT, "nanocat": _NNGCAT | {"ascii": nanocat_ascii, "quoted": nanocat_quoted}}
