"""Griffe extensions for the reference: docstrings as Markdown, and the arguments of nngkit.aio and nngkit.blocking."""

from __future__ import annotations

import re

import griffe

MARK = re.compile(r"(\S)?::$", re.MULTILINE)


class CodeBlocks(griffe.Extension):
    """A docstring marks a code block by `::` and by indentation; Markdown needs the indentation only."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = MARK.sub(lambda match: f"{match[1]}:" if match[1] else "", obj.docstring.value)


class Constructors(griffe.Extension):
    """Give an `__init__` that is decorated by `nngkit.hosted.constructor` the parameters that it has when it runs."""

    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        for module in [*pkg["aio"].modules.values(), *pkg["blocking"].modules.values()]:
            for each in module.classes.values():
                own = None if each.is_alias else each.members.get("__init__")
                for decorator in own.decorators if own is not None else ():
                    if decorator.callable_path == "nngkit.hosted.constructor":
                        of, *_ = decorator.value.arguments
                        own.parameters = pkg.modules_collection[of.canonical_path]["__init__"].parameters
