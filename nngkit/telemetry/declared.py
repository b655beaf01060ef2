"""Metrics that a class of `stats` declares by the types and docstrings of its fields, and their samples.

See nngkit/instruments.py.

::

    nngkit.calls.server.ServerStats.requests: Total         nngkit_calls_server_requests_total
    nngkit.calls.server.ServerStats.p99: Seconds            nngkit_calls_server_p99_seconds
    nngkit.mesh.values.MeshStats.kept_bytes: Bytes          nngkit_mesh_kept_bytes
    nngkit.protocols._core.pipe.Stats.sent: Total           nngkit_protocols_sent_total

A help text is read from the source once, when an object of the class is first watched; where there is none (a frozen
program), it is the name of the field.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Final, Literal, get_args, get_origin
from weakref import WeakKeyDictionary

from nngkit.histogram import Distribution
from nngkit.instruments import Instrument

OTHER: Final = "(other)"
_KNOWN: WeakKeyDictionary[type[Any], Declared] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of one field. `attribute`: the field; `label`: of the keys of a mapping, "" for a number."""

    attribute: str
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    help: str
    label: str


Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Family:
    """Samples of one metric, by their labels."""

    metric: Metric
    samples: dict[Labels, float | Distribution] = field(default_factory=dict)

    def add(self, labels: Labels, value: float | Distribution, most: int) -> None:
        """Add a sample to that of equal labels."""
        if labels not in self.samples and len(self.samples) >= most:
            labels = tuple((name, OTHER) for name, _ in labels)
        before: Any = self.samples.get(labels)
        self.samples[labels] = value if before is None else before + value


@dataclass(frozen=True, slots=True)
class Declared:
    """Declarations of a class. `labels`: fields whose texts distinguish its objects; `parts`: all other fields.

    `keyed`: labels of the keys of mappings to parts.
    """

    prefix: str
    metrics: tuple[Metric, ...]
    labels: tuple[str, ...]
    parts: tuple[str, ...]
    keyed: dict[str, str]


def declared(kind: type[Any]) -> Declared:
    """Return what a class of `stats` declares."""
    known = _KNOWN.get(kind)
    if known is None:
        known = _KNOWN[kind] = _declared(kind)
    return known


def _declared(kind: type[Any]) -> Declared:
    prefix = _prefix(kind)
    texts = _docstrings(kind)
    metrics, labels, parts, keyed = [], [], [], {}
    for name, instrument in _instruments(kind):
        if instrument is None:
            parts.append(name)
        elif instrument.kind != "label":
            help_ = texts.get(name) or name.replace("_", " ")
            metrics.append(_metric(prefix, name, instrument, help_))
        elif instrument.label:
            parts.append(name)
            keyed[name] = instrument.label
        else:
            labels.append(name)
    return Declared(prefix, tuple(metrics), tuple(labels), tuple(parts), keyed)


def _instruments(kind: type[Any]) -> list[tuple[str, Instrument | None]]:
    """Return the fields and the properties that are metrics, each with its instrument; None for other fields."""
    module = vars(sys.modules[kind.__module__])
    found = [(each.name, _instrument(each.type, module)) for each in fields(kind)]
    for name, value in vars(kind).items():
        if isinstance(value, property) and value.fget is not None:
            instrument = _instrument(value.fget.__annotations__.get("return"), module)
            if instrument is not None:
                found.append((name, instrument))
    return found


def _instrument(annotation: object, module: dict[str, Any]) -> Instrument | None:
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, module)  # the source of a class, not a message
        except NameError:  # a name for type checkers alone, so not one of instruments.py
            return None
    if get_origin(annotation) is not Annotated:
        return None
    return next((each for each in get_args(annotation)[1:] if isinstance(each, Instrument)), None)


def _metric(prefix: str, name: str, instrument: Instrument, help_: str) -> Metric:
    assert instrument.kind != "label"
    words = [word for word in name.split("_") if word != instrument.unit]
    if instrument.unit:
        words.append(instrument.unit)
    if instrument.kind == "counter":
        words.append("total")
    return Metric(
        name, "_".join([prefix, *words]), instrument.kind, instrument.unit, " ".join(help_.split()), instrument.label
    )


def _prefix(kind: type[Any]) -> str:
    """Return the name of the room and of the class.

    >>> from nngkit.calls.client_stats import ClientStats
    >>> _prefix(ClientStats)
    'nngkit_calls_client'
    """
    package, _, rest = kind.__module__.partition(".")
    room = rest.partition(".")[0]
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__.removesuffix("Stats")).lower()
    return "_".join(filter(None, [package, room, "" if words == room else words]))


def _docstrings(kind: type[Any]) -> dict[str, str]:
    """Return the docstrings of the fields and properties, which Python does not keep."""
    found = {name: inspect.getdoc(value) or "" for name, value in vars(kind).items() if isinstance(value, property)}
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError):
        return found
    assert isinstance(body, ast.ClassDef)
    for each, text in zip(body.body, body.body[1:], strict=False):
        match each, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                found[name] = said
    return found


def is_stats(value: object) -> bool:
    """Return True for an object of a dataclass."""
    return is_dataclass(value) and not isinstance(value, type)
