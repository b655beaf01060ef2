"""Tests of a worker: over inproc, with no sleep. The page docs/testing-your-code.md includes the sections."""

# --8<-- [start:thread]
import trio

from nngkit.protocols import Pull, Push
from nngkit.testing import Background, aeventually, eventually


def worker(pull: Pull, done: list[bytes]) -> None:
    for job in pull:  # ends when the socket is closed
        result = job.upper()
        done.append(result)


def test_worker_handles_every_job() -> None:
    done: list[bytes] = []
    with Pull(listen="inproc://jobs") as pull, Push(dial=pull.address) as push:
        running = Background(worker, pull, done)
        push.send_many([b"a", b"b"])
        eventually(lambda: len(done) == 2, timeout=5)
    running.result()  # raises what the worker raised
    assert done == [b"A", b"B"]


# --8<-- [end:thread]
test_worker_handles_every_job()
print("passed")  # passed


# --8<-- [start:task]
async def test_every_job_is_written() -> None:
    async with Pull(listen="inproc://jobs") as pull, Push(dial=pull.address) as push:
        await push.asend_many([b"a", b"b"])
        await aeventually(lambda: push.stats.written == 2, timeout=5)
        assert [await pull.arecv(timeout=5) for _ in range(2)] == [b"a", b"b"]


# --8<-- [end:task]
trio.run(test_every_job_is_written)
print("passed")  # passed
