"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as typing's, without the cost of importing typing
if TYPE_CHECKING:
    from collections.abc import Callable


def lazily(package: str, names: dict[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a package; `names`: module of the package -> what it defines.

    The names of one module are separated by spaces; "": the module itself. A module elsewhere is written with its full
    name. Assign the result where a type checker does not see it, or any name passes:

    ::

        if not TYPE_CHECKING:
            __getattr__, __dir__ = lazily(__name__, {"client": "DaemonClient", "nngkit.protocols": "Pattern"})
    """
    modules = {name: module for module, defined in names.items() for name in defined.split() or [module]}
    namespace = vars(sys.modules[package])

    def get(name: str) -> object:
        from importlib import import_module

        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        defining = import_module(module if module.startswith("nngkit.") else f"{package}.{module}")
        found: object = defining if name == module else getattr(defining, name)
        namespace[name] = found  # an ordinary attribute from now on
        return found

    def names_of() -> list[str]:
        return sorted({*namespace, *namespace["__all__"]} - {"TYPE_CHECKING"})

    return get, names_of
