"""Options that the commands of clusters share, and the settings of a node made of them.

::

    add_cluster(parser)                     # CLUSTER, --dial, --daemon, --token, --ticket, --max-size, TLS
    settings = joining_settings(arguments)
    Member(arguments.cluster, **settings)

Loads no event loop: `--help` and wrong options are answered without one.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.tls import add_tls, tls_or_variables
from nngkit.cli.tokens import joining
from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.discovery.settings import Certificates
    from nngkit.protocols import TLS

MAX_SIZE: Final = 16 << 20  # bytes: the default of Endpoint; all nodes of a cluster should have the same
MOST_NAME: Final = 64  # bytes: that of kinds
LONGEST_RUN: Final = 86_400.0  # seconds: longer than the jobs of most, and a forgotten process ends
SAME: Final = """
store id preference fanout max_members slots listen dial discovery advertise token ticket kind key
priority tries visibility deadline delay"""
FLAGS: Final = {  # of the settings of Endpoint, for errors
    "voters": "--voter",
    "daemons": "--daemon",
    **{name: f"--{name.replace('_', '-')}" for name in SAME.split()},
}


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the options of a node that joins."""
    parser.add_argument("cluster", type=cluster_name, metavar="CLUSTER", help="name of the cluster")
    text = "address of a node of the cluster, any will do; may end in #token=TOKEN; may be repeated"
    options.add_address(parser, "--dial", f"{text} (default: ask the daemons)", many=True)
    options.add(parser, "daemon")
    add_secret(parser)
    text = "permission to join, instead of the token: `cluster ticket`"
    options.add_value(parser, "--ticket", "TICKET", text, secret=True)


def add_secret(parser: argparse.ArgumentParser) -> None:
    """Add the token and the size of frames."""
    options.add_token(parser, "the cluster's")
    text = "largest frame; messages, payloads and results are at most half of it"
    options.add_whole(parser, "--max-size", 1024, 1 << 30, text, default=MAX_SIZE, metavar="BYTES")


def add_join_timeout(parser: argparse.ArgumentParser) -> None:
    """Add the time that a command waits for a host."""
    options.add_seconds(parser, "--join-timeout", 5.0, "seconds to find the cluster's host")


def add_listening(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add the options of a node that may have children."""
    text = "accept nodes here; they become children of this one"
    options.add_address(parser, "--listen", text, required=required)
    options.add_address(parser, "--advertise", "address that others dial, if it is not that of --listen")
    text = "survey address of a daemon that others find this node by; may be repeated"
    options.add_address(parser, "--discovery", text, many=True)
    parser.add_argument("--id", metavar="ID", help="id of the node, unique in the cluster (default: random)")
    options.add_whole(parser, "--fanout", 1, 4096, "children at most", default=8)


def add_work(parser: argparse.ArgumentParser) -> None:
    """Add the options of a node that does jobs with a program."""
    options.add_many(parser, "--kind", "KIND", "--exec: do jobs of this kind; may be repeated")
    text = "do jobs with this shell command: it reads the payload and writes the result"
    parser.add_argument("--exec", metavar="CMD", help=text)
    options.add_flag(parser, "--lines", "--exec: keep the processes: each reads a line a job and writes a line")
    options.add_whole(parser, "--slots", 1, 4096, "--exec: jobs at a time (default: one for each processor)")
    options.add_seconds(parser, "--exec-timeout", LONGEST_RUN, "--exec: seconds after which the program is killed")
    options.add_seconds(parser, "--drain-timeout", 10.0, "seconds that jobs in progress may take at the end")
    parser.add_argument("-v", "--verbose", action="store_true", help="also say which nodes join and leave")
    options.add(parser, "json", "shared-files")
    add_tls(parser, variables=True)


def work_slots(arguments: argparse.Namespace) -> int:
    """Return the number of jobs at a time; 0 without `--exec`. Raises ConfigError for options that lack another."""
    if arguments.exec is None:
        for option in ("lines", "slots"):
            if getattr(arguments, option):
                raise ConfigError(f"--{option}", "needs --exec")
        return 0
    if not arguments.kind:
        raise ConfigError("--exec", "needs --kind, the kind of the jobs")
    if arguments.slots is not None:
        return int(arguments.slots)
    return len(os.sched_getaffinity(0))


def joining_settings(arguments: argparse.Namespace, *listens: str) -> dict[str, Any]:
    """Return the settings of Endpoint by which it joins; `listens` is its own address. Raises ConfigError."""
    from nngkit.discovery.settings import ClientSettings

    token, dial = joining(arguments.dial, arguments.token, "--dial")
    settings = ClientSettings.from_environment(daemons=tuple(dict.fromkeys(arguments.daemon or ())))
    daemons = settings.daemons if arguments.daemon or not dial else ()
    there = [*dial, *daemons]
    if not dial and (arguments.cacert or arguments.insecure or settings.certificates.cacert):
        there.append("tls+tcp://node")  # perhaps: discovery will tell
    return {
        "dial": dial,
        "daemons": daemons,
        "token": token,
        "ticket": arguments.ticket,
        "recv_max_size": arguments.max_size,
        "tls": one_tls(arguments, settings.certificates, listens, there),
    }


def listening_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of Endpoint for `add_listening`."""
    if arguments.listen is None:
        for option in ("advertise", "discovery"):
            if getattr(arguments, option):
                raise ConfigError(f"--{option}", "needs --listen")
    return {
        "listen": arguments.listen,
        "advertise": arguments.advertise,
        "discovery": tuple(dict.fromkeys(arguments.discovery)),
        "id": arguments.id,
        "fanout": arguments.fanout,
    }


def one_tls(
    arguments: argparse.Namespace, variables: Certificates, listens: Iterable[str], dials: Iterable[str]
) -> TLS | None:
    """Return the TLS setting of a node that listens and dials; None if no address has TLS. Raises ConfigError."""
    tls = None
    sides = {"listen": tuple(listens), "dial": tuple(dials)}
    secure = {side: urls for side, urls in sides.items() if any(url.startswith(("tls+", "wss")) for url in urls)}
    if "listen" in secure:
        tls = tls_or_variables(arguments, variables, "listen", *secure["listen"])
    if "dial" in secure or not secure:
        tls = tls_or_variables(arguments, variables, "dial", *sides["dial"]) or tls
    return tls


def cluster_name(text: str) -> str:
    """Parse the name of a cluster."""
    if not (text.isprintable() and 1 <= len(text.encode("utf-8", "surrogateescape")) <= MOST_NAME):
        raise argparse.ArgumentTypeError(f"{text!r} is not printable text of 1 to {MOST_NAME} bytes")
    return text


@contextmanager
def renamed() -> Iterator[None]:
    """Raise a ConfigError of the block with the name of the option that is wrong."""
    try:
        yield
    except ConfigError as error:
        if error.what == "tls":
            from nngkit.cli.option_errors import named

            raise named(error, "--listen") from error
        raise ConfigError(FLAGS.get(error.what, error.what), error.why, error.value) from error
