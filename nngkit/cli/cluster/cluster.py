"""`nngkit cluster ACTION CLUSTER`: the state and the tree of a cluster; drain a node; issue tickets.

::

    $ nngkit cluster status render --dial tcp://a:7000
    $ nngkit cluster tree render --dial tcp://a:7000 --watch
    $ nngkit cluster drain render b --dial tcp://a:7000
    $ NNGKIT_TOKEN=s3cret nngkit cluster ticket render --until 3600 --id worker-7

All but `ticket` join for a moment, as a node without children and jobs that is left out of what they print.
"""

from __future__ import annotations

import argparse
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.cluster.node_options import add_cluster, add_join_timeout, cluster_name, joining_settings, renamed
from nngkit.cli.streams.log_lines import log_to_stderr
from nngkit.cli.streams.output import json_line, out, utc
from nngkit.cli.tls import add_tls
from nngkit.cli.tokens import joining
from nngkit.errors import ConfigError, NotFound, TimedOut

if TYPE_CHECKING:  # --help loads no event loop
    from nngkit.cluster import Member

NAME: Final = "nngkit cluster"
ACTIONS: Final = {
    "status": "print the host, the voters and the jobs",
    "tree": "print the members in their tree",
    "drain": "have a node end its jobs, and leave",
    "ticket": "print a permission to join, signed with the token",
}
EPILOG: Final = """\
`nngkit cluster ACTION --help` has the options of an action. All but ticket take --dial or --daemon,
--token and --ticket; all take --json.
Exit codes: 1 no such node, or not wanted in the cluster, 2 usage, 4 no host found, or no answer, in time,
130 interrupted (SIGINT). docs/command.md"""
DAY: Final = 86_400.0
LOOK: Final = 0.1  # seconds between two looks whether a drained node has left


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    for name, own in options.add_actions(parser, ACTIONS).items():
        if name == "ticket":
            _add_ticket(own)
            continue
        add_cluster(own)
        if name == "drain":
            own.add_argument("node", metavar="NODE", help="id of the node")
            options.add_seconds(own, "--wait", None, "wait until it has left, at most S seconds", zero=True)
        else:
            options.add_flag(own, "--watch", "redraw it on a terminal; elsewhere print each change")
            options.add_seconds(own, "--interval", 1.0, "--watch: seconds between two looks")
        options.add_seconds(own, "--timeout", 5.0, "seconds for the host's answer")
        add_join_timeout(own)
        options.add(own, "json")
        add_tls(own)


def _add_ticket(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cluster", type=cluster_name, metavar="CLUSTER", help="name of the cluster")
    options.add_token(parser, "the cluster's")
    options.add_seconds(parser, "--until", DAY, "seconds from now that it is valid; then its node is cut off")
    parser.add_argument("--id", metavar="ID", default="", help="the only node that may use it (default: any)")
    options.add(parser, "json")


def run(arguments: argparse.Namespace) -> int:
    """Run the action; return its exit code."""
    if arguments.action == "ticket":
        return _ticket(arguments)
    import trio

    log_to_stderr(NAME, "nngkit.cluster", logging.ERROR)  # its node lives for a moment: the error that ends it says all
    with renamed():
        return trio.run(_run, arguments)


def _ticket(arguments: argparse.Namespace) -> int:
    from nngkit.cluster.admission import issue_ticket
    from nngkit.cluster.frames import check_id

    token, _ = joining((), arguments.token, "--token")
    if token is None:
        raise ConfigError("--token", "is needed to sign a ticket, or NNGKIT_TOKEN")
    with renamed():
        if arguments.id:
            check_id(arguments.id)
    until = time.time() + arguments.until
    ticket = issue_ticket(token, arguments.cluster, until=until, id=arguments.id)
    fields = {"cluster": arguments.cluster, "id": arguments.id or None, "until": utc(until), "ticket": ticket}
    out(json_line(fields) if arguments.json else ticket)
    return 0


async def _run(arguments: argparse.Namespace) -> int:
    from nngkit.cli.streams.signals import until_signal
    from nngkit.cluster import Member

    member = Member(arguments.cluster, slots=0, **joining_settings(arguments))

    async def work() -> None:
        async with member as node:
            await node.joined(arguments.join_timeout)
            if arguments.action == "drain":
                await _drain(node, arguments)
            else:
                from nngkit.cli.cluster.live import show

                await show(node, arguments)

    return await until_signal(work)


async def _drain(node: Member, arguments: argparse.Namespace) -> None:
    """Tell a node to leave, and print that; with `--wait`, that it has left."""
    import trio

    name = arguments.node
    if name == node.id:
        raise NotFound(f"{name!r} is this command's own node")
    state = await node.status(arguments.timeout)
    await node.drain(name, arguments.timeout)
    left = False
    if arguments.wait is not None:
        with trio.move_on_after(arguments.wait):
            if state.host == name and len(state.voters) == 1:  # no other host can tell
                while node.role != "joining":
                    await node.wait_for_change()
                left = True
            while not left:
                tree = await node.tree(arguments.timeout)
                left = all(member.id != name for member in tree.members)
                await trio.sleep(0 if left else LOOK)
    fields: dict[str, Any] = {"cluster": arguments.cluster, "node": name, "left": left}
    text = f"{name} has left {arguments.cluster}" if left else f"{name} was told to end its jobs and leave"
    out(json_line(fields) if arguments.json else text)
    if arguments.wait is not None and not left:
        raise TimedOut(f"{name} has not left in {arguments.wait:g} s", arguments.wait)
