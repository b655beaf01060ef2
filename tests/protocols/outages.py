"""Program with one end of many connections, whose network goes away in test_outages.py.

    python -m tests.protocols.outages listen|dial HOST DIRECTORY LOG [--old-kernel] [--reads-after SECONDS]

The listening and the dialing program make a PUSH and a PULL, and a PUB and a SUB, on each transport and in both
directions. LOG gets a line for each event: ``time what connection text``, with time.monotonic(), which processes of one
machine share. With --reads-after nothing is read for so long, and a PUSH sends MANY messages as soon as it can: more
than the queues on the way hold. The program ends with its standard input.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nngkit.protocols import TLS, PeerEvent, Pub, Pull, Push, Sub
from nngkit.protocols._core import peer_watch as _peer_watch

SCHEMES = "tcp", "ws", "tls+tcp", "wss"
KINDS: dict[str, tuple[Any, Any]] = {"pipeline": (Push, Pull), "pubsub": (Pub, Sub)}
PORT = 7000
MANY = 12_000  # of 1 kB: of --reads-after, in which the log has every thousandth
NAMES = [f"{scheme}/{kind}/{sender}-sends" for scheme in SCHEMES for kind in KINDS for sender in ("listen", "dial")]


@dataclass(frozen=True)
class Line:
    """One line of a log."""

    time: float
    what: str  # "received", "missed" (out of order), "joined" or "left"
    name: str
    text: str  # number of the message, or why the peer left


def lines(log: Path) -> list[Line]:
    """Return the complete lines of a log."""
    whole = log.read_text().split("\n")[:-1] if log.exists() else []
    return [Line(float(at), *rest) for at, *rest in (line.split(" ", 3) for line in whole)]


class Program:
    def __init__(self, side: str, log: Path, reads_after: float) -> None:
        self._side = side
        self._log = log.open("a", buffering=1)
        self._reads_at = time.monotonic() + reads_after
        self._many = reads_after > 0
        self._open: list[Any] = []

    def write(self, what: str, name: str, text: str) -> None:
        self._log.write(f"{time.monotonic():.3f} {what} {name} {text}\n")

    def open(self, name: str, url: str, **tls: Any) -> None:
        _, kind, sender = name.split("/")
        sends = sender.startswith(self._side)
        make: Any = KINDS[kind][0 if sends else 1]
        options: dict[str, Any] = {"topics": b""} if make is Sub else {}
        if self._many and make is Pull:
            options |= {"recv_buffer": 1, "recv_window": 1}
        one = make(**{self._side: url}, **options, **tls)

        def note(event: PeerEvent) -> None:
            self.write(event.kind, name, event.reason or "-")

        one.on_peer(note)
        self._open.append(one)
        threading.Thread(target=self._send if sends else self._receive, args=(name, one), daemon=True).start()

    def _send(self, name: str, one: Any) -> None:
        many = self._many and isinstance(one, Push)
        for number in range(MANY) if many else itertools.count():
            one.send(b"%d %s" % (number, bytes(1000)))
            if not many:
                time.sleep(0.1)

    def _receive(self, name: str, one: Any) -> None:
        time.sleep(max(0.0, self._reads_at - time.monotonic()))
        many = self._many and isinstance(one, Pull)
        for expected in itertools.count():
            number = int(one.recv().partition(b" ")[0])
            if many and number != expected:
                self.write("missed", name, f"{number} instead of {expected}")
                return
            if not many or number % 1000 == 0:
                self.write("received", name, str(number))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=["listen", "dial"])
    parser.add_argument("host")
    parser.add_argument("directory", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("--old-kernel", action="store_true")
    parser.add_argument("--reads-after", type=float, default=0.0)
    given = parser.parse_args()
    if given.old_kernel:
        _peer_watch.TCP_RTO_MAX_MS = None
    program = Program(given.side, given.log, given.reads_after)
    certificate = given.directory / "certificate.pem"
    tls = TLS(ca=given.directory / "ca.pem", cert=certificate, key=certificate, server_name="localhost")
    for number, name in enumerate(NAMES):
        scheme = name.partition("/")[0]
        options = {"tls": tls} if scheme in ("tls+tcp", "wss") else {}
        program.open(name, f"{scheme}://{given.host}:{PORT + number}", **options)
    sys.stdin.read()


if __name__ == "__main__":
    main()
