r"""How a received message is printed: bytes in, bytes out. Pure; the formats of nngcat and nanocat to the byte.

=======  ============================================================================
no       nothing
raw      the message, and nothing after it
ascii    32 to 126 as they are, else a dot; nanocat ends it with a newline
quoted   "..." and a newline; \" \\ \n \r, others as \xNN; nngcat has \t, nanocat \x09
hex      "..." and a newline, every byte as \xNN
msgpack  a MessagePack byte string: bin 8, 16 or 32
=======  ============================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["FORMATTERS", "hexed", "msgpack", "nanocat_ascii", "nanocat_quoted", "printable", "quoted"]

# By str.translate over latin-1, which maps bytes to code points one to one: C speed.
_HEX: Final = {byte: f"\\x{byte:02x}" for byte in range(256)}
_PRINTABLE: Final = {byte: "." for byte in range(256) if not 32 <= byte < 127}
_NANOCAT: Final = {byte: _HEX[byte] for byte in _PRINTABLE} | {10: r"\n", 13: r"\r", 34: r"\"", 92: r"\\"}
_QUOTED: Final = _NANOCAT | {9: r"\t"}


def _translated(body: bytes, table: dict[int, str]) -> bytes:
    return body.decode("latin-1").translate(table).encode("latin-1")


def raw(body: bytes) -> bytes:
    """As it is."""
    return body


def nothing(body: bytes) -> bytes:
    """Not printed."""
    return b""


def printable(body: bytes) -> bytes:
    """Dots for what is not printable ASCII."""
    return _translated(body, _PRINTABLE)


def nanocat_ascii(body: bytes) -> bytes:
    """The same and a newline."""
    return printable(body) + b"\n"


def quoted(body: bytes) -> bytes:
    """As a C string, and a newline."""
    return b'"' + _translated(body, _QUOTED) + b'"\n'


def nanocat_quoted(body: bytes) -> bytes:
    r"""As a C string in which a tab is \x09, and a newline."""
    return b'"' + _translated(body, _NANOCAT) + b'"\n'


def hexed(body: bytes) -> bytes:
    r"""As a C string of \xNN alone, and a newline."""
    return b'"' + _translated(body, _HEX) + b'"\n'


def msgpack(body: bytes) -> bytes:
    """As a MessagePack byte string."""
    size = len(body)
    for tag, width in ((b"\xc4", 1), (b"\xc5", 2), (b"\xc6", 4)):
        if size < 1 << 8 * width:
            return tag + size.to_bytes(width, "big") + body
    raise ValueError("MessagePack has no byte strings of 4 GiB or more")  # and no socket of ours receives one


Formatter = Callable[[bytes], bytes]
FORMATTERS: Final[dict[str, dict[str, Formatter]]] = {
    "nngcat": {"no": nothing, "raw": raw, "ascii": printable, "quoted": quoted, "msgpack": msgpack, "hex": hexed},
    "nanocat": {
        "no": nothing,
        "raw": raw,
        "ascii": nanocat_ascii,
        "quoted": nanocat_quoted,
        "msgpack": msgpack,
        "hex": hexed,
    },
}
