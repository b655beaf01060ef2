"""`nngkit watch` and `nngkit discover --watch`: lines, commands, and files made from templates."""

from __future__ import annotations

import json
import os
import pty
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit.blocking import Service
from nngkit.cli.discovery.template import Template, TemplateFailed, replace_file, unsafe_field
from nngkit.cli.discovery.watched import Watched
from nngkit.cli.streams.output import provider_fields
from nngkit.cli.streams.shell import run_shell, shell_environment
from nngkit.discovery import Event, Provider, Reason, State
from nngkit.errors import ConfigError
from tests.cli.commands import ROOT, WAIT, assert_fails, command, discoverd, environment, nngkit, valid
from tests.cli.commands import Running as Daemon
from tests.cli.processes import Running
from tests.cli.terminals import until
from tests.preloaded import Popen


@contextmanager
def provided(daemon: Daemon, address: str, name: str = "answer", **record: Any) -> Iterator[Service]:
    """Provide a service until the block ends; begin once the daemon knows it."""
    with Service(name, address, discovery=daemon.surveys, **record) as service:
        change = daemon.change()
        assert (change["address"], change["state"]) == (address, "up")
        yield service


# ---- the view --------------------------------------------------------------------------------------------------------


def event(address: str, new: State, name: str = "answer", old: State = State.JOINING, at: float = 1.0) -> Event:
    return Event(name, Provider(name, address), old, new, Reason.ANSWERED, at, 1)


def test_the_view_follows_the_events() -> None:
    view = Watched("answer")
    assert view.apply(event("tcp://h:1", State.UP))
    assert not view.apply(event("tcp://h:9", State.UP, name="other"))
    view.apply(event("tcp://h:2", State.SUSPECT, at=2.0))
    assert [each.provider.address for each in view.usable()["answer"]] == ["tcp://h:1"]
    view.apply(event("tcp://h:1", State.DOWN, old=State.UP))
    assert [each.provider.address for each in view.usable()["answer"]] == ["tcp://h:2"]  # better than none
    view.apply(event("tcp://h:2", State.SUSPECT, at=3.0, old=State.SUSPECT))
    ((_, since),) = view.rows()
    assert since == 2.0  # of the state, not of the record
    view.apply(event("tcp://h:2", State.DRAINING, at=4.0))
    assert view.usable() == {"answer": []}
    view.clear()
    assert view.rows() == []


def test_the_state_follows_its_schema() -> None:
    view = Watched()
    view.apply(event("tcp://h:1", State.UP))
    found = valid(json.dumps(view.fields(100.0, 101.0, True)), "watch.json")
    assert [(each["address"], each["usable"], each["since"]) for each in found["providers"]] == [
        ("tcp://h:1", True, "1970-01-01T00:01:41.000Z")
    ]


# ---- templates -------------------------------------------------------------------------------------------------------


def row(
    name: str = "answer", address: str = "tcp://10.0.0.1:9000", usable: bool = True, **other: Any
) -> dict[str, Any]:
    return {**provider_fields(Provider(name, address, **other)), "state": "up", "usable": usable}


def rendered(tmp_path: Path, text: str, *rows: dict[str, Any], any_text: bool = False) -> str:
    path = tmp_path / "template"
    path.write_text(text)
    return Template(str(path), any_text=any_text).render(rows)[0]


def test_a_template_has_services_providers_and_their_places(tmp_path: Path) -> None:
    text = (
        "{% for p in service('answer') %}\nserver {{ p.hostport }} weight={{ p.weight }};\n{% endfor %}\n"
        "{{ services | length }} {{ providers | length }} {{ service('none') | length }}\n"
    )
    rows = [row(), row(address="tcp://[::1]:1", weight=5), row(address="tcp://10.0.0.3:1", usable=False)]
    assert rendered(tmp_path, text, *rows) == ("server 10.0.0.1:9000 weight=100;\nserver [::1]:1 weight=5;\n1 3 0\n")
    assert rendered(tmp_path, "{{ providers[0].host }}|{{ providers[0].port }}", row()) == "10.0.0.1|9000"
    assert rendered(tmp_path, "{{ providers[0].port }}", row(address="ipc:///tmp/a")) == "None"


def test_a_template_includes_files_of_its_folder_only(tmp_path: Path) -> None:
    (tmp_path / "part").write_text("part")
    assert rendered(tmp_path, "{% include 'part' %}") == "part"
    with pytest.raises(TemplateFailed):
        rendered(tmp_path, "{% include '../../etc/passwd' %}")


@pytest.mark.parametrize(
    "text",
    [
        "\n{{ services['none'] }}",
        "\n{{ nothing }}",
        "\n{{ 1 / 0 }}",
        "\n{{ ''.__class__.__mro__ }}",
        "\n{{ service.__globals__ }}",
        "\n{{ range(10000000) }}",
        "\n{{ 'a b' | token }}",
        "\n{{ services.clear() }}",
    ],
)
def test_a_template_that_fails_says_where(text: str, tmp_path: Path) -> None:
    with pytest.raises(TemplateFailed, match=r"template:2: "):
        rendered(tmp_path, text, row())


@pytest.mark.parametrize(
    ("field", "record"),
    [
        ("name", row(name="a; } include /etc/shadow")),
        ("address", row(address="tcp://h:1;reload")),
        ("zone", row(zone="$(reboot)")),
        ("version", row(version='1"')),
        ("tags", row(tags=("a{",))),
    ],
)
def test_a_provider_with_unsafe_text_is_left_out(field: str, record: dict[str, Any], tmp_path: Path) -> None:
    assert unsafe_field(record) == field
    text = "{{ providers | length }}"
    assert rendered(tmp_path, text, record, row(name="größe")) == "1"
    assert rendered(tmp_path, text, record, any_text=True) == "1"
    quoted = rendered(tmp_path, "{{ providers[0].version | quoted }}", row(version='1"\\'), any_text=True)
    assert quoted == '"1\\"\\\\"'


def test_a_template_that_does_not_parse_is_a_wrong_option(tmp_path: Path) -> None:
    bad = tmp_path / "bad.in"
    bad.write_text("\n{% for %}\n")
    out = str(tmp_path / "out")
    assert_fails(nngkit("watch", "--template", str(bad), "--out", out), 2, f"--template: {bad}:2: ")
    with pytest.raises(ConfigError, match=r"--template: .*nowhere: No such file"):
        Template(str(tmp_path / "nowhere"))
    bad.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        Template(str(bad))


def test_a_file_is_replaced_only_by_other_content(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    assert replace_file(str(link), b"one")
    assert stat.S_IMODE(target.stat().st_mode) & 0o400
    target.chmod(0o640)
    before = target.stat().st_ino
    assert not replace_file(str(link), b"one")
    assert target.stat().st_ino == before
    with target.open("rb") as open_before:
        assert replace_file(str(link), b"two")
        assert open_before.read() == b"one"  # a reader has the old file whole
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (b"two", 0o640)
    assert link.is_symlink()
    assert {each.name for each in tmp_path.iterdir()} == {"target", "link"}
    with pytest.raises(OSError, match="No such file"):
        replace_file(str(tmp_path / "none" / "file"), b"")


# ---- commands --------------------------------------------------------------------------------------------------------


async def test_a_command_gets_input_and_environment() -> None:
    ran = await run_shell("cat; echo $NAME >&2; exit 3", b"in", shell_environment(NAME="env"), 10, most=100)
    assert (ran.code, ran.stdout, ran.stderr, ran.failure()) == (3, b"in", b"env\n", "exit code 3")
    assert (await run_shell("kill -9 $$", b"", shell_environment(), 10, most=0)).failure() == "ended by signal 9"


@pytest.mark.parametrize("most", [None, 100])
async def test_a_command_that_hangs_is_killed_with_its_children(most: int | None, tmp_path: Path) -> None:
    script = f"sleep 100 & echo $! > {tmp_path}/pid; wait"
    ran = await run_shell(script, b"", shell_environment(), 0.2, most=most)
    assert ran.timed_out
    assert ran.failure() == "killed: it took too long"
    child = int((tmp_path / "pid").read_text())
    with trio.fail_after(5):
        while _runs(child):  # noqa: ASYNC110 (its end is no event here: it is no child of ours)
            await trio.sleep(0.01)


def _runs(pid: int) -> bool:
    """Return True if the process is neither gone nor a zombie that waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_output_without_end_is_cut() -> None:
    ran = await run_shell("yes", b"", shell_environment(), 10, most=1000)
    assert ran.failure() == "killed: its output is too large"


async def test_a_cancelled_command_is_killed() -> None:
    with trio.move_on_after(0.1) as scope:
        await run_shell("sleep 100", b"", shell_environment(), 100)
    assert scope.cancelled_caught


# ---- as processes ----------------------------------------------------------------------------------------------------


def test_watch_prints_the_state_and_each_change() -> None:
    with discoverd("--json") as daemon, provided(daemon, "tcp://10.0.0.1:9000"):
        once = nngkit("watch", "--once", "--json", "--daemon", daemon.answers)
        assert (once.returncode, once.stderr) == (0, "")
        found = valid(once.stdout, "discoverd.json")
        assert (found["address"], found["state"], found["was"]) == ("tcp://10.0.0.1:9000", "up", "joining")
        assert nngkit("watch", "other", "--once", "--daemon", daemon.answers).stdout == ""
        for options in (["watch", "answer"], ["discover", "answer", "--watch"]):
            with Running(*options, "--daemon", daemon.answers) as watch:
                assert "  answer  tcp://10.0.0.1:9000  up (answered)" in watch.line()
                with provided(daemon, "tcp://10.0.0.2:9000"):
                    assert "  answer  tcp://10.0.0.2:9000  up (answered)" in watch.line()
                while "down (bye)" not in watch.line():
                    pass
                while daemon.change()["state"] != "down":
                    pass
                assert watch.end() == 130


def test_a_command_runs_at_the_start_and_after_changes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f'cat >> {log}; echo "$NNGKIT_PROVIDERS $NNGKIT_WATCHED $NNGKIT_ADDRESSES"'
    with discoverd("--json") as daemon:
        options = ["watch", "answer", "--exec", script, "--daemon", daemon.answers, "--wait", "0.05"]
        with Running(*options) as watch:
            assert watch.line() == "0 answer "
            with provided(daemon, "tcp://10.0.0.1:9000"):
                assert watch.line() == "1 answer tcp://10.0.0.1:9000"
            assert watch.line() == "0 answer "
            assert watch.end(15) == 143
        states = [valid(line, "watch.json") for line in log.read_text().splitlines()]
        assert [len(state["providers"]) for state in states] == [0, 1, 0] or len(states) > 3


def test_a_failed_command_is_a_line_and_an_exit_code() -> None:
    with discoverd() as daemon:
        there = ["--once", "--daemon", daemon.answers]
        assert_fails(nngkit("watch", "--exec", "exit 3", *there), 1, "--exec: exit 3: exit code 3")
        slow = ["--exec", "sleep 9", "--exec-timeout", "0.1"]
        assert_fails(nngkit("watch", *slow, *there), 1, "killed: it took too long")


def test_a_template_follows_the_services(tmp_path: Path) -> None:
    template, out = tmp_path / "in", tmp_path / "out"
    template.write_text("{% for p in service('answer') %}{{ p.hostport }}\n{% endfor %}")
    with discoverd("--json") as daemon:
        options = ["--template", str(template), "--out", str(out), "--wait", "0.05", "--daemon", daemon.answers]
        with Running("watch", *options, "--exec", f"echo $(cat {out}).") as watch:
            assert watch.line() == "."
            with provided(daemon, "tcp://10.0.0.1:9000"):
                assert watch.line() == "10.0.0.1:9000."
                # unchanged content: the command does not run
                once = nngkit("watch", *options, "--once", "--exec", "echo never")
                assert (once.returncode, once.stdout, once.stderr) == (0, "", "")
                with provided(daemon, "tcp://10.0.0.2:9000", zone="a b"):
                    while "left out" not in (said := watch.says()):
                        pass
                    assert "tcp://10.0.0.2:9000: left out of the file: its zone has unsafe characters" in said
            assert watch.line() == "."
        template.write_text("{{ nothing }}")
        once = nngkit("watch", *options, "--once")
        assert (once.returncode, out.read_text()) == (1, "")
        assert f"{template}:1: 'nothing' is undefined; {out} stays as it is" in once.stderr
        done = nngkit("watch", "--template", str(template), "--out", "/nowhere/x", "--once", "--daemon", daemon.answers)
        assert done.returncode == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--template", "x"], "--template: requires --out"),
        (["--out", "x"], "--out: requires --template"),
        (["--any-text"], "--any-text: requires --template"),
        (["--exec", "x", "--json"], "--json: conflicts with --exec and --template"),
        (["a|b"], "NAME: name has a '|'"),
        (["--wait", "0"], "argument --wait: '0' is not a number of seconds over 0"),
    ],
)
def test_a_wrong_option_is_one_line(options: list[str], says: str) -> None:
    assert_fails(nngkit("watch", *options), 2, says)


def test_without_a_daemon_once_fails_and_watch_keeps_trying() -> None:
    there = ["--daemon", "tcp://127.0.0.1:1", "--timeout", "0.1"]
    assert_fails(nngkit("watch", "--once", *there), 3, "no discovery daemon answered within 0.1 s")
    assert_fails(nngkit("watch", "--once", "--exec", "x", *there), 3, "no discovery daemon answered within 0.1 s")
    with Running("watch", *there) as watch:
        said = watch.says()
        assert "no discovery daemon answered within 0.1 s; no listener at 127.0.0.1:1: " in said
        assert said.endswith("; still trying")
        assert watch.end() == 130


def test_discover_prefers_zones_and_filters_by_tag() -> None:
    with (
        discoverd("--json") as daemon,
        provided(daemon, "tcp://10.0.0.1:9000", zone="ny", tags=("big",)),
        provided(daemon, "tcp://10.0.0.2:9000", zone="london"),
    ):
        there = ["discover", "--json", "--daemon", daemon.answers]

        def zones(*options: str, **variables: str) -> list[str]:
            return [json.loads(line)["zone"] for line in nngkit(*there, *options, **variables).stdout.splitlines()]

        assert zones() == ["ny", "london"]
        assert zones("--prefer", "london,ny") == zones(NNGKIT_PREFER="london") == ["london", "ny"]
        assert zones("--tag", "big") == ["ny"]
        assert_fails(nngkit(*there, "--watch", "--tag", "big"), 2, "--tag: conflicts with --watch")


@pytest.mark.slow
def test_discover_shows_a_live_table_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    with discoverd("--json") as daemon, provided(daemon, "tcp://10.0.0.1:9000"):
        live = command("discover", "--watch", "--daemon", daemon.answers)
        with Popen(
            live, cwd=ROOT, env=environment(TERM="xterm"), stdin=theirs, stdout=theirs, stderr=theirs
        ) as process:
            try:
                shown = until(ours, "1 usable")
                assert "\033[H\033[J" in shown
                with provided(daemon, "tcp://10.0.0.2:9000"):
                    assert "tcp://10.0.0.2:9000" in until(ours, "2 usable") + until(ours, "tcp://10.0.0.2:9000")
                process.send_signal(2)
                assert process.wait(WAIT) == 130
            finally:
                process.kill()
                os.close(theirs)
                os.close(ours)
