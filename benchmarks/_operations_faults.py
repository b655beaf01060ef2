"""Faults of `operations.py`: one for each alert of deploy/prometheus/nngkit.rules.yml.

A fault is brought upon processes that no other fault needs, so that all of them can last at once. ``alert`` is what it
is for, with the labels that name what is broken; ``also`` are alerts that it may fire besides, as a process that is
stopped answers no scrape either.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Final

from _fault_kinds import can_mount
from _operations_fleet import FEW, Fleet

from nngkit.protocols import Push

Labels = dict[str, str]
WAITING: Final = 200  # calls in flight, beyond those that run: over the 100 of the rule
SUBSCRIBER: Final = b"\0SP\0\0\x21\0\0"  # greeting of a SUB, which reads nothing
DOWN: Final = "NngkitDaemonDown"


@dataclass
class Fault:
    """One fault. `alert`: its name and the labels that it must have."""

    name: str
    alert: Labels
    begin: Callable[[], object]
    mend: Callable[[], object]
    also: list[Labels] = field(default_factory=list)
    cannot: str | None = None

    def fires(self, firing: list[Labels]) -> bool:
        """Return True if the alert is among these."""
        return any(self.alert.items() <= each.items() for each in firing)

    def explains(self, labels: Labels) -> bool:
        """Return True if an alert comes of this fault."""
        return any(each.items() <= labels.items() for each in (self.alert, *self.also))


def faults(fleet: Fleet, stack: ExitStack) -> list[Fault]:
    """Return all faults. What they start and open ends with `stack`."""
    at = {name: member.instance for name, member in fleet.members.items() if member.http is not None}
    began: dict[str, subprocess.Popen[bytes]] = {}
    pushes: list[Push] = []
    silent: list[socket.socket] = []

    def stopped(*names: str) -> tuple[Callable[[], object], Callable[[], object]]:
        def send(number: int) -> None:
            for name in names:
                fleet[name].send(number)

        return lambda: send(signal.SIGSTOP), lambda: send(signal.SIGCONT)

    def killed(*names: str) -> tuple[Callable[[], object], Callable[[], object]]:
        return lambda: [fleet[name].end() for name in names], lambda: [fleet[name].start() for name in names]

    def mode(name: str, script: str) -> tuple[Callable[[], object], Callable[[], object]]:
        return lambda: fleet.mode(name, script), lambda: fleet.mode(name, "cat")

    def down(*names: str) -> list[Labels]:
        return [{"alertname": DOWN, "instance": at[name]} for name in names]

    def command(name: str, *words: str, stdin: int = subprocess.DEVNULL) -> None:
        null = subprocess.DEVNULL
        line = [sys.executable, "-m", "nngkit", *words]
        environment = os.environ | fleet["stamps"].environment  # names the daemons
        began[name] = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *line], stdin=stdin, stdout=null, stderr=null, env=environment
        )
        stack.callback(end, name)

    def end(name: str) -> None:
        began[name].kill()
        began[name].wait(10)

    def crowd() -> None:
        bodies = fleet.folder / "bodies"
        bodies.write_text('{"number": 1}\n' * 100_000)
        with bodies.open() as lines:
            command("calls", "call", "prints", "--codec", "json", "--in-flight", str(WAITING), "--timeout", "3600",
                    stdin=lines.fileno())  # fmt: skip

    def deaf() -> None:
        reading = stack.enter_context(socket.create_connection(fleet.address(fleet.back), 10))
        reading.sendall(SUBSCRIBER)
        silent.append(reading)
        (fleet.folder / "flood").touch()

    def hear() -> None:
        (fleet.folder / "flood").unlink()
        silent.pop().close()

    def full() -> None:
        with (fleet.disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(4096))

    def peers() -> None:
        pushes.extend(stack.enter_context(Push(dial=fleet.pushes)) for _ in range(FEW))

    def leave() -> None:
        for push in pushes:
            push.close()

    one, two = at["discovery-1"], at["discovery-2"]
    return [
        Fault("a provider is killed", {"alertname": DOWN, "instance": at["shout-3"]}, *killed("shout-3")),
        Fault("the only provider is killed", {"alertname": "NngkitServiceWithoutProvider", "service": "stamps"},
              *killed("stamps"), down("stamps")),
        Fault("a provider knows one daemon of two", {"alertname": "NngkitDaemonsDisagree", "service": "split"},
              fleet["split-half"].start, fleet["split-half"].end),
        Fault("a provider is stopped", {"alertname": "NngkitProvidersSuspect", "instance": one}, *stopped("shout-1"),
              [*down("shout-1"), {"alertname": "NngkitProvidersSuspect", "instance": two}]),
        Fault("a service's program fails", {"alertname": "NngkitCallsFail", "name": "orders"},
              *mode("orders", "exit 1")),
        Fault("a service's program is slow", {"alertname": "NngkitCallsSlow", "name": "prices"},
              *mode("prices", "sleep 1.5; cat")),
        Fault("a caller asks more than a service can do",
              {"alertname": "NngkitCallsQueued", "instance": at["prints"]}, crowd, lambda: end("calls")),
        Fault("a subscriber reads nothing", {"alertname": "NngkitMessagesDropped", "instance": at["forwarder"]},
              deaf, hear),
        Fault("a disk is full", {"alertname": "NngkitRecorderFails", "instance": at["small"]},
              full, lambda: (fleet.disk / "filler").unlink(missing_ok=True),
              cannot=None if can_mount() and shutil.which("umount") else "no small disk can be mounted"),
        Fault("a consumer is stopped", {"alertname": "NngkitConsumerFallsBehind", "consumer": "billing"},
              *stopped("billing")),
        Fault("two of three voters are killed", {"alertname": "NngkitClusterWithoutHost", "job": "nngkit-farm"},
              *killed("voter-1", "voter-2"), down("voter-1", "voter-2")),
        Fault("a job's program fails each time", {"alertname": "NngkitJobsDie", "job": "nngkit-shop"},
              lambda: command("job", "submit", "shop", "x", "--dial", fleet.shop, "--kind", "bad", "--tries", "2"),
              lambda: None),
        Fault("a pass is not renewed", {"alertname": "NngkitPassEndsSoon", "instance": at["secure"]},
              lambda: fleet.sign(1), lambda: fleet.sign(30)),
        Fault("peers take the descriptors", {"alertname": "NngkitDescriptorsRunOut", "instance": at["streamer"]},
              peers, leave),
    ]  # fmt: skip
