"""`nngkit discover` and `nngkit resolve`: text and JSON output, and every failure."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nngkit.blocking import Service
from nngkit.cli.streams.output import columns, span
from nngkit.discovery import Reason
from tests.cli.certificates import Certificate, issue
from tests.cli.commands import (
    ROOT,
    SCHEMAS,
    WAIT,
    Running,
    assert_fails,
    command,
    discoverd,
    environment,
    nngkit,
    valid,
)
from tests.discovery.peers import program


@contextmanager
def with_answer(*names: str) -> Iterator[Running]:
    """Run a daemon that knows one provider of each name (`answer`)."""
    with discoverd("--json") as daemon:
        if not names:
            yield daemon
            return
        with program("provider", names[0], "tcp://10.0.0.1:9000", daemon.surveys):
            assert daemon.change()["state"] == "up"
            yield daemon


def test_discover_lists_available_providers() -> None:
    with with_answer("answer") as daemon:
        done = nngkit("discover", "--daemon", daemon.answers)
        assert (done.returncode, done.stderr) == (0, "")
        head, row = done.stdout.splitlines()
        assert head.split() == ["NAME", "ADDRESS", "STATE", "FOR", "RTT", "ZONE", "PRIORITY", "WEIGHT"]
        assert row.split()[:3] == ["answer", "tcp://10.0.0.1:9000", "up"]
        found = valid(nngkit("discover", "answer", "--json", "--daemon", daemon.answers).stdout, "discover.json")
        assert (found["name"], found["address"], found["state"]) == ("answer", "tcp://10.0.0.1:9000", "up")
        assert_fails(nngkit("discover", "other", "--daemon", daemon.answers), 1, "service not found: other")


def test_discover_all_includes_providers_that_are_down() -> None:
    with discoverd("--json") as daemon:
        with program("provider", "answer", "tcp://10.0.0.1:9000", daemon.surveys) as provider:
            daemon.change()
            provider.kill()
            assert daemon.change()["state"] == "down"
        empty = nngkit("discover", "--daemon", daemon.answers)
        assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", "")
        (line,) = nngkit("discover", "--all", "--json", "--daemon", daemon.answers).stdout.splitlines()
        assert valid(line, "discover.json")["reason"] == "pipe lost"


def test_discover_rounds_prints_rounds_and_counters() -> None:
    with with_answer("answer") as daemon:
        found = valid(
            nngkit("discover", "--rounds", "--json", "--daemon", daemon.answers).stdout, "discover-rounds.json"
        )
        assert found["counts"]["pipes joined"] == 1
        assert found["rounds"][-1]["answered"] == 1
        text = nngkit("discover", "--rounds", "--daemon", daemon.answers).stdout.splitlines()
        assert "pipes joined 1" in text[0]
        assert text[1].split() == ["ROUND", "TOOK", "ASKED", "ANSWERED", "DUE", "MISSED", "HELD"]


def test_resolve_prints_an_address() -> None:
    with with_answer("answer") as daemon:
        done = nngkit("resolve", "answer", "--daemon", daemon.answers)
        assert (done.returncode, done.stdout, done.stderr) == (0, "tcp://10.0.0.1:9000\n", "")
        found = valid(nngkit("resolve", "answer", "--json", "--daemon", daemon.answers).stdout, "resolve.json")
        assert found["address"] == "tcp://10.0.0.1:9000"
        assert_fails(
            nngkit("resolve", "absent", "--daemon", daemon.answers), 1, "nngkit resolve: service not found: absent"
        )


@contextmanager
def two_zones() -> Iterator[Running]:
    """Run a daemon that knows one provider in New York, a standby, and one in London."""
    with discoverd("--json") as daemon:
        providers = (("ny", 16, "tcp://10.0.0.1:9000"), ("london", 1, "tcp://10.0.0.2:9000"))
        with ExitStack() as there:
            for zone, priority, address in providers:
                service = Service("answer", address, discovery=daemon.surveys, zone=zone, priority=priority)
                there.enter_context(service)
                assert daemon.change()["priority"] == priority
            yield daemon


def test_the_zone_comes_before_priority_from_option_and_variable() -> None:
    with two_zones() as daemon:
        there = ["resolve", "answer", "--daemon", daemon.answers]
        assert nngkit(*there).stdout == "tcp://10.0.0.2:9000\n"
        assert nngkit(*there, "--prefer", "ny").stdout == "tcp://10.0.0.1:9000\n"
        assert nngkit(*there, NNGKIT_ZONE="ny").stdout == "tcp://10.0.0.1:9000\n"
        assert nngkit(*there, "--prefer", "", NNGKIT_ZONE="ny").stdout == "tcp://10.0.0.2:9000\n"
        assert nngkit(*there, NNGKIT_ZONE="ny", NNGKIT_PREFER="oslo,london").stdout == "tcp://10.0.0.2:9000\n"
        _, *rows = nngkit("discover", "--daemon", daemon.answers).stdout.splitlines()
        assert sorted(row.split()[-3:-1] for row in rows) == [["london", "1"], ["ny", "16"]]


# ---- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return issue(tmp_path / "pem", "127.0.0.1")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["options", "variables"])
def test_the_daemon_and_its_clients_use_tls(certificate: Certificate, how: str) -> None:
    options = certificate.options if how == "options" else ()
    files = {"NNGKIT_CACERT": certificate.ca, "NNGKIT_CERT": certificate.cert, "NNGKIT_KEY": certificate.key}
    variables = {} if options else {name: str(path) for name, path in files.items()}
    listen = ("--listen", "tls+tcp://127.0.0.1:0")
    with discoverd("--json", *listen, *options, stdout=subprocess.PIPE, **variables) as daemon:
        assert daemon.surveys.startswith("tls+tcp://")
        assert daemon.answers.startswith("tls+tcp://")
        with Service("answer", "tcp://10.0.0.1:9000", discovery=daemon.surveys, tls=certificate.tls()):
            assert daemon.change()["state"] == "up"
            there = ("--daemon", daemon.answers, *options)
            assert nngkit("resolve", "answer", *there, **variables).stdout == "tcp://10.0.0.1:9000\n"
            assert "  up  " in nngkit("discover", *there, **variables).stdout
            assert "tls+tcp://" in nngkit("discover", "--rounds", *there, **variables).stdout
            assert nngkit("top", "--once", *there, **variables).returncode == 0
            # a client without a certificate is rejected
            ca = ("--cacert", str(certificate.ca), "--timeout", "0.3")
            assert nngkit("resolve", "answer", "--daemon", daemon.answers, *ca).returncode in (3, 4)


def test_programs_read_the_same_variables(certificate: Certificate) -> None:
    files = {"NNGKIT_CACERT": certificate.ca, "NNGKIT_CERT": certificate.cert, "NNGKIT_KEY": certificate.key}
    variables = {name: str(path) for name, path in files.items()}
    examples = ROOT / "examples" / "service_discovery"
    listen = ("--listen", "tls+tcp://127.0.0.1:0")
    with discoverd("--json", *listen, stdout=subprocess.PIPE, **variables) as daemon:
        here = variables | {"NNGKIT_DISCOVERY": daemon.surveys, "NNGKIT_QUERY": daemon.answers, "SERVICE_PORT": "0"}
        here |= {"NNGKIT_PRIORITY": "3", "NNGKIT_ZONE": "ny"}
        with subprocess.Popen(
            [sys.executable, examples / "answer.py"], cwd=ROOT, env=environment(**here), stdout=subprocess.DEVNULL
        ) as service:
            try:
                change = daemon.change()
                assert (change["name"], change["priority"], change["zone"]) == ("answer", 3, "ny")
                client = [sys.executable, str(examples / "client.py")]
                done = subprocess.run(client, env=environment(**here), capture_output=True, text=True, timeout=WAIT)
                assert done.stdout.endswith(" says: The answer is 42\n"), done.stderr
            finally:
                service.kill()


LISTEN = ("discoverd", "--listen", "tls+tcp://127.0.0.1:0", "--query", "tcp://127.0.0.1:0")
NO_CERT = "a listener over TLS needs it, and --key (or NNGKIT_CERT and NNGKIT_KEY)"
NO_CACERT = "a dialer over TLS needs it, or --insecure (or NNGKIT_CACERT)"
ASK = ("resolve", "answer", "--daemon", "tls+tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "variables", "says"),
    [
        (LISTEN, {}, f"--cert: {NO_CERT}"),
        (ASK, {}, f"--cacert: {NO_CACERT}"),
        (("discover", *ASK[2:]), {}, f"--cacert: {NO_CACERT}"),
        (
            ("top", "--once", *ASK[2:]),
            {},
            f"--cacert: {NO_CACERT}",
        ),
        ((*LISTEN, "--cert", "a"), {}, "--cert: requires --key"),
        (LISTEN, {"NNGKIT_CERT": "a"}, "NNGKIT_CERT: requires NNGKIT_KEY"),
        (ASK, {"NNGKIT_CACERT": "/nowhere/ca.pem"}, "NNGKIT_CACERT: /nowhere/ca.pem: No such file or directory"),
        (
            (*ASK, "--cacert", "/nowhere/it.pem"),
            {"NNGKIT_CACERT": "/nowhere/ca.pem"},
            "--cacert: /nowhere/it.pem: No such file or directory",
        ),
        (
            ("resolve", "answer", "--daemon", "tcp://127.0.0.1:1", "--cacert", "a"),
            {},
            "--cacert: is for tls+tcp:// and wss:// addresses; there is none",
        ),
    ],
)
def test_a_bad_certificate_is_a_one_line_error(
    arguments: tuple[str, ...], variables: dict[str, str], says: str
) -> None:
    assert_fails(nngkit(*arguments, **variables), 2, f"nngkit {arguments[0]}: {says}")


def test_tls_variables_do_not_affect_a_daemon_without_tls() -> None:
    with discoverd("--json", NNGKIT_CACERT="/nowhere") as daemon:
        assert nngkit("discover", "--daemon", daemon.answers, NNGKIT_CACERT="/nowhere").returncode == 0


def test_the_daemons_address_comes_from_the_environment() -> None:
    with with_answer("answer") as daemon:
        host, port = daemon.answers.removeprefix("tcp://").split(":")
        wildcard = f"tcp://0.0.0.0:{port}"
        for variables in (
            {"NNGKIT_QUERY": daemon.answers},
            {"NNGKIT_QUERY": wildcard},
            {"DISCOVERY_HOST": host, "DISCOVERY_PORT": str(int(port) - 1)},
            {"DISCOVERY_HOST": "nowhere", "NNGKIT_DISCOVERY_HOST": "localhost", "DISCOVERY_PORT": str(int(port) - 1)},
        ):
            done = nngkit("resolve", "answer", **variables)
            assert (done.returncode, done.stdout) == (0, "tcp://10.0.0.1:9000\n"), variables


@pytest.mark.slow
def test_the_reply_of_one_of_several_daemons_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        silent = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with with_answer("answer") as daemon, discoverd() as other:
            both = ["--daemon", other.answers, "--daemon", silent, "--daemon", daemon.answers, "--timeout", "1"]
            done = nngkit("resolve", "answer", *both)
            assert (done.returncode, done.stdout, done.stderr) == (0, "tcp://10.0.0.1:9000\n", "")
            assert_fails(nngkit("resolve", "absent", *both), 1, "service not found: absent")
            done = nngkit("discover", "--json", *both)
            assert done.returncode == 0
            assert [valid(line, "discover.json")["name"] for line in done.stdout.splitlines()] == ["answer"]
            assert re.fullmatch(rf"nngkit discover: {silent}[^\n]*\n", done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("what", [["discover"], ["discover", "--rounds"], ["resolve", "answer"]])
def test_no_daemon_is_exit_code_3_and_a_silent_one_4(what: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nowhere = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    assert_fails(nngkit(*what, "--daemon", nowhere, "--timeout", "0.2"), 3, nowhere, "no discovery daemon answered")
    mute = (
        "import sys; from nngkit.protocols import Rep; rep = Rep(listen='tcp://127.0.0.1:0'); "
        "print(rep.address, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [command()[0], "-c", mute], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert_fails(nngkit(*what, "--daemon", address, "--timeout", "1"), 4, address, "no answer in 1 s")
        finally:
            process.kill()


def test_another_program_at_the_port_is_a_one_line_error() -> None:
    with discoverd() as daemon:  # the survey port instead of the query port
        assert_fails(nngkit("resolve", "answer", "--daemon", daemon.surveys, "--timeout", "0.5"), 3, daemon.surveys)


# ---- terminals -------------------------------------------------------------------------------------------------------


def on_a_terminal(*arguments: str, **variables: str) -> str:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            command(*arguments), cwd=ROOT, env=environment(**variables), stdin=theirs, stdout=theirs, timeout=WAIT
        )
        assert done.returncode == 0
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.slow
def test_only_terminals_get_colour() -> None:
    with with_answer("answer") as daemon:
        listing = ["discover", "--daemon", daemon.answers]
        assert "\033[32mup\033[0m" in on_a_terminal(*listing, TERM="xterm")
        assert "\033" not in on_a_terminal(*listing, TERM="xterm", NO_COLOR="1")
        assert "\033" not in on_a_terminal(*listing, TERM="dumb")
        assert "\033" not in nngkit(*listing, TERM="xterm").stdout
        assert "\033" not in on_a_terminal(*listing, "--json", TERM="xterm")


def test_colour_has_no_width_in_a_table() -> None:
    plain = columns(("A", "B"), [("up", "x"), ("down", "y")])
    painted = columns(("A", "B"), [("\033[32mup\033[0m", "x"), ("\033[31mdown\033[0m", "y")])
    assert re.sub(r"\033\[\d+m", "", painted) == plain == "A     B\nup    x\ndown  y"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (0.9, "0s"), (59, "59s"), (60, "1m00s"), (200, "3m20s"), (7500, "2h05m"), (367200, "4d06h")],
)
def test_lengths_of_time_are_short(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_the_schemas_know_every_reason() -> None:
    for name in ("discover.json", "discoverd.json"):
        schema = json.loads((SCHEMAS / name).read_text())
        assert set(schema["properties"]["reason"]["enum"]) == {reason.value for reason in Reason}
