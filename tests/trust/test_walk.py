"""The four machines of docs/trust.md: its commands are run as they are written, and a fifth machine gets nowhere."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nngkit.testing import eventually
from tests.hosts import Host, Hosts, hosts  # noqa: F401  (a fixture)

PAGE = Path(__file__).parents[2] / "docs" / "trust.md"
MACHINES = ("hub", "w1", "w2", "desk")
LINE = re.compile(r"MII[\w.+/=-]+")  # an invitation, which the page shortens
STARTS = 20.0  # seconds until a command finds what the commands before it have started


class Machine:
    """A machine with a folder and a shell's variables. `hub` in its commands is the address of the first one."""

    def __init__(self, host: Host, folder: Path, hub: str) -> None:
        self._host = host
        self._folder = folder
        self._hub = hub
        folder.mkdir()
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.variables = {name: value for name, value in os.environ.items() if not name.startswith("NNGKIT_")}
        self.variables |= {"PATH": programs, "HOME": str(folder)}

    def run(self, command: str) -> str:
        """Run a command of the page; return its output. One with `&` goes on, its words in a file."""
        command = command.replace("//hub:", f"//{self._hub}:")
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self.variables[name] = value
            return ""
        options = {"cwd": self._folder, "env": self.variables}
        if command.endswith(" &"):
            with (self._folder / "words").open("ab") as words:
                argv = ["sh", "-c", "exec " + command.removesuffix(" &")]
                self._host.popen(argv, stdin=-3, stdout=words, stderr=words, **options)
            return ""
        done = self._host.run(["sh", "-c", command], timeout=60.0, **options)
        assert done.returncode == 0, f"{command}: {done.stderr} {self.words()}"
        return done.stdout

    def fails(self, command: str) -> int:
        """Run a command that has no success; return its exit code."""
        argv = shlex.split(command.replace("//hub:", f"//{self._hub}:"))
        return self._host.run(argv, timeout=60.0, cwd=self._folder, env=self.variables).returncode

    def prints(self, command: str, shown: list[str]) -> None:
        """Run a command until its output is that of the page, as what it needs may only be starting."""
        seen = ""

        def is_right() -> bool:
            nonlocal seen
            seen = self.run(command)
            return seen.splitlines() == shown

        eventually(is_right, timeout=STARTS, what=lambda: f"{command}: {seen!r}, not {shown}; {self.words()}")

    def words(self) -> str:
        """Return what the commands with `&` have said."""
        path = self._folder / "words"
        return path.read_text() if path.exists() else ""


def steps(page: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each command of the section: its machine, itself, and the lines that the page shows below it."""
    section = page.split("## Four machines", 1)[1].split("\n## ", 1)[0]
    machine, command, shown = "", "", list[str]()
    for line in "".join(re.findall(r"```console\n(.*?)```", section, re.DOTALL)).splitlines():
        found = re.match(rf"({'|'.join(MACHINES)})\$ (.*)", line)
        if found is None:
            shown.append(line)
            continue
        if command:
            yield machine, command, shown
        machine, command, shown = found[1], found[2], []
    yield machine, command, shown


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_commands_of_the_page_secure_four_machines_and_a_fifth_gets_nowhere(
    hosts: Hosts,  # noqa: F811
    tmp_path: Path,
) -> None:
    for name in (*MACHINES, "spy"):
        hosts.add(name)
        if name != "hub":
            hosts.link("hub", name)
            for other in ("w1", "w2"):
                if other != name and name not in ("w1",):
                    hosts.link(other, name)
    hub = hosts["hub"].address
    machines = {name: Machine(hosts[name], tmp_path / name, hub) for name in (*MACHINES, "spy")}
    line = ""
    for name, command, shown in steps(PAGE.read_text("utf-8")):
        machine, command = machines[name], LINE.sub(line, command)  # of base64, without backslashes
        if command.startswith("nngkit trust invite"):
            line = machine.run(command).strip()
        elif shown and not command.startswith("nngkit trust"):
            machine.prints(command, shown)
        else:
            machine.run(command)
    spy = machines["spy"]
    assert spy.fails("nngkit call upper -D hello --daemon tls+tcp://hub:5556 --insecure --timeout 3") != 0
    spy.run("nngkit trust new farm")  # another realm of the same name
    spy.run("nngkit trust pass hub")
    spy.variables["NNGKIT_TRUST"] = "hub.pass"
    for command in (
        "nngkit call upper -D hello --daemon tls+tcp://hub:5556 --timeout 3",
        "nngkit submit farm --dial tls+tcp://hub:7000 --kind count --join-timeout 3 12345",
        "nngkit doc cat minutes --join wss://hub:4790/repair --timeout 3",
    ):
        assert spy.fails(command) != 0, command
    assert machines["desk"].run("nngkit call upper -D hello --daemon tls+tcp://hub:5556") == "HELLO\n"
