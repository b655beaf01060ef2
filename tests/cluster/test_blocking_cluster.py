"""Nodes of a cluster without an event loop: plain functions in worker threads, blocking calls and iterators."""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nngkit import Closed, JobFailed, NotStored, TimedOut
from nngkit.blocking import Host, Member
from nngkit.cluster import ClusterMessage, JobRun
from nngkit.testing import eventually
from tests.cluster.tally import Tally

ANY = "tcp://127.0.0.1:0"
WAIT = 15.0


@contextmanager
def pair() -> Iterator[tuple[Host, Member]]:
    with Host("c", listen=ANY, id="host") as host, Member("c", dial=str(host.address), id="member") as member:
        member.joined(WAIT)
        yield host, member


def test_messages_are_handled_in_worker_threads() -> None:
    heard: queue.Queue[tuple[str, bytes, bool]] = queue.Queue()
    with pair() as (host, member):

        @host.on("chat")
        def listen(message: ClusterMessage) -> None:
            assert threading.current_thread() is not threading.main_thread()
            heard.put((message.origin, message.body, message.direct))

        member.send("chat", b"to all")
        assert heard.get(timeout=WAIT) == ("member", b"to all", False)
        member.send("chat", b"to one", to="host")
        assert heard.get(timeout=WAIT) == ("member", b"to one", True)
        assert member.send_many("chat", [b"x", b"y"]) == 2
        assert [heard.get(timeout=WAIT)[1] for _ in range(2)] == [b"x", b"y"]
        assert (member.role, member.host, member.parent) == ("member", "host", "host")
        assert (host.role, host.holds_lease, member.holds_lease) == ("host", True, False)
        eventually(lambda: [one.id for one in host.tree().members] == ["host", "member"])
        assert member.status().members == 2


def test_jobs_are_done_in_worker_threads() -> None:
    with pair() as (host, member):

        @member.work("double", concurrency=4)
        def double(job: JobRun) -> bytes:
            assert threading.current_thread() is not threading.main_thread()
            job.progress(0.5)
            return job.payload * 2

        @member.work("parts")
        def parts(job: JobRun) -> Iterator[bytes]:
            yield job.payload
            yield b"end"

        @member.work("fail")
        def fail(job: JobRun) -> bytes:
            raise JobFailed("no such scene")

        job = host.submit("double", b"ab")
        assert (job.result(WAIT), job.done) == (b"abab", True)
        assert list(host.submit("parts", b"p", stream=True).parts()) == [b"p", b"end"]
        with pytest.raises(JobFailed, match="no such scene"):
            host.submit("fail", b"").result(WAIT)
        payloads = [b"%d" % number for number in range(100)]
        assert list(host.map("double", payloads)) == [each * 2 for each in payloads]
        assert list(host.map("double", iter(payloads), in_flight=10)) == [each * 2 for each in payloads]


def test_a_wait_for_a_result_ends_at_its_timeout_and_a_job_can_be_cancelled() -> None:
    with pair() as (host, _):
        job = host.submit("nothing", b"")
        with pytest.raises(TimedOut):
            job.result(0.01)
        job.cancel()
        with pytest.raises(JobFailed) as told:
            job.result(WAIT)
        assert told.value.outcome == "cancelled"


def test_an_iterable_that_blocks_does_not_hold_up_the_node() -> None:
    release = threading.Event()

    def payloads() -> Iterator[bytes]:
        yield b"1"
        assert release.wait(WAIT)
        yield b"2"

    with pair() as (host, member):

        @member.work("same")
        def same(job: JobRun) -> bytes:
            return job.payload

        results = host.map("same", payloads(), in_flight=2)
        answers: queue.Queue[bytes] = queue.Queue()

        def read() -> None:
            for each in results:
                answers.put(each)

        reader = threading.Thread(target=read)
        reader.start()
        assert host.submit("same", b"x").result(WAIT) == b"x"
        release.set()
        assert [answers.get(timeout=WAIT), answers.get(timeout=WAIT)] == [b"1", b"2"]
        reader.join(WAIT)


def test_a_closed_node_says_so() -> None:
    with pair() as (_, member):
        job = member.submit("nothing", b"")
    with pytest.raises(Closed):
        job.result(WAIT)
    with pytest.raises(Closed, match="use it in a `with`"):
        member.send("chat", b"")


def test_what_ends_a_node_is_raised_by_its_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fill_the_disk(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    host = Host("c", listen=ANY, id="host", store=tmp_path).__enter__()
    host.joined(WAIT)
    monkeypatch.setattr(os, "fdatasync", fill_the_disk)
    for call in (lambda: host.submit("x", b""), lambda: host.send("x", b""), lambda: host.status(WAIT)):
        with pytest.raises(NotStored, match="No space left on device"):
            call()
    with pytest.raises(NotStored, match="No space left on device"):
        host.close()
    assert caplog.text.count("host: the node has ended") == 1


def test_a_work_function_cannot_drain_its_own_node() -> None:
    with pair() as (host, member):
        beside: list[threading.Thread] = []

        @member.work("x")
        def function(job: JobRun) -> bytes:
            for own in (None, member.id):
                with pytest.raises(RuntimeError, match="its own end"):
                    member.drain(own)
            beside.append(threading.Thread(target=member.drain))
            beside[0].start()
            return b"done"

        assert host.submit("x", b"", tries=1).result(WAIT) == b"done"
        beside[0].join(WAIT)
        assert not beside[0].is_alive()


def test_documents_are_edited_at_both_nodes() -> None:
    with pair() as (host, member):
        ours, theirs = host.document("minutes"), member.document("minutes")
        assert member.document("minutes") is theirs
        ours.text("body").insert(0, "hello")
        theirs.joined(WAIT)
        eventually(lambda: str(theirs.text("body")) == "hello")
        member.request_full_document("minutes")


@pytest.mark.slow
def test_shared_objects_change_in_one_order() -> None:
    with pair() as (host, member):
        here, there = host.share("tally", Tally()), member.share("tally", Tally())
        there.change(b"1", WAIT)
        here.change(b"2", WAIT)
        while len(there.content.numbers) < 2:
            there.wait_for_change()
        assert here.content.numbers == there.content.numbers == [1, 2]
        assert not here.behind
