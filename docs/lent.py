"""A griffe extension: methods that `nngkit.blocking` takes over from an async class, with their documentation.

`discover = _waits(_discovery.ServiceDiscovery.discover)` is an attribute to a program that only reads the source. The
extension replaces it by the method that it wraps, without `async`, so that parameters and docstring show.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

MODULE = "nngkit.blocking"
ITERATES = re.compile(r"AsyncGenerator\[(.*), None\]")
WRAPPERS = {"_waits", "_does", "_tells", "_iterates", "_reads"}


class Lent(griffe.Extension):
    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        if pkg.path != MODULE.partition(".")[0] or MODULE.partition(".")[2] not in pkg.modules:
            return
        for cls in pkg.modules[MODULE.partition(".")[2]].classes.values():
            for decorator in cls["__init__"].decorators if "__init__" in cls.members else ():
                if isinstance(decorator.value, griffe.ExprCall) and str(decorator.value.function) == "_opens":
                    opened = pkg[decorator.value.arguments[0].canonical_path.removeprefix(pkg.path + ".")]
                    cls["__init__"].parameters = opened["__init__"].parameters
            for name, attribute in list(cls.attributes.items()):
                if isinstance(attribute.value, griffe.ExprCall) and str(attribute.value.function) in WRAPPERS:
                    self.replace(pkg, cls, name, attribute, attribute.value.arguments[0])

    def replace(self, pkg: griffe.Module, cls: griffe.Class, name: str, attribute: griffe.Attribute, of: Any) -> None:
        wrapped = pkg[of.canonical_path.removeprefix(pkg.path + ".")]
        if wrapped.is_attribute:  # a property
            attribute.docstring = wrapped.docstring
            attribute.value = None
            return
        lent = griffe.Function(
            name,
            lineno=attribute.lineno,
            endlineno=attribute.endlineno,
            parameters=wrapped.parameters,
            returns=ITERATES.sub(r"Iterator[\1]", str(wrapped.returns)),
            docstring=wrapped.docstring,
            parent=cls,
        )
        cls.set_member(name, lent)
