"""Text of SQL, as far as a prompt has to know it: where statements end, and which names they use. Pure.

>>> split("SELECT ';'; SELECT 2")
(["SELECT ';'"], ' SELECT 2')
>>> sorted(words("SELECT peer FROM rates -- of journal"))
['from', 'peer', 'rates', 'select']
"""

from __future__ import annotations

import re
from typing import Final

# Strings (with backslash escapes, as Spark's), quoted names, comments; the last alternatives are unfinished ones.
QUOTED: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*` | --[^\n]* | /\*.*?\*/ | ['"`] | /\*""", re.DOTALL | re.VERBOSE
)
WORD: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


def split(text: str) -> tuple[list[str], str]:
    """Return the statements that `;` ends, and the rest. A `;` in a string, a quoted name or a comment ends none."""
    statements, begin, at = [], 0, 0
    while at < len(text):
        quoted = QUOTED.match(text, at)
        if quoted is None:
            if text[at] == ";":
                if text[begin:at].strip():
                    statements.append(text[begin:at].strip())
                begin = at + 1
            at += 1
        elif len(quoted[0]) == 1 or quoted[0] == "/*":  # unfinished: all of the rest belongs to it
            break
        else:
            at = quoted.end()
    return statements, text[begin:]


def words(text: str) -> set[str]:
    """Return the words and quoted names outside of strings and comments, in lower case."""
    found, at = set(), 0
    for quoted in QUOTED.finditer(text):
        found |= set(WORD.findall(text[at : quoted.start()]))
        if quoted[0].startswith("`"):
            found.add(quoted[0].strip("`"))
        at = quoted.end()
    return {word.lower() for word in found | set(WORD.findall(text[at:]))}
