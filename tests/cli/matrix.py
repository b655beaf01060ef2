"""Command lines for the comparison of the stand-ins with the originals: each option with each protocol.

``python -m tests.cli.matrix`` runs the originals and writes recorded_matrix.json beside this file: each outcome once,
with the lines that have it. No line needs a peer; nearly all end within two seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nngkit.cli.cat.command_line.option_table import FORMATS, PROTOCOLS, options_of
from tests.cli.cases import grouped, said

RECORDED = Path(__file__).with_name("recorded_matrix.json")
AT_ONCE = 32  # lines run concurrently: they mostly wait for a timeout
ENDLESS = 6.0  # seconds; a line that takes longer counts as not ended, which is compared too
HERE = "inproc://matrix"
SENDERS = ("push", "pub", "req", "surveyor")
VALUES = {  # values of options; others get 1
    "cacert": "/etc/passwd",
    "cert": "/etc/passwd",
    "data": "again",
    "dial": "inproc://absent",
    "dial_ipc": "/nonexistent/x",
    "dial_port": "1",
    "file": "/etc/hostname",
    "key": "/etc/passwd",
    "listen": "inproc://other",
    "listen_ipc": "/nonexistent/x",
    "listen_port": "99999",
    "name": "name",
    "recv_max_size": "100",
    "subscribe": "topic",
    "zt_home": "/nonexistent",
}


ADDRESSES = (  # rejected by nanomsg, accepted by NNG
    "--bind ws://127.0.0.1:1/x",
    "--bind ws://*:1/",
    "--bind ws://localhost:1",
    "--bind ws://[::1]:1",
    "--bind ws://:1",
    "--bind ws://127.0.0.1:0",
    "--bind tcp://localhost:1",
    "--bind tcp://[::1]:1",
    "--connect tcp://[::1]:1",
    "--connect tcp://:1",
    "--connect tcp://*:1",
    "--connect ws://:1/x",
    "--connect ws://127.0.0.1:0/x",
    "--connect ws://127.0.0.1:99999/x",
    "--connect ws://[::1]:1/x",
)


def lines(program: str) -> Iterator[str]:
    """Yield the command lines for ``program``: with and without a protocol, with at most one further option."""
    if program == "nanocat":
        yield from (f"--pull --recv-timeout 0.1 {address}" for address in ADDRESSES)
    short = "1" if program == "nngcat" else "0.1"  # seconds; nngcat takes whole ones
    for protocol in ("", *PROTOCOLS, "pair"):
        if program == "nanocat" and protocol in ("pair0", "pair1"):
            continue
        words = [f"--{protocol}"] if protocol else []
        base = [*words, "--bind", HERE]
        if protocol in SENDERS:
            base += ["--data", "x"]
        # nanocat rejects a timeout that does not apply to the protocol
        if program == "nngcat" or protocol not in ("", "push", "pub"):
            base += ["--recv-timeout", short]
        if program == "nngcat" or protocol not in ("", "pull", "sub"):
            base += ["--send-timeout", short]
        yield " ".join(base)
        yield " ".join(words)
        for row in options_of(program):
            if row.group == "protocol" or row.key in ("help", "verbose"):
                continue
            name = row.names(program)[0]
            if row.key == "format":
                for form in (*FORMATS, "bogus"):
                    yield " ".join([*base, name, form])
            elif row.key == "interval":  # ends only by the count, or a failure to send
                if program == "nngcat":
                    # a survey takes 1 s: with an equal interval two timers of NNG 1.5.2 expire at once, and it may hang
                    yield " ".join([*base, name, "2" if protocol == "surveyor" else "1", "--count", "1"])
                elif protocol not in ("pub", "req", "surveyor", "bus"):
                    yield " ".join([*base, name, "1"])
            elif row.takes:
                yield " ".join([*base, name, VALUES.get(row.key, short)])
                if row.key in ("recv_timeout", "send_timeout", "count", "delay"):
                    yield " ".join([*base, name, "-1"])
            else:
                yield " ".join([*base, name])


def run_all(
    run: Callable[[str], dict[str, Any]], given: Sequence[str], at_once: int = AT_ONCE
) -> dict[str, dict[str, Any]]:
    """Run every line, ``at_once`` at the same time; return the outcome of each."""
    with ThreadPoolExecutor(at_once) as pool:
        return dict(zip(given, pool.map(run, given), strict=True))


def by(command: list[str], longest: Callable[[str], float] = lambda _: ENDLESS) -> Callable[[str], dict[str, Any]]:
    """Return the function that runs ``command`` with the options of a line, for at most ``longest(line)`` seconds."""

    def run(line: str) -> dict[str, Any]:
        try:
            outcome = said(command, line, longest(line))
            if outcome["code"] < 0:  # its abort message contains addresses
                return {"code": outcome["code"], "stdout": "", "stderr": ""}
            return outcome
        except subprocess.TimeoutExpired:
            return {"code": None, "stdout": "", "stderr": ""}

    return run


if __name__ == "__main__":
    found = {program: grouped(run_all(by([program]), sorted(lines(program)))) for program in ("nngcat", "nanocat")}
    RECORDED.write_text(json.dumps(found, indent=0, ensure_ascii=False, sort_keys=True) + "\n")
    sys.stdout.write(f"{RECORDED}\n")
