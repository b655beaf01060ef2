"""Every field of a class of `stats` says what metric it is, and has a help text."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest

import nngkit
from nngkit.cluster.shell.stats import EndpointStats
from nngkit.telemetry.declared import declared

NUMBERS = re.compile(r"\b(int|float|bool)\b")
ELSEWHERE = {"nngkit.spark", "nngkit.testing", "nngkit.aio", "nngkit.blocking", "nngkit.cli"}


def stats_classes() -> Iterator[type[Any]]:
    found = set()
    for each in walk_packages(nngkit.__path__, "nngkit.", onerror=lambda _: None):
        if any(each.name == room or each.name.startswith(f"{room}.") for room in ELSEWHERE) or "__main__" in each.name:
            continue
        try:
            module = import_module(each.name)
        except ImportError:  # an extra that is not installed
            continue
        for name, kind in vars(module).items():
            if name.endswith("Stats") and isinstance(kind, type) and kind.__module__ == each.name:
                found.add(kind)
    yield from sorted(found, key=lambda kind: (kind.__module__, kind.__name__))


CLASSES = list(stats_classes())
NO_METRICS = {"PipeStats"}  # of one connection: peers come and go


def test_the_classes_of_all_rooms_are_found() -> None:
    rooms = {kind.__module__.split(".")[1] for kind in CLASSES}
    assert rooms >= {
        *("calls", "cluster", "devices", "discovery", "documents", "fanout", "journal", "mesh", "protocols"),
        *("recording", "trust", "web"),
    }


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_number_is_a_metric_with_a_help_text(kind: type[Any]) -> None:
    assert is_dataclass(kind)
    if kind.__name__ in NO_METRICS:
        return
    known = declared(kind)
    named = {metric.attribute for metric in known.metrics} | {*known.labels, *known.keyed}
    forgotten = [each.name for each in fields(kind) if NUMBERS.search(str(each.type)) and each.name not in named]
    assert not forgotten, f"{forgotten} of {kind.__name__} have no type of nngkit/instruments.py"
    for metric in known.metrics:
        assert metric.help.endswith("."), f"{kind.__name__}.{metric.attribute} has no docstring"
        assert re.fullmatch(r"nngkit(_[a-z0-9]+)+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.unit in ("", "bytes", "seconds")


def test_no_two_fields_make_one_metric() -> None:
    names = [metric.name for kind in CLASSES if kind.__name__ not in NO_METRICS for metric in declared(kind).metrics]
    assert len(names) == len(set(names))


def test_the_parts_of_a_node_are_found_although_their_types_are_optional() -> None:
    assert {"work", "election", "jobs", "node"} <= set(declared(EndpointStats).parts)
