"""Griffe extension for the reference: docstrings as Markdown.

A docstring marks a code block by `::` and by indentation; Markdown needs the indentation only.
"""

from __future__ import annotations

import re

import griffe

MARK = re.compile(r"(\S)?::$", re.MULTILINE)


class CodeBlocks(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = MARK.sub(lambda match: f"{match[1]}:" if match[1] else "", obj.docstring.value)
