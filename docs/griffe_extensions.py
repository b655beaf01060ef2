"""Griffe extensions for the reference: docstrings as Markdown, and the methods that `nngkit.blocking` wraps.

A docstring marks a code block by `::` and by indentation; Markdown needs the indentation only.

To a tool that reads only the source, `discover = _wrapper(_discovery.ServiceDiscovery.discover)` is a plain attribute.
The extension replaces it by a method with the parameters and the docstring of the wrapped one, and gives `__init__` the
parameters of the wrapped class.
"""

from __future__ import annotations

import re

import griffe

MODULE = "nngkit.blocking"
MARK = re.compile(r"(\S)?::$", re.MULTILINE)
ITERATES = re.compile(r"AsyncGenerator\[(.*), None\]")


class CodeBlocks(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = MARK.sub(lambda match: f"{match[1]}:" if match[1] else "", obj.docstring.value)


class WrappedMethods(griffe.Extension):
    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        root, _, name = MODULE.partition(".")
        if pkg.path != root or name not in pkg.modules:
            return
        for module in pkg.modules[name].modules.values():
            for cls in module.classes.values():
                if "__init__" in cls.members:
                    self.copy_parameters(pkg, cls["__init__"])
                for attribute in list(cls.attributes.values()):
                    self.replace(pkg, cls, attribute)

    def copy_parameters(self, pkg: griffe.Module, init: griffe.Function) -> None:
        for decorator in init.decorators:
            opened = wrapped(pkg, decorator.value)
            if opened is not None and "__init__" in opened.members:
                init.parameters = opened["__init__"].parameters

    def replace(self, pkg: griffe.Module, cls: griffe.Class, attribute: griffe.Attribute) -> None:
        of = wrapped(pkg, attribute.value)
        if of is None:
            return
        if of.is_attribute:  # a property
            attribute.docstring, attribute.value = of.docstring, None
            return
        method = griffe.Function(
            attribute.name,
            lineno=attribute.lineno,
            endlineno=attribute.endlineno,
            parameters=of.parameters,
            returns=ITERATES.sub(r"Iterator[\1]", str(of.returns)),
            docstring=of.docstring,
            parent=cls,
        )
        cls.set_member(attribute.name, method)


def wrapped(pkg: griffe.Module, value: object) -> griffe.Object | griffe.Alias | None:
    """Return the object of this package that is the argument of a call such as `_wrapper(_module.Class.method)`."""
    if not isinstance(value, griffe.ExprCall) or len(value.arguments) != 1:
        return None
    argument = value.arguments[0]
    if not isinstance(argument, griffe.ExprAttribute) or not argument.canonical_path.startswith(f"{pkg.path}."):
        return None
    try:
        return pkg[argument.canonical_path.removeprefix(f"{pkg.path}.")]
    except KeyError:
        return None
