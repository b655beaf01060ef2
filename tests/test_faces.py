"""nngkit.aio and nngkit.blocking: each class under trio has both faces, with its methods, arguments and docstrings."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from nngkit import aio, blocking
from nngkit.background import UnderTrio

FACES = [
    (package, name) for package in (aio, blocking) for name in package.__all__ if hasattr(getattr(package, name), "_of")
]
IN_THE_LOOP = {
    "Client": {"call_blocking", "codec", "plain", "request_blocking"},  # lent to nngkit.blocking
    "DaemonClient": {"outcomes"},
    "Host": {"dial_failed", "journal_dropped", "link_down", "link_up", "received"},
    "Member": {"dial_failed", "journal_dropped", "link_down", "link_up", "received"},
    "ServiceDiscovery": {"answer", "changes", "now", "outcomes", "version", "wait_for_change", "wake"},
}
"""Public methods and properties that only other parts of nngkit use."""


def test_both_packages_have_the_same_classes() -> None:
    assert [name for package, name in FACES if package is aio] == [
        name for package, name in FACES if package is blocking
    ]


@pytest.mark.parametrize(("package", "name"), FACES, ids=lambda each: getattr(each, "__name__", each))
def test_a_face_has_the_methods_arguments_and_docstrings_of_the_class(package: Any, name: str) -> None:
    ours, theirs = getattr(package, name), getattr(package, name)._of
    assert issubclass(theirs, UnderTrio)
    public = {each for each in dir(theirs) if not each.startswith("_")} - {"aclose", "closed"}
    assert public - IN_THE_LOOP.get(name, set()) == {
        each for each in dir(ours) if not each.startswith("_") and hasattr(theirs, each)
    } - {"aclose"}
    for each in ["__init__", *public.intersection(dir(ours))]:
        here, there = getattr(ours, each), getattr(theirs, each)
        if each != "__init__":
            assert here.__doc__ == there.__doc__
        if callable(there):
            assert parameters(here) == parameters(there)


def parameters(function: Any) -> list[tuple[Any, ...]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]
