"""`nngkit doctor URL`: diagnose why two sockets do not communicate. Without a URL: what is wrong in the network.

::

    $ nngkit doctor tcp://127.0.0.1:5555 --protocol push
    ok       accepts connections
    problem  a PUB listens there, and a PUSH connects only to a PULL: use a sub, or check the address

    $ nngkit doctor --daemon tcp://ny:5556 --http 9100 --settings discoverd=/etc/nngkit/discoverd.toml
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from typing import Any, Final

from nngkit.cli import options
from nngkit.cli.diagnosis import NUMBERS, Address, Diagnosis, diagnose
from nngkit.cli.streams.output import coloured, json_line, out, wants_colour
from nngkit.cli.tls import add_tls, check_tls
from nngkit.errors import ConfigError

EPILOG: Final = """\
Exit codes: 0 the listener is compatible, or no problem in the network, 1 it is not, 2 usage, 3 no connection, 4
connected without a greeting. Without URL, daemons are asked unless only --http, --settings or --folder are given.
Over ws and wss the probe is a peer of the listener for a moment; elsewhere it sends nothing and is no peer."""
OPEN: Final = "open"
_COLOURS: Final = {"ok": "32", "warning": "33", "problem": "31"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    text = "address of a listener (default: examine the daemons, their services and what the options name)"
    parser.add_argument("url", nargs="?", metavar="URL", type=options.address, help=text)
    parser.add_argument("--protocol", choices=list(NUMBERS), help="protocol of this side (default: any compatible one)")
    options.add(parser, "daemon")
    door = "door of a daemon, its --http: read its metrics and state; may be repeated"
    parser.add_argument("--http", type=options.host_port, action="append", default=[], metavar="[HOST:]PORT", help=door)
    text = "check these settings of a daemon, as serve=/etc/nngkit/serve-x.toml; may be repeated"
    options.add_many(parser, "--settings", "COMMAND=FILE", text)
    options.add_many(parser, "--folder", "DIR", "check the disk of this folder; may be repeated")
    options.add(parser, "timeout", "json")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Probe the address, or the network, and print the diagnosis; return the exit code."""
    if arguments.url is None:
        return _show(_network(arguments), None, arguments)
    for name in ("daemon", "http", "settings", "folder"):
        if getattr(arguments, name):
            raise ConfigError(f"--{name}", "is for a network: leave URL out")
    from nngkit.cli.probe import Credentials, look

    address = Address.of(arguments.url)
    named = arguments.trust
    if named is None and address.tls and not (arguments.cacert or arguments.cert or arguments.insecure):
        named = os.environ.get("NNGKIT_TRUST") or None
    if named not in (None, OPEN) and check_tls(arguments, address.url) is None:
        from nngkit.cli.tools.doctor_trust import examine

        return _show(examine(address, named, arguments.protocol, arguments.timeout), address, arguments)
    arguments.trust = None
    check_tls(arguments, address.url)
    credentials = Credentials(
        arguments.cacert, arguments.cert, arguments.key, arguments.server_name, arguments.insecure
    )
    found = diagnose(look(address, arguments.protocol, credentials, arguments.timeout), arguments.protocol)
    return _show(found, address, arguments)


def _network(arguments: argparse.Namespace) -> Diagnosis:
    """Examine the network and this machine."""
    import trio

    from nngkit.cli.discovery.daemons import settings_of
    from nngkit.cli.tls import tls_or_variables
    from nngkit.cli.tools import doctor_machine, doctor_network

    if arguments.protocol is not None:
        raise ConfigError("--protocol", "needs URL")
    here = [finding for each in arguments.settings for finding in doctor_machine.settings(each)]
    here += [doctor_machine.folder(each) for each in arguments.folder]
    client = settings_of(arguments)
    others = arguments.http or arguments.settings or arguments.folder
    daemons = client.daemons if arguments.daemon or not others else ()
    tls = tls_or_variables(arguments, client.certificates, "dial", *daemons)
    doors = tuple(dict.fromkeys(arguments.http))
    network = trio.run(doctor_network.examine, client, daemons, doors, arguments.timeout, tls)
    findings = (*network.findings, *here)
    code = 0 if all(each.level != "problem" for each in findings) else 1
    return Diagnosis(findings, None, 3 if (daemons or doors) and not network.answered else code)


def _show(found: Diagnosis, address: Address | None, arguments: argparse.Namespace) -> int:
    if arguments.json:
        out(json_line(diagnosis_fields(found, address, arguments.protocol)))
    else:
        colour = wants_colour(sys.stdout)
        for finding in found.findings:
            level = coloured(f"{finding.level:8}", _COLOURS[finding.level], colour)
            out(f"{level} {finding.what}{f': {finding.advice}' if finding.advice else ''}")
    return found.exit_code


def diagnosis_fields(found: Diagnosis, address: Address | None, mine: str | None) -> dict[str, Any]:
    """Return the diagnosis; docs/schemas/doctor.json."""
    return {
        "address": None if address is None else address.url,
        "ok": found.ok,
        "exit_code": found.exit_code,
        "this": mine,
        "peer": found.peer,
        "findings": [asdict(finding) for finding in found.findings],
    }
