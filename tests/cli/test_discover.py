"""`nngkit discover` and `nngkit resolve`: what they print for people and for programs, and every way to fail."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nngkit.cli.discovering import span
from nngkit.cli.output import columns
from nngkit.discovery import Reason
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
    """A daemon that knows one provider of each name (`answer`)."""
    with discoverd("--json") as daemon:
        if not names:
            yield daemon
            return
        with program("provider", names[0], "tcp://10.0.0.1:9000", daemon.surveys):
            assert daemon.change()["state"] == "up"
            yield daemon


def test_discover_lists_who_is_there() -> None:
    with with_answer("answer") as daemon:
        done = nngkit("discover", "--daemon", daemon.answers)
        assert (done.returncode, done.stderr) == (0, "")
        head, row = done.stdout.splitlines()
        assert head.split() == ["NAME", "ADDRESS", "STATE", "FOR", "RTT", "ZONE", "WEIGHT"]
        assert row.split()[:3] == ["answer", "tcp://10.0.0.1:9000", "up"]
        found = valid(nngkit("discover", "answer", "--json", "--daemon", daemon.answers).stdout, "discover.json")
        assert (found["name"], found["address"], found["state"]) == ("answer", "tcp://10.0.0.1:9000", "up")
        assert_fails(nngkit("discover", "other", "--daemon", daemon.answers), 1, "service not found: other")


def test_discover_all_shows_the_dead_too() -> None:
    with discoverd("--json") as daemon:
        with program("provider", "answer", "tcp://10.0.0.1:9000", daemon.surveys) as provider:
            daemon.change()
            provider.kill()
            assert daemon.change()["state"] == "down"
        empty = nngkit("discover", "--daemon", daemon.answers)
        assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", "")
        (line,) = nngkit("discover", "--all", "--json", "--daemon", daemon.answers).stdout.splitlines()
        assert valid(line, "discover.json")["reason"] == "pipe lost"


def test_discover_rounds_shows_figures_and_counters() -> None:
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
            nngkit("resolve", "nobody", "--daemon", daemon.answers), 1, "nngkit resolve: service not found: nobody"
        )


def test_the_environment_says_where_the_daemon_is() -> None:
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


def test_of_several_daemons_whoever_answers_counts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        silent = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with with_answer("answer") as daemon, discoverd() as other:
            both = ["--daemon", other.answers, "--daemon", silent, "--daemon", daemon.answers, "--timeout", "1"]
            done = nngkit("resolve", "answer", *both)
            assert (done.returncode, done.stdout, done.stderr) == (0, "tcp://10.0.0.1:9000\n", "")
            assert_fails(nngkit("resolve", "nobody", *both), 1, "service not found: nobody")
            done = nngkit("discover", "--json", *both)
            assert done.returncode == 0
            assert [valid(line, "discover.json")["name"] for line in done.stdout.splitlines()] == ["answer"]
            assert re.fullmatch(rf"nngkit discover: {silent}[^\n]*\n", done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("what", [["discover"], ["discover", "--rounds"], ["resolve", "answer"]])
def test_no_daemon_is_exit_code_3_and_a_mute_one_4(what: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nowhere = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    assert_fails(
        nngkit(*what, "--daemon", nowhere, "--timeout", "0.2"), 3, nowhere, "no discovery daemon answers there"
    )
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


def test_something_else_at_that_port_is_one_line() -> None:
    with discoverd() as daemon:  # the survey port instead of the one for queries
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


def test_colour_is_for_terminals_that_want_it() -> None:
    with with_answer("answer") as daemon:
        listing = ["discover", "--daemon", daemon.answers]
        assert "\033[32mup\033[0m" in on_a_terminal(*listing, TERM="xterm")
        assert "\033" not in on_a_terminal(*listing, TERM="xterm", NO_COLOR="1")
        assert "\033" not in on_a_terminal(*listing, TERM="dumb")
        assert "\033" not in nngkit(*listing, TERM="xterm").stdout
        assert "\033" not in on_a_terminal(*listing, "--json", TERM="xterm")


def test_colour_takes_no_room_in_a_table() -> None:
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
