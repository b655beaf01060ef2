"""Parts of OpenAPI 3.1 documents: of the doors of the daemons, and of the gateway. Pure.

::

    ping = Operation("Tell whether it answers.", {200: {JSON: {"type": "object"}}})
    document("nngkit ping", "Example.", {"/ping": {"get": ping.fields("/ping")}}, {})
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nngkit.web.exchange import REASONS

Schema = Mapping[str, Any]
"""A JSON Schema."""
JSON: Final = "application/json"
ANY: Final[Schema] = {}
OBJECT: Final[Schema] = {"type": "object"}
TEXT: Final[Schema] = {"type": "string"}
SEGMENT: Final[Schema] = {"type": "string", "minLength": 1}
"""Of a parameter in a path."""
UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]")  # in the name of a component


@dataclass(frozen=True, slots=True)
class Operation:
    """A method at a path. `responses`: schemas by media type of each status; `told`: what a status means here.

    `takes`: schemas of the body by media type.
    """

    summary: str
    responses: Mapping[int, Mapping[str, Schema]]
    parameters: tuple[Schema, ...] = ()
    takes: Mapping[str, Schema] = field(default_factory=dict)
    told: Mapping[int, str] = field(default_factory=dict)

    def fields(self, path: str) -> dict[str, Any]:
        """Return it as it is in a document."""
        found: dict[str, Any] = {"summary": self.summary}
        named = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        segments = [{"name": name, "in": "path", "required": True, "schema": SEGMENT} for name in named]
        if segments or self.parameters:
            found["parameters"] = [*segments, *self.parameters]
        if self.takes:
            found["requestBody"] = {"content": _content(self.takes)}
        found["responses"] = {
            str(status): {
                "description": self.told.get(status, REASONS[status]),
                **({"content": _content(content)} if content else {}),
            }
            for status, content in self.responses.items()
        }
        return found


def _content(schemas: Mapping[str, Schema]) -> dict[str, Any]:
    return {kind: {"schema": schema} for kind, schema in schemas.items()}


def record(properties: Mapping[str, Schema], *optional: str) -> Schema:
    """Return the schema of an object with these properties, all but `optional` required."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties}


def query(name: str, description: str, schema: Schema = TEXT, *, needed: bool = False) -> Schema:
    """Return a parameter of the query."""
    return {"name": name, "in": "query", "required": needed, "description": description, "schema": schema}


def header(name: str, description: str, schema: Schema = TEXT) -> Schema:
    """Return a parameter that is a header."""
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def document(
    title: str, description: str, paths: Mapping[str, Mapping[str, Any]], schemas: Mapping[str, Schema]
) -> dict[str, Any]:
    """Return a document. `schemas`: its components, to which `$ref` refers."""
    from nngkit import __version__

    about = {"title": title, "version": __version__, "description": description}
    return {"openapi": "3.1.0", "info": about, "paths": paths, "components": {"schemas": schemas}}


def component(name: str, schemas: Mapping[str, Schema]) -> str:
    """Return a name that none of `schemas` has, and that OpenAPI allows."""
    key = UNFIT.sub("_", name)
    while key in schemas:
        key += "_"
    return key


def moved(schema: Any, name: str, schemas: dict[str, Schema]) -> Schema:
    """Return a schema whose definitions are among `schemas` now: in OpenAPI a reference begins at the document.

    `name`: prefix of their names. `schema` may be anything, as a provider has told it.
    """
    if not isinstance(schema, Mapping):
        return ANY
    own = {key: value for key, value in schema.items() if key not in ("$schema", "$id", "$defs")}
    given = schema.get("$defs")
    defined: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    places: dict[str, str] = {}
    for each in defined:
        key = component(f"{name}.{each}", schemas)
        places[f"#/$defs/{each}"] = f"#/components/schemas/{key}"
        schemas[key] = ANY
    for each, value in defined.items():
        schemas[places[f"#/$defs/{each}"].rpartition("/")[2]] = _referring(value, places)
    return dict(_pairs(own, places))


def _referring(value: Any, places: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return dict(_pairs(value, places))
    return [_referring(each, places) for each in value] if isinstance(value, list) else value


def _pairs(schema: Mapping[str, Any], places: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str) and value in places:
            yield key, places[value]
        else:
            yield key, _referring(value, places)
