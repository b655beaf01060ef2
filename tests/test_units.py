"""The units of deploy/systemd under a systemd: they start, are confined, restart, reload and stop as the docs say.

One machine is booted for all of them (tests/booted.py), and prepared by the commands of docs/operating.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from time import sleep

import pytest

from tests.booted import Booted
from tests.cli.commands import ROOT
from tests.test_deploy import UNITS, settings_of

pytestmark = [pytest.mark.slow, pytest.mark.needs_program("systemctl", package="systemd")]
NNGKIT = "/opt/nngkit/bin/nngkit"
SHOUT = "/etc/nngkit/serve-shout.toml"
FOLDERS = ["/etc", "/usr", "/opt/nngkit", "/var/lib/private", "/run", "/sys/fs/cgroup", "/root"]
PROBE = 'name = "probe"\nexec = "sh 2>&1"\ndiscovery = ["tcp://127.0.0.1:5555"]\n'
"""A service that runs what it is sent, confined as its unit is."""
ORDER = """
from nngkit.journal import encode_request
from nngkit.protocols import Req
with Req(dial="tcp://127.0.0.1:7101") as orders:
    orders.request(encode_request(b"1", [b"an order"]), timeout=30)
"""
EARLY = 'serve = true\njournal = "../nngkit-record@early/journal"\nlisten = ["tcp://127.0.0.1:7201"]\n'
"""A consumer of a journal that is not there."""
OTHERS = ("nngkit-serve@probe", "nngkit-serve@wrong", "nngkit-consume@early")
TOKEN = ("LoadCredential=token:/etc/nngkit/token", "Environment=NNGKIT_TOKEN_FILE=%d/token")


def instances() -> list[str]:
    """Return each unit, of the instance whose settings are among the examples."""
    return [unit.stem + settings_of(unit).stem.partition("-")[2] for unit in UNITS]


def page() -> tuple[list[str], str]:
    """Return the commands that the page has for systemd, and all of its text."""
    text = (ROOT / "docs" / "operating.md").read_text()
    (block,) = re.findall(r"\*\*systemd\.\*\*.*?```console\n(.*?)```", text, re.DOTALL)
    return [line.removeprefix("# ").partition(" # ")[0] for line in block.splitlines()], text


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    """Boot a machine and start each unit in it: by the page's commands, and the rest beside them."""
    if os.geteuid():
        pytest.skip("booting a machine needs root")
    with ExitStack() as stack:
        try:
            machine = stack.enter_context(Booted(tmp_path_factory.mktemp("machine")))
        except PermissionError as error:
            pytest.skip(str(error))
        commands, text = page()
        assert all(line in text for line in TOKEN)
        machine.run("mkdir", "/etc/nngkit")
        write(machine, "/etc/nngkit/token", "of the cluster\n")
        machine.run("chmod", "go=", "/etc/nngkit/token")
        write(machine, "/etc/nngkit/serve-probe.toml", PROBE)
        override(machine, "nngkit-", "WatchdogSec=10")
        for unit in ("host", "join"):
            override(machine, f"nngkit-{unit}@render", *TOKEN)
        for command in commands:
            machine.run("bash", "-c", command)
        machine.run("bash", "-c", "cp --no-clobber deploy/systemd/examples/*.toml /etc/nngkit/")
        write(machine, "/etc/nngkit/serve-wrong.toml", PROBE + "wrong = 1\n")
        write(machine, "/etc/nngkit/consume-early.toml", EARLY)
        machine.run("systemctl", "enable", *OTHERS, *instances())
        machine.run("systemctl", "start", "multi-user.target")  # as booting does
        yield machine


def write(machine: Booted, path: str, text: str) -> None:
    machine.run("sh", "-c", 'printf %s "$1" >"$2"', "sh", text, path)


def override(machine: Booted, unit: str, *lines: str) -> None:
    """Add lines to a service, or to all whose name begins with `unit`, as `systemctl edit` does."""
    folder = f"/etc/systemd/system/{unit}.service.d"
    machine.run("mkdir", folder)
    write(machine, f"{folder}/60-{unit}.conf", "\n".join(["[Service]", *lines, ""]))


def shown(machine: Booted, name: str) -> dict[str, str]:
    """Return a property of each unit."""
    shows = machine.run("systemctl", "show", "--property=Id", f"--property={name}", *instances()).split("\n\n")
    pairs = [dict(line.split("=", 1) for line in each.splitlines() if line) for each in shows]
    return {each["Id"].removesuffix(".service"): each[name] for each in pairs}


def test_wrong_settings_are_not_started_again_and_what_may_be_right_later_is(machine: Booted) -> None:
    def told(unit: str, name: str) -> str:
        return machine.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    while int(told("nngkit-consume@early", "NRestarts")) < 2:
        sleep(0.1)
    assert "status=1/FAILURE" in machine.run("journalctl", "--unit=nngkit-consume@early")
    assert "no setting 'wrong'" in machine.run("journalctl", "--unit=nngkit-serve@wrong")
    assert [told("nngkit-serve@wrong", name) for name in ("NRestarts", "ActiveState", "ExecMainStatus")] == [
        *("0", "failed", "2")
    ]
    machine.run("systemctl", "stop", "nngkit-consume@early")


def test_a_consumer_is_given_what_the_recorder_wrote(machine: Booted) -> None:
    machine.run("/opt/nngkit/bin/python", "-c", ORDER)
    consumer = machine.run(NNGKIT, "consume", "test", "--server", "tcp://127.0.0.1:7200", "--count", "1")
    assert "an order" in consumer


def probe(machine: Booted, script: str) -> str:
    """Run a script where a service's program runs."""
    return machine.run(NNGKIT, "call", "probe", "-D", f"{script}; true").rstrip("\n")


def test_each_unit_starts_and_serves(machine: Booted) -> None:
    assert set(shown(machine, "ActiveState").values()) == {"active"}
    assert all(shown(machine, "StatusText").values())
    assert machine.run(NNGKIT, "call", "shout", "-D", "hello") == "HELLO\n"
    assert "follows host" in machine.run("journalctl", "--unit=nngkit-join@render")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_unit_writes_no_other_folders(machine: Booted, folder: str) -> None:
    assert re.search("Read-only|Permission denied", probe(machine, f"touch {folder}/x"))


def test_a_unit_writes_its_state(machine: Booted) -> None:
    state = "/var/lib/private/nngkit/nngkit-serve@probe"
    assert probe(machine, "pwd; touch x /tmp/x && echo written") == f"{state}\nwritten"
    assert machine.run("ls", state) == "x\n"
    states = machine.run("ls", "/var/lib/private/nngkit").split()
    assert set(states) == {*instances(), *OTHERS}


def test_a_unit_may_do_little_else(machine: Booted) -> None:
    status = probe(machine, "cat /proc/self/status")
    assert re.findall(r"^(?:CapBnd|NoNewPrivs|Seccomp):\s*(\w+)", status, re.MULTILINE) == ["0" * 16, "1", "2"]
    assert "Permission denied" in probe(machine, "cat /etc/nngkit/token")
    assert "not permitted" in probe(machine, "unshare --user true")
    opened = probe(machine, '/opt/nngkit/bin/python -c "import socket; socket.socket(socket.AF_NETLINK)"')
    assert "Address family not supported" in opened


def test_instances_of_a_template_are_one_user_and_see_nothing_of_each_other(machine: Booted) -> None:
    user, other = (shown(machine, "MainPID")[name] for name in ("nngkit-serve@shout", "nngkit-doc@notes"))
    assert probe(machine, f"kill -0 {user} && echo may") == "may"
    assert "not permitted" in probe(machine, f"kill -0 {other}")
    assert re.findall("No such", probe(machine, f"ls /proc/{user} /proc/{other}")) == ["No such", "No such"]
    assert probe(machine, "ls /var/lib/private/nngkit") == "nngkit-serve@probe"


def test_a_reload_applies_what_can_change(machine: Booted) -> None:
    (reload,) = (command for command in page()[0] if "reload " in command)
    machine.run("sh", "-c", f'echo "weight = 7" >>{SHOUT}')
    machine.run("sh", "-c", reload)
    while "nngkit serve: reloaded: weight" not in machine.run("journalctl", "--unit=nngkit-serve@shout"):
        sleep(0.1)
    assert re.search(r"^shout .* 7$", machine.run(NNGKIT, "discover"), re.MULTILINE)


@pytest.mark.parametrize("signal", ["KILL", "STOP"])
def test_a_daemon_that_is_killed_or_hangs_is_started_again(machine: Booted, signal: str) -> None:
    before = shown(machine, "NRestarts")
    machine.run("systemctl", "kill", "--kill-whom=main", f"--signal={signal}", *before)
    while any(now == before[unit] for unit, now in shown(machine, "NRestarts").items()):
        sleep(0.1)
    machine.run("systemctl", "start", *before)  # waits for starts that are under way
    assert shown(machine, "NRestarts") == {unit: str(int(number) + 1) for unit, number in before.items()}
    assert machine.run(NNGKIT, "call", "shout", "-D", "hello") == "HELLO\n"


def test_units_stop_in_time(machine: Booted) -> None:
    machine.run("systemctl", "stop", *instances())
    for unit in instances():
        told = machine.run("journalctl", "--output=cat", f"--unit={unit}").rpartition("Stopping ")[2]
        assert f"{unit}.service: Deactivated successfully." in told
        assert "timed out" not in told
    assert set(shown(machine, "ExecMainCode").values()) == {"1"}  # CLD_EXITED: it was not killed
    assert set(shown(machine, "ExecMainStatus").values()) == {"143"}
