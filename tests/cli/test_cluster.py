"""`nngkit host`, `join`, `submit` and `cluster`: one command as a process, the rest of the cluster in the test."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from nngkit.cli.cluster.host import voter
from nngkit.cli.cluster.live import status_lines, tree_lines, without
from nngkit.cli.cluster.programs import why
from nngkit.cli.cluster.submit import bar
from nngkit.cli.streams.output import cut
from nngkit.cli.streams.shell import Ran
from nngkit.cluster import ClusterMember, ClusterStatus, ClusterTree, Host, JobCounts, Member, VoterState
from nngkit.cluster.admission import issue_ticket, read_ticket
from nngkit.errors import JobFailed
from nngkit.testing import eventually
from tests.cli.commands import ROOT, WAIT, assert_fails, command, environment, nngkit, valid
from tests.cli.processes import Running
from tests.cli.terminals import Terminal
from tests.preloaded import run

ANY = "tcp://127.0.0.1:0"
T = TypeVar("T")


async def in_thread(function: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    """Run a blocking function while the cluster of the test goes on."""
    return await trio.to_thread.run_sync(partial(function, *arguments, **keywords))


async def by_lines(*arguments: str, lines: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run `nngkit ...` with these lines as standard input."""
    return await in_thread(
        run, command(*arguments), cwd=ROOT, env=environment(), input=lines, capture_output=True, timeout=WAIT
    )


@asynccontextmanager
async def a_host(**options: Any) -> AsyncIterator[tuple[Host, tuple[str, str]]]:
    """Run a host that does jobs; yield it, and the options by which a command finds it."""
    host = Host("render", listen=ANY, slots=4, **options)

    @host.work("shout", concurrency=4)
    async def shout(job: Any) -> bytes:
        await trio.lowlevel.checkpoint()
        if job.payload == b"bad":
            raise JobFailed("a bad word")
        return bytes(job.payload.upper())

    async with host:
        await host.joined(5)
        yield host, ("--dial", host.address)


# ---- submit


@pytest.mark.slow
async def test_the_result_of_a_job_is_written_as_it_is_and_with_json_as_a_line() -> None:
    async with a_host() as (_, there):
        submit = ("submit", "render", *there, "--kind", "shout")
        done = await in_thread(nngkit, *submit, "hello")
        assert (done.returncode, done.stdout, done.stderr) == (0, "HELLO", "")
        done = await in_thread(nngkit, *submit, "hello", "--json", "--key", "k")
        told = valid(done.stdout, "submit.json")
        assert (told["outcome"], told["result"], told["encoding"], told["key"]) == ("result", "HELLO", "utf-8", "aw==")


async def test_a_failed_job_is_a_line_and_exit_code_1() -> None:
    async with a_host() as (_, there):
        submit = ("submit", "render", *there, "--kind", "shout", "bad")
        assert_fails(
            await in_thread(nngkit, *submit), 1, "nngkit submit: job ", "(shout) failed, last at ", "a bad word"
        )
        done = await in_thread(nngkit, *submit, "--json")
        assert done.returncode == 1
        assert valid(done.stdout, "submit.json")["outcome"] == "failed"


async def test_lines_are_jobs_with_results_in_their_order() -> None:
    async with a_host() as (_, there):
        lines = [f"line {number}" for number in range(200)]
        lines[7] = "bad"
        done = await by_lines("submit", "render", *there, "--kind", "shout", "--lines", lines="\n".join(lines).encode())
        assert done.returncode == 1
        assert done.stdout.decode().splitlines() == [line.upper() for line in lines if line != "bad"]
        assert done.stderr.startswith(b"nngkit submit: line 8: job ")
        done = await by_lines("submit", "render", *there, "--kind", "shout", "-", lines=b"a\nb\n")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"A\nB\n", b"")


@pytest.mark.slow
async def test_a_detached_job_goes_on_and_one_that_is_late_is_cancelled() -> None:
    async with a_host() as (host, there):
        submit = ("submit", "render", *there, "--kind", "later", "x")
        done = await in_thread(nngkit, *submit, "--detach", "--json")
        assert (done.returncode, valid(done.stdout, "submit.json")["outcome"]) == (0, "accepted")
        done = await in_thread(nngkit, *submit, "--timeout", "0.2")
        assert_fails(done, 4, "nngkit submit: 1 of 1 jobs have not ended in 0.2 s")
        status = await host.status()
        every = status.jobs[0]
        assert (every.waiting, every.cancelled) == (1, 1)


@pytest.mark.slow
async def test_a_kind_that_no_node_does_is_said() -> None:
    async with a_host() as (host, there):
        with Running("submit", "render", *there, "--kind", "shuot", "x") as submit:
            said = await in_thread(submit.says)
            assert said == "nngkit submit: no node is known to do jobs of the kind 'shuot': they wait"
            host.work("shuot")(lambda job: job.payload)
            assert await in_thread(submit.process.wait, WAIT) == 0
            assert submit.rest() == ("x", "")


@pytest.mark.slow
async def test_an_interrupt_cancels_the_job() -> None:
    async with a_host() as (host, there):
        with Running("submit", "render", *there, "--kind", "later", "x") as submit:
            with trio.fail_after(WAIT):
                while not (await host.status()).jobs[0].waiting:  # noqa: ASYNC110 - the host reports no event
                    await trio.sleep(0.02)
            assert await in_thread(submit.end) == 130
            assert await in_thread(submit.rest) == ("", "")
        every = (await host.status()).jobs[0]
        assert (every.waiting, every.cancelled) == (0, 1)


# ---- cluster


async def test_state_and_tree_do_not_show_the_commands_own_node() -> None:
    async with a_host() as (host, there), Member("render", dial=host.address, id="w1", slots=0) as worker:
        await worker.joined(5)
        done = await in_thread(nngkit, "cluster", "status", "render", *there, "--json")
        state = valid(done.stdout, "cluster-status.json")
        assert (state["host"], state["members"], state["depth"], state["grants"]) == ("host", 2, 1, True)
        done = await in_thread(nngkit, "cluster", "tree", "render", *there)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"host  (host)  {host.address}  4 slots: shout\n└─ w1\n"


async def test_a_drained_node_leaves_and_an_unknown_one_is_an_error() -> None:
    async with a_host() as (host, there), Member("render", dial=host.address, id="w1", slots=0) as worker:
        await worker.joined(5)
        done = await in_thread(nngkit, "cluster", "drain", "render", "w1", *there, "--wait", "5", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert valid(done.stdout, "cluster-drain.json") == {"cluster": "render", "node": "w1", "left": True}
        done = await in_thread(nngkit, "cluster", "drain", "render", "w1", *there)
        assert_fails(done, 1, "nngkit cluster drain: no node 'w1' in the cluster")


async def test_the_only_host_may_be_drained() -> None:
    async with a_host() as (_, there):
        done = await in_thread(nngkit, "cluster", "drain", "render", "host", *there, "--wait", "3")
        assert (done.returncode, done.stdout, done.stderr) == (0, "host has left render\n", "")


def test_a_ticket_is_signed_with_the_token() -> None:
    done = nngkit("cluster", "ticket", "render", "--id", "w1", "--until", "60", "--json", NNGKIT_TOKEN="s3cret")
    told = valid(done.stdout, "cluster-ticket.json")
    ticket = read_ticket("s3cret", told["ticket"])
    assert (ticket.cluster, ticket.id) == ("render", "w1")
    assert 0 < ticket.until - time.time() <= 60
    assert nngkit("cluster", "ticket", "render", "--token", "a").stdout.strip()


@pytest.mark.slow
async def test_a_token_may_be_in_the_address_and_a_ticket_replaces_it() -> None:
    async with a_host(token="s3cret") as (host, there):
        done = await in_thread(nngkit, "cluster", "tree", "render", "--dial", f"{host.address}#token=s3cret")
        assert (done.returncode, done.stderr) == (0, "")
        ticket = issue_ticket("s3cret", "render", until=time.time() + 60)
        done = await in_thread(nngkit, "cluster", "tree", "render", *there, "--ticket", ticket)
        assert (done.returncode, done.stderr) == (0, "")
        wrong = await in_thread(nngkit, "cluster", "tree", "render", *there, "--join-timeout", "2", NNGKIT_TOKEN="x")
        assert_fails(wrong, 1, "nngkit cluster tree: ", "wrong token")


async def test_a_node_that_was_never_let_in_does_not_say_that_it_has_left() -> None:
    async with a_host(token="s3cret") as (_, there):
        for output in ((), ("--json",)):
            with Running("join", "render", *there, "--kind", "x", *output, NNGKIT_TOKEN="wrong") as joined:
                assert "refused this node: wrong token" in await in_thread(joined.says)
                assert await in_thread(joined.end, signal.SIGTERM) == 143
                assert not any("left" in text for text in joined.rest())


async def test_the_live_tree_shows_changes_and_ends_with_the_terminals_ctrl_c() -> None:
    async with a_host() as (host, there):
        watch = ("cluster", "tree", "render", *there, "--watch", "--interval", "0.05")
        with Terminal(*watch, columns=40, rows=8) as terminal:
            await in_thread(terminal.shows, "render  host host of term", "jobs: 0 waiting", "host  (host)  tcp://127.0")
            assert terminal.screen.style(4, 0).bold
            assert all(len(line) <= 40 for line in terminal.screen.text)
            async with Member("render", dial=host.address, id="w1", slots=0) as worker:
                await worker.joined(5)
                await in_thread(terminal.shows, "└─ w1")
            os.kill(terminal.process.pid, signal.SIGINT)
            assert await in_thread(terminal.end) == 130


# ---- join


async def test_join_prints_messages_until_it_is_drained_by_a_signal() -> None:
    async with a_host() as (host, there):
        with Running("join", "render", *there, "--id", "p", "--kind", "chat", "--json") as joined:
            told = valid(await in_thread(joined.line), "cluster-node.json")
            assert (told["event"], told["host"], told["node"]) == ("member", "host", "p")
            await host.send("other", b"unseen")
            await host.send("chat", b"bl\xc3\xa5")
            first = valid(await in_thread(joined.line), "cluster-node.json")
            await host.send("chat", b"\xff", to="p")
            second = valid(await in_thread(joined.line), "cluster-node.json")
            assert (first["event"], first["origin"], first["body"]) == ("message", "host", "bl\u00e5")
            assert (second["body"], second["encoding"], second["direct"]) == ("/w==", "base64", True)
            assert await in_thread(joined.end, signal.SIGTERM) == 143
            assert valid(await in_thread(joined.line), "cluster-node.json")["event"] == "left"


async def test_messages_are_printed_as_they_came() -> None:
    async with a_host() as (host, there):
        with Running("join", "render", *there, "--id", "p") as joined:
            assert (await in_thread(joined.says)).startswith("nngkit join: p follows host, host of term ")
            await host.send("chat", "bl\u00e5".encode())
            assert await in_thread(joined.line) == "bl\u00e5"
            assert await in_thread(joined.end) == 130
            assert (await in_thread(joined.rest))[1] == "nngkit join: p has left the cluster\n"


async def test_a_program_does_jobs_with_their_data_in_its_environment() -> None:
    script = (
        'read word; case $word in no) echo not this >&2; exit 65;; esac; echo "$word $NNGKIT_JOB_KIND $NNGKIT_JOB_TRY"'
    )
    async with a_host() as (host, there):
        with Running("join", "render", *there, "--kind", "say", "--exec", script, "--slots", "2", "--json") as joined:
            assert valid(await in_thread(joined.line), "cluster-node.json")["event"] == "member"
            job = await host.submit("say", b"hello\n")
            assert await job.result(5) == b"hello say 1\n"
            told = valid(await in_thread(joined.line), "cluster-node.json")
            assert (told["event"], told["kind"], told["try"], told["ok"]) == ("job", "say", 1, True)
            refused = await host.submit("say", b"no\n")
            with pytest.raises(JobFailed, match="exit code 65: not this") as failed:
                await refused.result(5)
            assert (failed.value.outcome, failed.value.tries) == ("failed", 1)


@pytest.mark.slow
async def test_a_program_reports_progress_which_renews_its_visibility() -> None:
    script = """
        for part in 0.25 no 0.5 9 0.75; do echo $part > "$NNGKIT_JOB_PROGRESS"; sleep 0.3; done; echo $NNGKIT_JOB_TRY
    """
    async with a_host() as (host, there):
        with Running("join", "render", *there, "--kind", "long", "--exec", script) as joined:
            assert "follows host" in await in_thread(joined.says)
            job = await host.submit("long", b"", visibility=0.8)
            seen = {job.progress}
            while not job.done:
                await trio.sleep(0.02)
                seen.add(job.progress)
            assert await job.result() == b"1\n"
            assert seen == {0.0, 0.25, 0.5, 0.75}


@pytest.mark.slow
async def test_a_failed_program_is_started_again_and_a_cancelled_one_killed(tmp_path: Path) -> None:
    script = f"read what; case $what in sleep) echo $$ > {tmp_path}/pid; sleep 60;; esac; [ $NNGKIT_JOB_TRY = 2 ]"
    async with a_host() as (host, there):
        with Running(
            "join", "render", *there, "--id", "w", "--kind", "try", "--exec", script, "--slots", "2"
        ) as joined:
            assert "follows host" in await in_thread(joined.says)
            job = await host.submit("try", b"once\n")
            assert await job.result(5) == b""
            assert "of 'try' failed: exit code 1" in await in_thread(joined.says)
            job = await host.submit("try", b"sleep\n")
            with trio.fail_after(5):
                await in_thread(eventually, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
                job.cancel()
                with pytest.raises(JobFailed) as failed:
                    await job.result()
                assert failed.value.outcome == "cancelled"
                group = int((tmp_path / "pid").read_text())
                await in_thread(eventually, lambda: not _lives(group))


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


async def test_line_workers_do_many_jobs() -> None:
    script = "while read number; do echo $((number * 2)); done"
    async with a_host() as (host, there):
        with Running(
            "join", "render", *there, "--kind", "twice", "--exec", script, "--lines", "--slots", "2"
        ) as joined:
            await in_thread(joined.says)
            numbers = [str(number).encode() for number in range(300)]
            results = [int(result) async for result in host.map("twice", numbers)]
            assert results == [number * 2 for number in range(300)]
            several = await host.submit("twice", b"1\n2")
            with pytest.raises(JobFailed, match="the program takes lines"):
                await several.result(5)


# ---- usage


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["host", "render"], 2, "the following arguments are required: --listen"),
        (["host", "", "--listen", ANY], 2, "argument CLUSTER: '' is not printable text of 1 to 64 bytes"),
        (["host", "render", "--listen", ANY, "--voter", "a"], 2, "argument --voter: 'a' is not ID=URL"),
        (["host", "render", "--listen", ANY, "--voter", "a=tcp://a:1"], 2, "--id: is required with --voter"),
        (["host", "render", "--listen", ANY, "--id", "b", "--voter", "a=tcp://a:1"], 2, "--voter: 'b' is not among"),
        (["host", "render", "--listen", ANY, "--messages"], 2, "--messages: needs --journal"),
        (["host", "render", "--listen", ANY, "--exec", "cat"], 2, "--exec: needs --kind"),
        (["host", "render", "--listen", "tls+tcp://127.0.0.1:0"], 2, "--cert: a listener over TLS needs it"),
        (["join", "render", "--dial", "here"], 2, "argument --dial: 'here' is not an address"),
        (["join", "render", "--dial", ANY, "--slots", "2"], 2, "--slots: needs --exec"),
        (["join", "render", "--dial", ANY, "--advertise", ANY], 2, "--advertise: needs --listen"),
        (
            ["join", "render", "--dial", "tcp://a:1#token=x", "--token", "y"],
            2,
            "--dial: the token of tcp://a:1 differs",
        ),
        (["submit", "render", "--kind", "x"], 2, "PAYLOAD: give either PAYLOAD"),
        (["submit", "render", "--kind", "x", "--lines", "y"], 2, "PAYLOAD: give either PAYLOAD"),
        (["submit", "render", "--kind", "x", "--priority", "16", "y"], 2, "argument --priority: '16' is not"),
        (["submit", "render", "--kind", "x", "--cert", "f", "y"], 2, "--cert: requires --cert-key"),
        (["cluster", "drian", "render"], 2, "did you mean drain?"),
        (["cluster", "ticket", "render"], 2, "--token: is needed to sign a ticket"),
        (
            ["cluster", "tree", "render", "--dial", "tcp://127.0.0.1:1", "--join-timeout", "0.2"],
            4,
            "tcp://127.0.0.1:1: not connected",
        ),
    ],
)
def test_wrong_usage_is_a_one_line_error(arguments: list[str], code: int, says: str) -> None:
    assert_fails(nngkit(*arguments), code, says)


async def test_an_address_in_use_is_exit_code_3() -> None:
    async with a_host() as (_, there):
        done = await in_thread(nngkit, "host", "render", "--listen", there[1])
        assert_fails(done, 3, "cannot listen: address in use")


# ---- text


def test_a_bar_knows_the_number_of_lines_only_at_their_end() -> None:
    assert bar(1, 4, 0, at_end=False) == "[#####               ] 1 of 4+ done"
    assert bar(4, 4, 2, at_end=True) == "[####################] 4 of 4 done, 2 failed"
    assert bar(0, 0, 0, at_end=False) == "[                    ] 0 of 0+ done"


def test_a_voter_is_an_id_and_an_address() -> None:
    assert voter("a=tcp://a:1") == ("a", "tcp://a:1")


def test_a_failure_ends_with_the_programs_last_words() -> None:
    assert why(Ran(0, stderr=b"chatter")) == ""
    assert why(Ran(3)) == "exit code 3"
    assert why(Ran(-9, stderr=b"x" * 5000 + b"\nend\n")) == "ended by signal 9: " + "x" * 996 + "\nend"


def test_a_coloured_line_is_cut_by_what_is_visible() -> None:
    assert cut("ab\033[1mcd\033[0mef", 3) == "ab\033[1mc\033[0m"
    assert cut("abc", 9) == "abc"


def test_state_and_tree_as_text() -> None:
    status = ClusterStatus(
        "render",
        3,
        "a",
        2,
        1,
        False,
        (VoterState("b", "tcp://b:1", False),),
        (JobCounts("", 5, 2, 9), JobCounts("x", 5)),
    )
    tree = ClusterTree(
        "render", 3, (ClusterMember("a", "", "tcp://a:1", 0), ClusterMember("w", "a", None, 1, 2, ("x",)))
    )
    assert status_lines(status, colour=False) == [
        "render  host a of term 3  2 members, depth 1  grants no work: it has no majority of the voters",
        "",
        "VOTER  ADDRESS    STATE",
        "b      tcp://b:1  away",
        "",
        "JOBS  WAITING  RUNNING  DONE  FAILED  DEAD  CANCELLED",
        "all   5        2        9     0       0     0",
        "x     5        0        0     0       0     0",
    ]
    assert tree_lines(tree, None, colour=False) == ["a  (host)  tcp://a:1", "└─ w  2 slots: x"]
    assert tree_lines(without(tree, "w"), status, colour=True)[1:] == [
        "jobs: 5 waiting, 2 running, 9 done",
        "",
        "\033[1ma  (host)  tcp://a:1\033[0m",
    ]
