"""Long and large jobs, each in a process of its own so that its memory can be measured; run by test_soak and by hand.

    python soaking.py messages 10000000      10 million messages: growth of resident memory
    python soaking.py sockets 2000           sockets opened and closed: file descriptors and memory
    python soaking.py gibibyte               one message of 1 GiB each way: peak memory
    python soaking.py respondents URL N      N respondents that reply until standard input ends

Each of the first three prints one JSON object.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import threading
import time

import trio

from nngkit.errors import Closed
from nngkit.protocols import UNLIMITED, Bus, Pair0, Pair1, Pub, Pull, Push, Rep, Req, Respondent, Sub, Surveyor

MIB = 1 << 20


def resident() -> int:
    """Return the current resident memory in bytes."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def peak() -> int:
    """Return the peak resident memory in bytes, since the start or the last forget_peak()."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def messages(count: int) -> dict[str, float]:
    """Send ``count`` messages of 16 bytes through one PUSH and one PULL over tcp."""
    batch = [b"x" * 16] * 500
    with Push(listen="tcp://127.0.0.1:0") as push, Pull(dial=push.address) as pull:

        def produce(total: int) -> None:
            for _ in range(total // len(batch)):
                push.send_many(batch, timeout=60)

        def consume(total: int) -> None:
            got = 0
            while got < total:
                got += len(pull.recv_many(1000, timeout=60))

        def move(total: int) -> None:
            producer = threading.Thread(target=produce, args=(total,))
            producer.start()
            consume(total)
            producer.join()

        move(100_000)  # allocated once
        gc.collect()
        before = resident()
        start = time.perf_counter()
        move(count)
        seconds = time.perf_counter() - start
        gc.collect()
        return {"messages": count, "grown_bytes": resident() - before, "per_second": count / seconds}


def sockets(count: int) -> dict[str, float]:
    """Open and close ``count`` sockets of all kinds, connected in pairs."""
    kinds = [(Push, Pull), (Pub, Sub), (Rep, Req), (Surveyor, Respondent), (Bus, Bus), (Pair1, Pair1)]

    def cycle(total: int) -> None:
        for number in range(total // 2):
            listener, dialer = kinds[number % len(kinds)]
            with listener(listen="tcp://127.0.0.1:0") as one, dialer(dial=one.address) as other:
                other.wait_for_peers(1, timeout=10)

    cycle(48)
    gc.collect()
    before, memory = descriptors(), resident()
    start = time.perf_counter()
    cycle(count)
    seconds = time.perf_counter() - start
    gc.collect()
    deadline = time.monotonic() + 10
    while descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.01)  # the last are closed on other threads
    return {
        "sockets": count,
        "descriptors_left": descriptors() - before,
        "grown_bytes": resident() - memory,
        "per_second": count / seconds,
    }


def gibibyte() -> dict[str, float]:
    """Send a message of 1 GiB to the other end and one back, in one process, so that both ends' memory counts.

    PAIR0, which has no header: the sent body is not copied, and the other end receives it in place. A header costs one
    copy at each end for the time in which it is added and removed.
    """
    size = 1 << 30
    result: dict[str, float] = {"bytes": size}
    with (
        Pair0(listen="tcp://127.0.0.1:0", recv_max_size=UNLIMITED) as one,
        Pair0(dial=one.address, recv_max_size=UNLIMITED) as other,
    ):
        other.wait_for_peers(1, timeout=10)
        one.wait_for_peers(1, timeout=10)
        for name, sender, receiver in (("there", one, other), ("back", other, one)):
            body = bytes([7]) * size
            before = resident()
            forget_peak()
            start = time.perf_counter()
            sender.send(body, timeout=120)
            got = receiver.recv(timeout=120)
            result[f"seconds_{name}"] = time.perf_counter() - start
            result[f"peak_over_body_{name}"] = (peak() - before) / size
            result[f"same_{name}"] = got == body
            del body, got
    return result


def respondents(url: str, count: int) -> None:
    """Reply to every survey from ``count`` sockets until standard input ends."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)

    async def answer(respondent: Respondent, number: int) -> None:
        async for query in respondent:
            try:
                await query.areply(query.body + b" %d" % number)
            except Closed:
                return

    async def run() -> None:
        everyone = [Respondent(dial=url, recv_buffer=4, linger=0.0) for _ in range(count)]
        async with trio.open_nursery() as nursery:
            for number, respondent in enumerate(everyone):
                nursery.start_soon(answer, respondent, number)
            await trio.to_thread.run_sync(sys.stdin.read)
            for respondent in everyone:
                respondent.close()

    trio.run(run)


if __name__ == "__main__":
    job, *arguments = sys.argv[1:]
    if job == "messages":
        sys.stdout.write(json.dumps(messages(int(arguments[0]))) + "\n")
    elif job == "sockets":
        sys.stdout.write(json.dumps(sockets(int(arguments[0]))) + "\n")
    elif job == "gibibyte":
        sys.stdout.write(json.dumps(gibibyte()) + "\n")
    else:
        respondents(arguments[0], int(arguments[1]))
