"""Options shared by commands, in one table, and the types of their values.

::

    options.add(parser, "json", "timeout")

An invalid value is reported in one line by argparse: `argument --timeout: '5s' is not a number of seconds`.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NoReturn


class Parser(argparse.ArgumentParser):
    """Argument parser that reports errors in one line, with the option or value probably meant.

    `intermixed`: options may stand between positional arguments even if the last of those may be missing.
    """

    intermixed = False

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments; exit with an error if any is left over."""
        if self.intermixed:
            return self.parse_intermixed_args(args, namespace)
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        from nngkit.cli.masking import masked
        from nngkit.cli.suggestions import did_you_mean

        if (wrong := re.match(r"unrecognized arguments: (--[\w-]+)", message)) is not None:
            message += did_you_mean(wrong[1], self._option_string_actions)
        elif (wrong := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)) is not None:
            message += did_you_mean(wrong[1], re.findall(r"'(.*?)'", wrong[2]))
        self.exit(2, f"{self.prog}: {masked(message)} (see {self.prog} --help)\n")


class ActionParser(Parser):
    """Parser of an action. It rejects unknown options itself, so that the error names the action."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse all arguments; exit with an error if any is left over."""
        found, over = super().parse_known_args(args, namespace)
        if over:
            self.error(f"unrecognized arguments: {' '.join(over)}")
        return found, over


def add_actions(parser: argparse.ArgumentParser, summaries: Mapping[str, str]) -> dict[str, Parser]:
    """Add an action for each summary; return their parsers, by name."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=ActionParser)
    return {
        name: actions.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for name, summary in summaries.items()
    }


def parser_for(command: str, summary: str, epilog: str) -> Parser:
    """Return the parser of a command, without options."""
    return Parser(
        prog=f"nngkit {command}",
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def age(text: str) -> float:
    """Read a length of time, as 90s, 15m, 1h or 2d, in seconds."""
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}.get(text[-1:], 0.0)
    try:
        value = float(text[:-1] if unit else text) * (unit or 1.0)
    except ValueError:
        value = -1.0
    if not 0.0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time, as 90s, 15m, 1h or 2d")
    return value


def seconds(text: str) -> float:
    """Parse a number of seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def more_than_no_seconds(text: str) -> float:
    """Parse a number of seconds, over 0."""
    if not (number := seconds(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds over 0")
    return number


def size(text: str) -> int:
    """Parse a number of bytes, from 0 to 1 GiB."""
    return whole(text, 0, 1 << 30)


def whole(text: str, least: int, most: int) -> int:
    """Parse a whole number from `least` to `most`."""
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
    return int(text)


def address(text: str) -> str:
    """Return a URL. Its scheme and host are checked by the socket."""
    scheme, colon, rest = text.partition("://")
    if not (scheme and colon and rest):
        raise argparse.ArgumentTypeError(f"{text!r} is not an address like tcp://host:port")
    return text


def host_port(text: str) -> tuple[str, int]:
    """Parse [HOST:]PORT; a port alone is at 127.0.0.1."""
    host, colon, port = text.rpartition(":")
    if (colon and not host) or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not [HOST:]PORT")
    return host.strip("[]") or "127.0.0.1", whole(port, 0, 65535)


def host_name(text: str) -> str:
    """Return a host name in lower case."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,253}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a host name")
    return text.lower().rstrip(".")


def zones(text: str | None) -> tuple[str, ...]:
    """Return the zones of `--prefer`, without empty ones."""
    return tuple(filter(None, (text or "").split(",")))


MAX_PIPES: Final = "peers connected at a time, all sockets together (default: three quarters of its descriptors)"


class Option:
    """An option: its name on the command line, and the other arguments of argparse's add_argument.

    `variables`, `secret`: see `declare`.
    """

    def __init__(self, flag: str, *, variables: tuple[str, ...] = (), secret: bool = False, **keywords: Any) -> None:
        self.flag = flag
        self.variables = variables
        self.secret = secret
        self.keywords = keywords


def declare(action: argparse.Action, *variables: str, secret: bool = False) -> None:
    """Name the variables that the command reads for an option, if it is not given; mark one that is secret."""
    vars(action).update(variables=variables, secret=secret)


def variables_of(action: argparse.Action) -> tuple[str, ...]:
    """Return the variables that `declare` has named."""
    named: tuple[str, ...] = getattr(action, "variables", ())
    return named


def is_secret(action: argparse.Action) -> bool:
    """Return True if `declare` has marked it."""
    return bool(getattr(action, "secret", False))


OPTIONS: Final = {
    "json": Option("--json", action="store_true", help="print JSON, one object a line (docs/schemas/)"),
    "timeout": Option(
        "--timeout", type=seconds, default=2.0, metavar="S", help="seconds to wait for a reply (default: 2)"
    ),
    "daemon": Option(
        "--daemon",
        variables=("NNGKIT_QUERY", "NNGKIT_DISCOVERY_HOST", "NNGKIT_DISCOVERY_PORT"),
        type=address,
        action="append",
        metavar="URL",
        help="query address of a daemon, may be repeated (default: NNGKIT_QUERY, or DISCOVERY_HOST and the port "
        "after DISCOVERY_PORT, or tcp://127.0.0.1:5556)",
    ),
    "prefer": Option(
        "--prefer",
        variables=("NNGKIT_PREFER", "NNGKIT_ZONE"),
        metavar="ZONE,ZONE",
        help="zones in order of preference (default: NNGKIT_PREFER, or else NNGKIT_ZONE)",
    ),
    "tag": Option(
        "--tag", metavar="TAG", action="append", default=[], help="only providers with this tag; may be repeated"
    ),
    "cacert": Option("--cacert", metavar="FILE", help="TLS: certificate of the trusted authority (PEM)"),
    "cert": Option("--cert", metavar="FILE", help="TLS: own certificate (PEM)"),
    "key": Option("--key", metavar="FILE", help="TLS: key of the certificate (PEM)"),
    "log-format": Option(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="lines on standard error: text (default), or an object a line",
    ),
    "server-name": Option(
        "--server-name", metavar="NAME", help="TLS: expected name of the listener (default: the host)"
    ),
    "insecure": Option("--insecure", action="store_true", help="TLS: accept any certificate"),
    "tls12": Option("--tls12", action="store_true", help="TLS: admit version 1.2, which older NNG needs"),
    "trust": Option(
        "--trust",
        variables=("NNGKIT_TRUST",),
        metavar="PASS",
        help="prove names by this pass, or: open, then other machines need no proof (default: NNGKIT_TRUST)",
    ),
    "shared-files": Option(
        "--shared-files",
        variables=("NNGKIT_SHARED_FILES",),
        action="store_true",
        help="new files have permissions by the umask, not for their owner only",
    ),
    "http-name": Option(
        "--http-name",
        type=host_name,
        action="append",
        default=[],
        metavar="NAME",
        help="host name by which HTTP clients ask, besides that of the machine; may be repeated",
    ),
    "max-size": Option(
        "--max-size",
        type=size,
        default=1 << 20,
        metavar="BYTES",
        help="largest message accepted, 0 for 1 GiB (default: 1048576)",
    ),
}


def add(parser: argparse._ActionsContainer, *names: str, options: Mapping[str, Option] = OPTIONS) -> None:
    """Add the named ones of `options` to `parser`."""
    for name in names:
        option = options[name]
        declare(parser.add_argument(option.flag, **option.keywords), *option.variables, secret=option.secret)


def add_value(
    parser: argparse._ActionsContainer,
    flag: str,
    metavar: str,
    text: str,
    *variables: str,
    secret: bool = False,
    **more: Any,
) -> None:
    """Add an option that takes a value, with `text` as its help. `variables` and `secret`: see `declare`."""
    declare(parser.add_argument(flag, metavar=metavar, help=text, **more), *variables, secret=secret)


def add_address(
    parser: argparse._ActionsContainer, flag: str, text: str, *variables: str, many: bool = False, **more: Any
) -> None:
    """Add an option that takes the URL of an address; `many`: it may be repeated, and is a list, empty without it."""
    several: dict[str, Any] = {"action": "append", "default": []} if many else {}
    add_value(parser, flag, "URL", text, *variables, type=address, **several, **more)


def add_token(parser: argparse._ActionsContainer, whose: str) -> None:
    """Add `--token`, the shared secret of `whose`."""
    text = f"{whose} shared secret (default: NNGKIT_TOKEN)"
    add_value(parser, "--token", "TOKEN", text, "NNGKIT_TOKEN", secret=True)


def add_seconds(
    parser: argparse._ActionsContainer, flag: str, default: float | None, text: str, *, zero: bool = False
) -> None:
    """Add an option that takes seconds, over 0 unless `zero` is allowed; `text` is its help, before the default."""
    if default is not None:
        text = f"{text} (default: {default:g})"
    kind = seconds if zero else more_than_no_seconds
    parser.add_argument(flag, type=kind, default=default, metavar="S", help=text)


def add_whole(
    parser: argparse._ActionsContainer,
    flag: str,
    least: int,
    most: int,
    text: str,
    *,
    default: int | None = None,
    metavar: str = "N",
    variables: tuple[str, ...] = (),
) -> None:
    """Add an option that takes a whole number from `least` to `most`; `text` is its help, before the default."""
    if default is not None:
        text = f"{text} (default: {default})"
    kind = partial(whole, least=least, most=most)
    add_value(parser, flag, metavar, text, *variables, type=kind, default=default)


def add_max_pipes(parser: argparse._ActionsContainer) -> None:
    """Add `--max-pipes`, which `limit_pipes` applies."""
    add_whole(parser, "--max-pipes", 1, 1_000_000, MAX_PIPES)


def limit_pipes(arguments: argparse.Namespace) -> None:
    """Apply `--max-pipes` to this process."""
    from nngkit import protocols  # --help loads no sockets

    protocols.limit_pipes(arguments.max_pipes)


def add_partition(parser: argparse._ActionsContainer, text: str, default: int | None = None) -> None:
    """Add `--partition`, the number of a journal's partition."""
    add_whole(parser, "--partition", 0, 99_999, text, default=default)


def add_many(parser: argparse._ActionsContainer, flag: str, metavar: str, text: str) -> None:
    """Add an option that may be repeated: a list, empty without it."""
    parser.add_argument(flag, action="append", default=[], metavar=metavar, help=text)


def add_flag(parser: argparse._ActionsContainer, flag: str, text: str) -> None:
    """Add an option without a value, with `text` as its help."""
    parser.add_argument(flag, action="store_true", help=text)


def add_for(parser: argparse.ArgumentParser, side: str, *names: str) -> None:
    """Add the named options for one side of a command that has two: `--front-cert` overrides `--cert`."""
    for name in names:
        option = OPTIONS[name]
        keywords = {**option.keywords, "help": f"the same for the {side} only"}
        parser.add_argument(f"--{side}-{option.flag.removeprefix('--')}", **keywords)
