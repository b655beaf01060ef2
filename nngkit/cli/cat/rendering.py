r"""Output formats of `nngkit cat` beyond nngcat's: --format-string, --json, --timestamp.

::

    parse_template(r"{time} {topic}: {body:quoted}\n")    a list of bytes and Tokens
    unescape(r"\x1e\n")                                   b"\x1e\n"

Pure: the time of arrival comes with the message.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from nngkit.cli.cat.command_line.plan import Received
from nngkit.cli.cat.formats import FORMATTERS

CAT_FORMATS: Final = FORMATTERS["nngcat"] | {"ascii": FORMATTERS["nanocat"]["ascii"]}
TOKENS: Final = ("body", "topic", "size", "time", "peer")
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PARTS: Final = re.compile(r"\\x([0-9a-fA-F]{2})|\\(.?)|\{\{|\}\}|\{([^{}]*)\}|[{}]|[^\\{}]+", re.DOTALL)


class Token(NamedTuple):
    """A placeholder of a template; `form` is the name of a format, "" for unchanged."""

    name: str
    form: str


def unescape(text: str) -> bytes:
    r"""Replace the escapes \n \t \r \0 \\ and \xNN. Raises ValueError for any other backslash."""
    found = re.finditer(r"\\x([0-9a-fA-F]{2})|\\(.?)|[^\\]+", text, re.DOTALL)
    return b"".join([_unescaped(match[0], match[1], match[2]) for match in found])


def _unescaped(whole: str, byte: str | None, letter: str | None) -> bytes:
    if byte is not None:
        return bytes([int(byte, 16)])
    if letter is None:
        return whole.encode("utf-8", "surrogateescape")
    if letter not in _ESCAPES:
        raise ValueError(rf"{whole!r} is not one of \n \t \r \0 \\ \xNN")
    return _ESCAPES[letter]


def parse_template(text: str) -> list[bytes | Token]:
    """Parse a --format-string. Raises ValueError."""
    parts: list[bytes | Token] = []
    for match in _PARTS.finditer(text):
        whole, inside = match[0], match[3]
        if whole in ("{{", "}}"):
            parts.append(whole[:1].encode())
        elif inside is not None:
            name, _, form = inside.partition(":")
            if name not in TOKENS:
                raise ValueError(f"{whole} is not one of {', '.join(f'{{{each}}}' for each in TOKENS)}")
            if form and (form not in CAT_FORMATS or name not in ("body", "topic")):
                raise ValueError(f"{whole}: {form!r} is not a format for it")
            parts.append(Token(name, form))
        elif whole in "{}":
            raise ValueError(f"a single {whole}; write {whole}{whole}")
        else:
            parts.append(_unescaped(whole, match[1], match[2]))
    return parts


def template(parts: Sequence[bytes | Token], topics: Sequence[bytes]) -> Callable[[Received], bytes]:
    """Return a function that fills a message into the template."""

    def filled(part: bytes | Token, received: Received) -> bytes:
        if isinstance(part, bytes):
            return part
        match part.name:
            case "size":
                return b"%d" % len(received.body)
            case "time":
                return utc(received.at).encode()
            case "peer":
                return b"" if received.pipe is None else received.pipe.address.encode()
            case name:
                value = received.body if name == "body" else topic_of(received.body, topics)
                # formats add no newline inside a template
                return CAT_FORMATS[part.form](value).removesuffix(b"\n") if part.form else value

    return lambda received: b"".join([filled(part, received) for part in parts])


def topic_of(body: bytes, topics: Sequence[bytes]) -> bytes:
    """Return the longest subscribed topic that the message begins with."""
    return max((topic for topic in topics if body.startswith(topic)), key=len, default=b"")


def utc(at: float) -> str:
    """Format seconds since 1970 as 2026-01-31T12:00:00.123456Z."""
    micros = round(at * 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(micros // 1_000_000))}.{micros % 1_000_000:06}Z"


def envelope(received: Received, protocol: str, topics: Sequence[bytes]) -> bytes:
    """Return the message as a line of JSON; docs/schemas/cat.json. Bytes that are not UTF-8 are in base64."""
    fields: dict[str, Any] = {
        "time": utc(received.at),
        "protocol": protocol,
        "peer": None if received.pipe is None else received.pipe.address,
        "topic": _text(topic_of(received.body, topics))[0] if protocol == "sub" else None,
        "size": len(received.body),
    }
    fields["body"], fields["encoding"] = _text(received.body)
    return json.dumps(fields, ensure_ascii=False, separators=(", ", ": ")).encode() + b"\n"


def _text(data: bytes) -> tuple[str, str]:
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
