"""`nngkit host CLUSTER --listen URL`: a node that may be the host of a cluster.

::

    $ nngkit host render --listen tcp://127.0.0.1:7000 --token s3cret
    2026-01-31T12:00:00.123Z  render  host  listens at tcp://127.0.0.1:7000
    2026-01-31T12:00:00.125Z  render  host  is host of term 1

Alone it is host at once. Of several, each names all of them as voters: they elect the host, and a minority may die::

    $ nngkit host render --id a --listen tcp://0.0.0.0:7000 --voter a=tcp://a:7000 --voter b=tcp://b:7000 \\
          --voter c=tcp://c:7000 --store voter-a
"""

from __future__ import annotations

import argparse
import logging
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from nngkit.cli import door, options
from nngkit.cli.cluster.node_options import (
    add_listening,
    add_secret,
    add_work,
    cluster_name,
    listening_settings,
    one_tls,
    renamed,
    work_slots,
)
from nngkit.cli.streams.stderr import say
from nngkit.cli.tokens import joining
from nngkit.errors import ConfigError

NAME: Final = "nngkit host"
EPILOG: Final = """\
SIGINT and SIGTERM drain: jobs in progress end, within --drain-timeout, then the node leaves; a second signal ends it at
once. --exec is described by `nngkit join --help`. The token is proven, and not sent; messages are plain but on
tls+tcp. Exit codes: 0 drained by `nngkit cluster drain`, 1 not wanted in the cluster, 2 usage, 3 cannot listen,
130 interrupted (SIGINT), 143 terminated (SIGTERM)."""


def voter(text: str) -> tuple[str, str]:
    """Parse ID=URL."""
    name, equals, url = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not ID=URL")
    return name, options.address(url)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("cluster", type=cluster_name, metavar="CLUSTER", help="name of the cluster")
    add_listening(parser, required=True)
    text = "a node that may be host, this one among them; repeated, and the same at each of them"
    text += " (default: this one alone)"
    options.add_value(parser, "--voter", "ID=URL", text, type=voter, action="append", default=[])
    text = "of voters that know the same, the one with the highest becomes host"
    options.add_whole(parser, "--preference", 0, 1_000_000, text, default=0)
    parser.add_argument("--store", metavar="DIR", help="keep what was accepted in this folder: it outlives all voters")
    text = "nodes of the cluster, while this one is host"
    options.add_whole(parser, "--max-members", 1, 100_000, text, default=20_000)
    options.add_max_pipes(parser)
    door.add_http(parser)
    parser.add_argument("--journal", metavar="DIR", help="record jobs and hosts in this journal, while it is host")
    options.add_flag(parser, "--messages", "--journal: record messages too")
    add_secret(parser)
    add_work(parser)


def check(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of the node but its journal. Raises ConfigError for arguments that the start would refuse."""
    from nngkit.cluster import Host

    if arguments.messages and arguments.journal is None:
        raise ConfigError("--messages", "needs --journal")
    settings = _settings(arguments)
    door.check_http(arguments)
    with renamed():
        Host(arguments.cluster, **settings)  # refuses a listener that other machines can reach without protection
    return settings


def run(arguments: argparse.Namespace) -> int:
    """Run the node until a signal; return the exit code."""
    import trio

    settings = check(arguments)
    arguments.listen, arguments.slots = settings["listen"], settings["slots"]  # without its token; for `run_node`
    options.limit_pipes(arguments)
    if arguments.verbose:
        logging.getLogger("nngkit.cluster").setLevel(logging.INFO)
    with renamed():
        return trio.run(_run, arguments, settings)


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    from nngkit.discovery.settings import ClientSettings
    from nngkit.trust import Trust, chosen

    settings: dict[str, Any] = {
        **listening_settings(arguments),
        "preference": arguments.preference,
        "store": arguments.store,
        "max_members": arguments.max_members,
        "slots": work_slots(arguments),
        "recv_max_size": arguments.max_size,
    }
    voters = _voters(arguments)
    names = list(voters or {})
    settings["token"], urls = joining([arguments.listen, *(voters or {}).values()], arguments.token, "--listen")
    settings["listen"] = urls[0]
    settings["voters"] = None if voters is None else dict(zip(names, urls[1:], strict=True))
    certificates = ClientSettings.from_environment().certificates
    settings["tls"] = one_tls(arguments, certificates, urls[:1], [*urls[1:], *arguments.discovery])
    if voters and arguments.id is None and not isinstance(chosen(None, settings["tls"]), Trust):
        raise ConfigError("--id", "is required with --voter: which of them is this node?")
    return settings


def _voters(arguments: argparse.Namespace) -> dict[str, str] | None:
    voters: dict[str, str] = {}
    for name, url in arguments.voter:
        if voters.setdefault(name, url) != url:
            raise ConfigError("--voter", f"{name} has two addresses", name)
    return voters or None


async def _run(arguments: argparse.Namespace, settings: dict[str, Any]) -> int:
    from nngkit.cli.cluster.node_lines import NodeLines
    from nngkit.cli.cluster.running import run_node
    from nngkit.cluster import Host
    from nngkit.journal.recorder import Recorder

    async with AsyncExitStack() as opened:
        recorder: Any = None
        if arguments.journal is not None:
            recorder = await opened.enter_async_context(Recorder(arguments.journal))

        def make() -> Host:
            return Host(arguments.cluster, journal=recorder, journal_messages=arguments.messages, **settings)

        lines = NodeLines(arguments.cluster, arguments.json)
        peers = settings["discovery"] if settings["voters"] is None else ()  # a voter has its own address
        watch = [] if recorder is None else [recorder]
        return await run_node(arguments, make, lines, partial(say, NAME), name=NAME, peers=peers, watch=watch)
