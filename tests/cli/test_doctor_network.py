"""`nngkit doctor` without a URL: each fault is made, and found. What is compared with limits is tested as text."""

from __future__ import annotations

import datetime as dt
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
import trustme

from nngkit.cli.tools import doctor_findings
from nngkit.protocols import Pub, Sub
from tests.cli.certificates import issue
from tests.cli.commands import ROOT, assert_fails, command, discoverd, environment, nngkit, valid
from tests.cli.processes import Running
from tests.hosts import Host, Hosts, hosts
from tests.preloaded import Popen

__all__ = ["hosts"]  # the fixture

SERVICE = """
import sys, trio
from nngkit import Service
async def main():
    async with Service(sys.argv[1], sys.argv[2], discovery=sys.argv[3:]):
        await trio.sleep_forever()
trio.run(main)
"""
OTHERWISE = """
import sys, time
import nngkit.release
real, nngkit.release.__version__ = time.time, "0.0.9"
time.time = lambda: real() - 500
from nngkit.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def doctor(*arguments: str, **variables: str) -> tuple[int, dict[str, str]]:
    """Return exit code, and the first finding of each code."""
    return read(nngkit("doctor", *arguments, "--json", "--timeout", "1", **variables))


def read(done: subprocess.CompletedProcess[str]) -> tuple[int, dict[str, str]]:
    assert done.stderr == ""
    found = valid(done.stdout, "doctor.json")
    assert found["exit_code"] == done.returncode
    first: dict[str, str] = {}
    for each in reversed(found["findings"]):
        assert each["advice"] or each["level"] == "ok", each
        first[each["code"]] = each["level"] + ": " + each["what"]
    return done.returncode, first


def up(lines: IO[str] | None, count: int) -> None:
    """Wait until a daemon has said of so many providers that they are up."""
    assert lines is not None
    while count:
        line = lines.readline()
        assert line, "the daemon has ended"
        count -= bool(re.search(r"  up \(", line))


@contextmanager
def service(name: str, address: str, *daemons: str) -> Iterator[subprocess.Popen[str]]:
    with Popen([sys.executable, "-c", SERVICE, name, address, *daemons], cwd=ROOT, env=environment()) as process:
        try:
            yield process
        finally:
            process.kill()


# ---- pure ------------------------------------------------------------------------------------------------------------


def test_a_clock_is_off_only_beyond_what_the_question_took() -> None:
    assert doctor_findings.off(10.0, 9.0, 11.0) == 0
    assert doctor_findings.off(8.5, 9.0, 11.0, grain=1.0) == 0
    assert doctor_findings.off(8.0, 9.0, 11.0) == -1
    assert doctor_findings.off(12.5, 9.0, 11.0) == 1.5
    (found,) = doctor_findings.clocks({"a": 0.5, "b": -400.0})
    assert (found.code, found.what) == ("clock", "the clock of b is 7 min behind this one: passes may be refused")


def test_metrics_are_compared_with_the_limits_of_the_alerts() -> None:
    text = """# HELP nngkit_fanout_durable_behind records
nngkit_fanout_durable_behind{consumer="mail",partition="0"} 1001.0
nngkit_fanout_durable_behind{consumer="bill",partition="0"} 1000.0
nngkit_journal_recorder_failure{partition="3"} 1.0
nngkit_trust_until_seconds{name="pay"} 4600.0
nngkit_protocols_dropped_total{name="a"} 7.0
process_open_fds 81.0
process_max_fds 100.0
"""
    later = doctor_findings.metrics_of(text)
    first = later | {("nngkit_protocols_dropped_total", 'name="a"'): 4.0}
    found = {each.code: each.what for each in doctor_findings.scraped("x:1", first, later, 1000.0)}
    assert found == {
        "behind": "x:1: the consumer mail is 1001 records behind",
        "recorder-fails": "x:1: its recorder cannot write partition 3",
        "pass-ends": "the pass of pay at x:1 ends in 60 min",
        "dropping": "x:1: 7 messages dropped by sockets since its start, 3 of them just now",
        "descriptors": "x:1 has 81 of 100 descriptors open",
    }


# ---- one machine -----------------------------------------------------------------------------------------------------


def test_nothing_is_wrong_with_a_daemon_alone() -> None:
    with discoverd() as daemon:
        code, found = doctor("--daemon", daemon.answers)
        assert (code, set(found)) == (0, {"daemon", "clock", "release"})
    code, found = doctor("--daemon", daemon.answers)
    assert (code, set(found)) == (3, {"no-daemon"})
    assert "no listener at 127.0.0.1" in found["no-daemon"]
    assert_fails(nngkit("doctor", daemon.answers, "--http", "9"), 2, "--http: is for a network")
    assert_fails(nngkit("doctor", "--settings", "cat=x"), 2, "'cat=x' is not COMMAND=FILE")


@pytest.mark.slow
def test_daemons_that_disagree_and_a_service_that_is_stopped_are_found() -> None:
    with ExitStack() as opened:
        one, two = (opened.enter_context(discoverd()) for _ in range(2))
        opened.enter_context(service("lonely", "tcp://127.0.0.1:1", one.surveys))
        serving = opened.enter_context(
            Running("serve", "shout", "--exec", "cat", "--discovery", one.surveys, "--discovery", two.surveys)
        )
        up(one.process.stdout, 2)
        up(two.process.stdout, 1)
        daemons = ("--daemon", one.answers, "--daemon", two.answers)
        wait_for_rounds(two.answers, 2)
        code, found = doctor(*daemons)
        assert code == 1
        assert found["disagree"] == (
            f"problem: lonely at tcp://127.0.0.1:1 is up at {one.answers}, and unknown at {two.answers}"
        )
        assert found["refused"].startswith("problem: lonely at tcp://127.0.0.1:1 answers its daemon, and nothing")
        serving.process.send_signal(signal.SIGSTOP)
        assert one.process.stdout is not None
        while "suspect" not in one.process.stdout.readline():
            pass
        assert "shout at tcp://127.0.0.1" in doctor("--daemon", one.answers)[1]["half-open"]


def wait_for_rounds(daemon: str, more: int) -> None:
    """Wait until a daemon has begun and ended so many rounds."""
    first = last = None
    while first is None or last is None or last < first + more:
        done = nngkit("discover", "--rounds", "--json", "--daemon", daemon)
        last = valid(done.stdout, "discover-rounds.json")["rounds"][-1]["number"]
        first = last if first is None else first


@pytest.mark.slow
def test_a_clock_and_a_release_that_differ_are_found() -> None:
    arguments = ["--listen", "tcp://127.0.0.1:0", "--no-history", "--http", "0"]
    with Popen(
        [sys.executable, "-c", OTHERWISE, "discoverd", *arguments],
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            told = ""
            while "answers at" not in told:
                told += process.stderr.readline()
            door, daemon = re.search(r"http://(\S+?)/?\n", told), re.search(r"answers at (\S+)", told)
            assert door is not None
            assert daemon is not None
            code, found = doctor("--daemon", daemon[1], "--http", door[1])
        finally:
            process.kill()
    assert code == 1
    assert found["clock"].endswith("is 8 min behind this one: passes may be refused")
    assert found["release"].startswith("warning: ")
    assert f"0.0.9 at the daemon {daemon[1]}" in found["release"]


@pytest.mark.slow
def test_settings_that_cannot_work_are_found(tmp_path: Path) -> None:
    file = tmp_path / "d.toml"
    file.write_text('listen = ["tcp://0.0.0.0:5555"]\n')
    code, found = doctor("--settings", f"discoverd={file}")
    assert (code, set(found)) == (1, {"settings"})
    assert "other machines can reach it" in found["settings"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        file.write_text(
            f'name = "a"\nexec = "cat"\nlisten = "tcp://127.0.0.1:{port}"\nhttp = "192.0.2.1:9"\ntrust = "open"\n'
            'discovery = ["tcp://no-such-host.invalid:5555"]\n'
        )
        code, found = doctor("--settings", f"serve={file}")
    assert (code, set(found)) == (1, {"settings", "port-taken", "unresolved", "not-own"})
    assert f"{port} is in use by process " in found["port-taken"]
    assert "no-such-host.invalid" in found["unresolved"]


@pytest.mark.slow
@pytest.mark.needs_program("unshare", package="util-linux")
def test_a_full_disk_is_found(tmp_path: Path) -> None:
    fill = 'mount -t tmpfs -o size=1m none "$0"; head -c 2000000 /dev/zero > "$0/x" 2>/dev/null; exec "$@"'
    arguments = command("doctor", "--json", "--folder", str(tmp_path))
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", fill, str(tmp_path), *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
    )
    code, found = read(done)
    assert (code, set(found)) == (1, {"disk-full"})
    assert found["disk-full"].endswith(": 0 MiB of 1 are free")


@pytest.mark.slow
def test_a_certificate_that_ends_soon_is_found(tmp_path: Path) -> None:
    ends = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=30)
    certificate = issue(tmp_path, "127.0.0.1", authority=trustme.CA(), not_after=ends)
    with (
        discoverd() as daemon,
        Running(
            *("serve", "shout", "--exec", "cat", "--listen", "tls+tcp://127.0.0.1:0", "--discovery", daemon.surveys),
            *("--cert", str(certificate.cert), "--key", str(certificate.key)),
        ),
    ):
        up(daemon.process.stdout, 1)
        code, found = doctor("--daemon", daemon.answers)
    assert code == 1
    assert re.search(r"the certificate of shout at tls\+tcp://127.0.0.1:\d+ ends in (29|30) min", found["pass-ends"])


@pytest.mark.slow
def test_descriptors_and_losses_are_found_at_the_door() -> None:
    with ExitStack() as opened:
        device = opened.enter_context(
            Running(
                *("device", "forwarder", "--front-listen", "tcp://127.0.0.1:0", "--back-listen", "tcp://127.0.0.1:0"),
                *("--hold", "1", "--http", "0"),
            )
        )
        told = ""
        while "listens at" not in told or told.count("tcp://") < 2 or "http://" not in told:
            told += device.says() + "\n"
        front, back = re.findall(r"tcp://127.0.0.1:[1-9]\d*", told)[:2]
        door = re.search(r"http://([\d.:]+)", told)
        assert door is not None
        pub, sub = Pub(dial=front), Sub(dial=back, topics=b"", recv_buffer=1)
        with pub, sub:
            pub.wait_for_peers(1, 20)
            sub.wait_for_peers(1, 20)
            for _ in range(2000):
                pub.send(bytes(20_000))
            most = len(list(Path(f"/proc/{device.process.pid}/fd").iterdir())) + 4
            resource.prlimit(device.process.pid, resource.RLIMIT_NOFILE, (most, most))
            code, found = doctor("--http", door[1])
    assert code == 0
    assert "messages dropped" in found["dropping"]
    assert f"of {most} descriptors open" in found["descriptors"]


# ---- a network -------------------------------------------------------------------------------------------------------


def serving(host: Host, name: str, address: str, daemon: str) -> None:
    host.popen([sys.executable, "-c", SERVICE, name, address, daemon], cwd=ROOT, env=environment())


def listening(host: Host, address: str, port: int) -> socket.socket:
    return host.call(lambda: socket.create_server((address, port)))


@pytest.mark.slow
def test_addresses_that_callers_cannot_dial_are_found(hosts: Hosts) -> None:
    ny, london = hosts.add("ny"), hosts.add("london")
    hosts.link("ny", "london")
    survey = f"tcp://{ny.address}:5555"
    arguments = ["--listen", survey, "--deadline", "0.5", "--interval", "0.1", "--no-history", "--trust", "open"]
    daemon: Any = ny.popen(
        command("discoverd", *arguments), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
    )
    london.iptables("-A", "INPUT", "-p", "tcp", "--dport", "9000", "-j", "DROP")
    serving(london, "walled", f"tcp://{london.address}:9000", survey)
    serving(london, "absent", f"tcp://{london.address}:9001", survey)
    serving(london, "inward", "tcp://127.0.0.1:9002", survey)
    serving(london, "nameless", "tcp://no-such-host.invalid:9003", survey)
    serving(ny, "shy", f"tcp://{ny.address}:9004", survey)
    with listening(ny, "127.0.0.1", 9004):
        up(daemon.stdout, 5)
        asked = command("doctor", "--daemon", f"tcp://{ny.address}:5556", "--json", "--timeout", "1")
        code, found = read(ny.run(asked, cwd=ROOT, env=environment()))
    assert code == 1
    problems = {code: what for code, what in found.items() if what.startswith("problem")}
    assert {code: what.split()[1] for code, what in problems.items()} == {
        "firewall": "walled",
        "refused": "absent",
        "loopback-published": "inward",
        "unresolved": "nameless",
        "loopback-only": "shy",
    }
