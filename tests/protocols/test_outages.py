"""Networks that go away for a while, and peers that only seem to be gone: connections of every transport at once.

`python3 dev.py bench outages` tries longer outages, of more kinds, with all rooms.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from nngkit.testing import eventually
from tests.hosts import Host, Hosts, hosts  # noqa: F401 - a fixture
from tests.protocols.outages import MANY, NAMES, Line, lines
from tests.protocols.wires import ROOT

pytestmark = pytest.mark.slow

AWAY = 12.0  # seconds: longer than peer_timeout, so that connections end during the outage
LATEST = 5.0  # seconds after the network's return until everything is received again


@pytest.fixture
def directory(tmp_path: Path, authority: trustme.CA) -> Path:
    """Directory of logs, with certificates."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "certificate.pem")
    return tmp_path


class Pair:
    """A listening and a dialing program, on two hosts or on one."""

    def __init__(self, directory: Path, name: str, listening: Host, dialing: Host, *options: str) -> None:
        self.name = name
        self.logs = {side: directory / f"{name}-{side}.log" for side in ("listen", "dial")}
        self.programs: dict[str, subprocess.Popen[Any]] = {}
        for side, host in (("listen", listening), ("dial", dialing)):
            program = [sys.executable, "-m", "tests.protocols.outages", side, listening.address, str(directory)]
            self.programs[side] = host.popen(
                [*program, str(self.logs[side]), *options], cwd=ROOT, stdin=subprocess.PIPE
            )

    def found(self, what: str, since: float = 0.0) -> dict[str, list[Line]]:
        """Return the lines of one kind since a time, by connection (and side, if both sides write them)."""
        by_name: dict[str, list[Line]] = defaultdict(list)
        for side, log in self.logs.items():
            for line in lines(log):
                if line.what == what and line.time >= since:
                    by_name[line.name if what == "received" else f"{line.name} {side}"].append(line)
        return by_name

    def all_receive(self, since: float = 0.0) -> bool:
        return len(self.found("received", since)) == len(NAMES)


def dropped(listening: Host, dialing: Host, *, to_listening: bool, to_dialing: bool) -> Callable[[str], None]:
    """Return a function that drops packets with "-A", and ends that with "-D"."""

    def do(action: str) -> None:
        if to_listening:
            listening.iptables(action, "INPUT", "-s", dialing.address, "-j", "DROP")
        if to_dialing:
            dialing.iptables(action, "INPUT", "-s", listening.address, "-j", "DROP")

    return do


def test_everything_is_received_again_soon_after_an_outage(hosts: Hosts, directory: Path) -> None:  # noqa: F811
    cuts = []
    pairs = []
    for number, (to_listening, to_dialing, *options) in enumerate(
        [(True, True), (True, True, "--old-kernel"), (True, False), (False, True, "--old-kernel")]
    ):
        listening, dialing = hosts.add(f"listening{number}"), hosts.add(f"dialing{number}")
        hosts.link(listening.name, dialing.name)
        cuts.append(dropped(listening, dialing, to_listening=bool(to_listening), to_dialing=bool(to_dialing)))
        pairs.append(Pair(directory, str(number), listening, dialing, *map(str, options)))
    eventually(lambda: all(pair.all_receive() for pair in pairs), timeout=60.0)
    for cut in cuts:
        cut("-A")
    away = time.monotonic()
    time.sleep(AWAY)  # this is the outage
    for cut in cuts:
        cut("-D")
    back = time.monotonic()
    eventually(lambda: all(pair.all_receive(back) for pair in pairs), timeout=30.0)
    for pair in pairs:
        late = {name: found[0].time - back for name, found in pair.found("received", back).items()}
        assert max(late.values()) < LATEST, (pair.name, late)
        left = pair.found("left", away)
        assert len(left) == 2 * len(NAMES), (pair.name, sorted(left))  # at both sides
        assert all(found[0].time - away < AWAY + 1 for found in left.values()), (pair.name, left)
        reasons = {found[0].text for found in left.values()}
        # where packets still arrive, the other side is told
        assert "no answer for 10 s" in reasons
        assert reasons <= {"no answer for 10 s", "connection reset", "the peer closed"}, (pair.name, reasons)


def test_a_peer_that_does_not_read_or_is_stopped_stays_and_loses_nothing(hosts: Hosts, directory: Path) -> None:  # noqa: F811
    host = hosts.add("host")
    other = hosts.add("other")
    hosts.link("host", "other")
    held = 35.0
    new = Pair(directory, "new", host, host, "--reads-after", str(held))
    old = Pair(directory, "old", other, other, "--reads-after", str(held), "--old-kernel")
    eventually(lambda: all(len(pair.found("joined")) == 2 * len(NAMES) for pair in (new, old)), timeout=60.0)
    stopped = old.programs["dial"]
    stopped.send_signal(signal.SIGSTOP)
    time.sleep(held)  # the time in which the peers do not read
    stopped.send_signal(signal.SIGCONT)
    last = str(MANY - 1000)

    def all_read() -> bool:
        found = [pair.found("received") for pair in (new, old)]
        return all(each[name] and each[name][-1].text == last for each in found for name in NAMES if "pipeline" in name)

    eventually(all_read, timeout=60.0)
    for pair in (new, old):
        assert not pair.found("left")
        assert not pair.found("missed")
