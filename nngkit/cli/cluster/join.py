"""`nngkit join CLUSTER`: a node of a cluster that does jobs with a program, or prints the messages.

::

    $ nngkit join render --dial tcp://a:7000 --kind scale --exec 'convert - -resize 50% png:-' --slots 4
    $ nngkit join render --dial tcp://a:7000 --kind double --exec 'jq --unbuffered ".*2"' --lines
    $ nngkit join render --dial tcp://a:7000 --kind chat       # prints the messages of this kind

With `--listen` it may have children, so that a cluster becomes a tree. Without `--dial` it asks the discovery daemons
for nodes of the cluster.
"""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import door
from nngkit.cli.cluster.node_options import (
    add_cluster,
    add_listening,
    add_work,
    joining_settings,
    listening_settings,
    renamed,
    work_slots,
)
from nngkit.cli.streams.stderr import say

if TYPE_CHECKING:  # --help loads no event loop
    from nngkit.cluster import Endpoint, Member

NAME: Final = "nngkit join"
EPILOG: Final = """\
--exec: the payload is the command's standard input, its output the result. An exit code that is not 0 is a failure,
told with the end of its standard error; the job is tried again, here or elsewhere, but not after 65 (EX_DATAERR).
The command has NNGKIT_JOB_ID (a number), NNGKIT_JOB_KIND, NNGKIT_JOB_TRY, NNGKIT_JOB_FENCE (term.number, higher for
each later start of the job) and NNGKIT_JOB_PROGRESS in its environment; with --lines none of them. Each line that it
writes to the file NNGKIT_JOB_PROGRESS is the job's progress, from 0 to 1. A cancelled job kills its process group.
Without --exec: prints each message of the cluster, or those of --kind.
SIGINT and SIGTERM drain: jobs in progress end, within --drain-timeout, then the node leaves; a second signal ends it at
once. Exit codes: 0 drained by `nngkit cluster drain`, 1 not wanted in the cluster, 2 usage, 3 cannot listen,
130 interrupted (SIGINT), 143 terminated (SIGTERM)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_cluster(parser)
    add_listening(parser, required=False)
    door.add_http(parser)
    add_work(parser)


def check(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for arguments that do not go together."""
    work_slots(arguments)
    listening_settings(arguments)
    joining_settings(arguments, *(() if arguments.listen is None else (arguments.listen,)))
    door.check_http(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Run the node until a signal; return the exit code."""
    import trio

    arguments.slots = work_slots(arguments)
    door.check_http(arguments)
    if arguments.verbose:
        logging.getLogger("nngkit.cluster").setLevel(logging.INFO)
    with renamed():
        return trio.run(_run, arguments)


async def _run(arguments: argparse.Namespace) -> int:
    from nngkit.cli.cluster.node_lines import NodeLines
    from nngkit.cli.cluster.running import run_node
    from nngkit.cluster import Member

    own = () if arguments.listen is None else (arguments.listen,)
    settings: dict[str, Any] = {**listening_settings(arguments), **joining_settings(arguments, *own)}

    def tell(text: str) -> None:
        say(NAME, text)

    lines = NodeLines(arguments.cluster, arguments.json, tell)

    def make() -> Member:
        return Member(arguments.cluster, slots=arguments.slots, **settings)

    def listen_to_messages(node: Endpoint) -> None:
        if arguments.exec is None:
            for kind in dict.fromkeys(arguments.kind or [None]):
                node.on(kind)(lines.message)
            node.on_gap(lines.gap)

    peers = (*settings["dial"], *settings["daemons"], *settings["discovery"])
    return await run_node(arguments, make, lines, tell, listen_to_messages, name=NAME, peers=peers)
