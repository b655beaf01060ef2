"""`nngkit doctor URL`: diagnose why two sockets do not communicate.

::

    $ nngkit doctor tcp://127.0.0.1:5555 --protocol push
    ok       accepts connections
    problem  a PUB listens there, and a PUSH connects only to a PULL: use a sub, or check the address
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any, Final

from nngkit.cli import options
from nngkit.cli.diagnosis import NUMBERS, Address, Diagnosis, diagnose
from nngkit.cli.streams.output import coloured, json_line, out, wants_colour
from nngkit.cli.tls import add_tls, check_tls

EPILOG: Final = """\
Exit codes: 0 the listener is compatible, 1 it is not, 2 usage, 3 no connection, 4 connected without a greeting.
Over ws and wss the probe is a peer of the listener for a moment; elsewhere it sends nothing and is no peer."""
OPEN: Final = "open"
_COLOURS: Final = {"ok": "32", "warning": "33", "problem": "31"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("url", metavar="URL", type=options.address, help="address of the listener")
    parser.add_argument("--protocol", choices=list(NUMBERS), help="protocol of this side (default: any compatible one)")
    options.add(parser, "timeout", "json")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Probe the address and print the diagnosis; return the exit code."""
    from nngkit.cli.probe import Credentials, look

    address = Address.of(arguments.url)
    if arguments.trust not in (None, OPEN) and check_tls(arguments, address.url) is None:
        from nngkit.cli.tools.doctor_trust import examine

        return _show(examine(address, arguments.trust, arguments.protocol, arguments.timeout), address, arguments)
    arguments.trust = None
    check_tls(arguments, address.url)
    credentials = Credentials(
        arguments.cacert, arguments.cert, arguments.key, arguments.server_name, arguments.insecure
    )
    found = diagnose(look(address, arguments.protocol, credentials, arguments.timeout), arguments.protocol)
    return _show(found, address, arguments)


def _show(found: Diagnosis, address: Address, arguments: argparse.Namespace) -> int:
    if arguments.json:
        out(json_line(diagnosis_fields(found, address, arguments.protocol)))
    else:
        colour = wants_colour(sys.stdout)
        for finding in found.findings:
            level = coloured(f"{finding.level:8}", _COLOURS[finding.level], colour)
            out(f"{level} {finding.what}{f': {finding.advice}' if finding.advice else ''}")
    return found.exit_code


def diagnosis_fields(found: Diagnosis, address: Address, mine: str | None) -> dict[str, Any]:
    """Return the diagnosis; docs/schemas/doctor.json."""
    return {
        "address": address.url,
        "ok": found.ok,
        "exit_code": found.exit_code,
        "this": mine,
        "peer": found.peer,
        "findings": [asdict(finding) for finding in found.findings],
    }
