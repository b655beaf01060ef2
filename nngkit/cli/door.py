"""`--http` of the daemons: health, metrics and state of a command by HTTP.

::

    door.add_http(parser)
    async with door.opened(NAME, arguments, routes, watch=[daemon], ready=ready): ...

The status page is at `/`; it shows the routes, or `sections` in place of those of the same names. Without the
option nothing is loaded.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.streams.stderr import say
from nngkit.errors import ConfigError

if TYPE_CHECKING:  # --help loads no event loop
    from nngkit.telemetry.metrics import Metrics, Watchable
    from nngkit.web.door import Door, Route
    from nngkit.web.site import Site
    from nngkit.web.status import Feed, Section

HELP: Final = (
    "answer /healthz, /readyz, /metrics, /v1/... here by HTTP, with a status page; a port alone is at 127.0.0.1 "
    "(default: off)"
)


def add_http(parser: argparse._ActionsContainer) -> None:
    """Add `--http` and `--http-name`."""
    parser.add_argument("--http", type=options.host_port, metavar="[HOST:]PORT", help=HELP)
    options.add(parser, "http-name")


def check_http(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for an `--http` that `opened` would refuse, and for names without it."""
    if arguments.http is not None:
        check_place(arguments.http)
    elif arguments.http_name:
        raise ConfigError("--http-name", "requires --http")


def check_place(http: tuple[str, int]) -> None:
    """Raise ConfigError for an address that other machines can reach, unless the process may be open to all.

    A pass does not help: the door is HTTP without TLS, and asks for no name.
    """
    from nngkit.protocols.own_host import check_guarded
    from nngkit.trust import OPEN, chosen

    host, port = http
    address = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
    try:
        check_guarded([address], OPEN if chosen(None) is OPEN else None, None)
    except ConfigError as error:
        why = "other machines can reach it, and nothing keeps strangers out: use 127.0.0.1, or say --trust open"
        raise ConfigError("--http", f"{host}:{port}: {why}", http) from error


def line_schema(name: str) -> dict[str, Any]:
    """Return a schema of docs/schemas, of what a command prints with `--json`: a door answers the same."""
    text = resources.files("nngkit").joinpath("schemas", f"{name}.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def state_schema(kind: type[Any], *without: str) -> dict[str, Any]:
    """Return the schema of `asdict` of a dataclass, but for the fields `without`."""
    import msgspec

    (top,), parts = msgspec.json.schema_components([kind])
    for part in parts.values():
        if "properties" in part:  # it has all of its fields, also those with a default
            for each in part["properties"].values():
                each.pop("default", None)
            part |= {"required": list(part["properties"]), "additionalProperties": False}
    found = parts.pop(top["$ref"].rpartition("/")[2])
    for name in without:
        del found["properties"][name]
        found["required"].remove(name)
    return {**found, "$defs": parts}


def registry(
    name: str, watch: Iterable[Watchable], *, tell: bool = True
) -> tuple[Metrics, Callable[..., bytes] | None]:
    """Return the metrics of a command's objects and of its process, and their text, None without the extra `telemetry`.

    `tell`: say if there is none.
    """
    from nngkit.protocols import pool
    from nngkit.telemetry import Metrics
    from nngkit.trust import Trust, chosen

    metrics = Metrics()
    trust = chosen(None)
    for each in (*watch, pool, *([trust] if isinstance(trust, Trust) else [])):
        metrics.watch(each)
    try:
        metrics.text()
    except ConfigError as error:
        if tell:
            say(name, f"no /metrics: {error.why}")
        return metrics, None
    return metrics, metrics.text


def make(
    name: str,
    routes: Mapping[str, Route],
    *,
    watch: Iterable[Watchable],
    ready: Callable[[], str | None] = lambda: None,
    beyond: Site | None = None,
    events: Feed | None = None,
    tell: bool = True,
) -> tuple[Door, Callable[[Watchable], object]]:
    """Return the door of a command, and what adds an object to its metrics. `tell`: say if there are none."""
    from nngkit.web.door import Door

    metrics, text = registry(name, watch, tell=tell)
    return Door(name, routes, ready=ready, metrics=text, beyond=beyond, events=events), metrics.watch


def feed_of(name: str, routes: Mapping[str, Route], sections: Sequence[Section]) -> Feed:
    """Return the events of a command: `sections`, and the routes that have no table there. Its task is `run`."""
    from nngkit.web.door import section
    from nngkit.web.status import Feed

    special = {table for each in sections for table in each.tables}
    others = [section(path, each) for path, each in routes.items() if path.removeprefix("v1/") not in special]
    return Feed(name, [*sections, *others])


@asynccontextmanager
async def opened(
    name: str,
    arguments: argparse.Namespace,
    routes: Callable[[], Mapping[str, Route]],
    *,
    watch: Iterable[Watchable],
    ready: Callable[[], str | None] = lambda: None,
    sections: Callable[[], Sequence[Section]] = lambda: (),
) -> AsyncIterator[None]:
    """Answer at `--http` while the block runs, if it is given. Raises ConfigError, Unreachable; those of the block."""
    if arguments.http is None:
        yield
        return
    from nngkit.background import Background
    from nngkit.web.serving import serving

    check_place(arguments.http)
    from nngkit.web.status import page_site

    known = routes()
    feed = feed_of(name, known, sections())
    door, add = make(name, known, watch=[*watch, feed], ready=ready, beyond=page_site(), events=feed)
    host, port = arguments.http
    async with Background() as background, serving(door, host=host, port=port, names=arguments.http_name) as server:
        background.start(feed.run)
        add(server)
        say(name, f"answers HTTP at {server.url}")
        yield
