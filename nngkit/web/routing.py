"""Routes of an HTTP interface: which function answers a method and a path. Pure.

::

    router = Router()
    router.add("POST", "/call/{name}/{method}", call)
    match router.find("POST", "/call/pay/charge"):
        case Found(handler, params): ...        # call, {"name": "pay", "method": "charge"}
        case Wrong(methods): ...                # the path is known, the method is not
        case None: ...

A parameter is one segment of a path, whose "%" escapes are decoded after it was cut: "%2F" is part of a name and never
divides it. Segments that are empty or not UTF-8, and control characters, match no parameter. A literal segment wins
over a parameter in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import unquote_to_bytes

from nngkit.errors import ConfigError

H = TypeVar("H")


@dataclass(frozen=True, slots=True)
class Found(Generic[H]):
    """The handler of a request, the parameters of its path, and the path that was added."""

    handler: H
    params: Mapping[str, str]
    route: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Wrong:
    """The path is known, for other methods."""

    methods: tuple[str, ...]


class Router(Generic[H]):
    """Handlers by method and path."""

    def __init__(self) -> None:
        self._routes: dict[int, list[tuple[tuple[str, ...], dict[str, H]]]] = {}

    def add(self, method: str, path: str, handler: H) -> None:
        """Add a route; a segment "{name}" of `path` is a parameter. Raises ConfigError for one that exists."""
        segments = tuple(path.split("/")[1:])
        routes = self._routes.setdefault(len(segments), [])
        by_method = next((found for known, found in routes if known == segments), None)
        if by_method is None:
            by_method = {}
            routes.append((segments, by_method))
            routes.sort(key=lambda route: [each.startswith("{") for each in route[0]])
        if method in by_method:
            raise ConfigError("route", f"{method} {path} is there twice", path)
        by_method[method] = handler

    def routes(self) -> Iterator[tuple[str, str]]:
        """Yield the methods and paths that were added."""
        for routes in self._routes.values():
            for pattern, by_method in routes:
                for method in by_method:
                    yield method, "/" + "/".join(pattern)

    def find(self, method: str, path: str) -> Found[H] | Wrong | None:
        """Return the handler; `path` is as it came, without the query. None if it does not begin with "/"."""
        before, *segments = path.split("/")
        if before:
            return None
        wrong: dict[str, None] = {}
        for pattern, by_method in self._routes.get(len(segments), ()):
            params = _params(pattern, segments)
            if params is not None:
                if method in by_method:
                    return Found(by_method[method], params, "/" + "/".join(pattern))
                wrong |= dict.fromkeys(by_method)
        return Wrong(tuple(wrong)) if wrong else None


def _params(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    for expected, segment in zip(pattern, segments, strict=True):
        if expected.startswith("{"):
            value = decoded(segment)
            if not value:
                return None
            params[expected[1:-1]] = value
        elif segment != expected:
            return None
    return params


def decoded(segment: str) -> str:
    """Return a segment without "%" escapes; "" if it is not UTF-8, or has characters that cannot be printed."""
    if "%" not in segment:
        return segment
    try:
        value = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        return ""
    return value if value.isprintable() else ""
