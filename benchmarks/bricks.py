"""One-way receiving and round trips: nngkit's bricks beside bare pynng, in one run.

    python3 dev.py bench bricks [--seconds S] [--rounds N] [--json]

Each measurement is a pair of processes over tcp on the loopback: a sender that saturates (bare pynng, blocking, send
buffer 1024) or a server (each side's own), and the receiver or client that is measured. The ways are taken in turn,
round after round, so that a machine whose speed drifts treats all alike; the medians and the ratios to pynng's own way
are printed. Absolute rates say more about the machine than about the code.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

BODY = b"x" * 16
BOUND = 60  # seconds any child process may take

# name of a way -> (the kind of measurement, the way it is compared with)
WAYS = {
    "receive pynng blocking": ("receive", "receive pynng blocking"),
    "receive nngkit blocking, recv_many": ("receive", "receive pynng blocking"),
    "receive pynng trio": ("receive", "receive pynng trio"),
    "receive nngkit trio, arecv": ("receive", "receive pynng trio"),
    "receive nngkit trio, arecv_many": ("receive", "receive pynng trio"),
    "receive pynng asyncio": ("receive", "receive pynng asyncio"),
    "receive nngkit asyncio, arecv": ("receive", "receive pynng asyncio"),
    "round trip pynng blocking": ("round trip", "round trip pynng blocking"),
    "round trip nngkit blocking": ("round trip", "round trip pynng blocking"),
    "round trip pynng trio": ("round trip", "round trip pynng trio"),
    "round trip nngkit trio": ("round trip", "round trip pynng trio"),
}


def timed(take: Callable[[], int], seconds: float) -> float:
    """Units a second that ``take`` moves, after a quarter of a second of running in."""
    end = time.perf_counter() + 0.25
    while time.perf_counter() < end:
        take()
    start, count = time.perf_counter(), 0
    while (now := time.perf_counter()) < start + seconds:
        count += take()
    return count / (now - start)


async def timed_async(take: Callable[[], Awaitable[int]], seconds: float) -> float:
    end = time.perf_counter() + 0.25
    while time.perf_counter() < end:
        await take()
    start, count = time.perf_counter(), 0
    while (now := time.perf_counter()) < start + seconds:
        count += await take()
    return count / (now - start)


def run_in(loop: str, work: Callable[[], Awaitable[float]]) -> float:
    if loop == "asyncio":
        return asyncio.run(work())  # type: ignore[arg-type]
    import trio

    return trio.run(work)


def receive(way: str, seconds: float, announce: Callable[[str], None]) -> float:
    loop = "asyncio" if "asyncio" in way else "trio"
    if "pynng" in way:
        import pynng

        with pynng.Pull0(listen="tcp://127.0.0.1:0", recv_max_size=1 << 20) as bare:
            announce(bare.listeners[0].url)
            if "blocking" in way:
                return timed(lambda: len(bare.recv()) // len(BODY), seconds)

            async def one() -> int:
                return len(await bare.arecv()) // len(BODY)

            return run_in(loop, lambda: timed_async(one, seconds))
    from nngkit.protocols import Pull

    with Pull(listen="tcp://127.0.0.1:0") as pull:
        announce(pull.address)
        if "blocking" in way:
            return timed(lambda: len(pull.recv_many()), seconds)

        async def each() -> int:
            return len(await pull.arecv()) // len(BODY)

        async def many() -> int:
            return len(await pull.arecv_many())

        return run_in(loop, lambda: timed_async(many if "many" in way else each, seconds))


def round_trip(way: str, seconds: float, announce: Callable[[str], None], url: str) -> float:
    if "pynng" in way:
        import pynng

        with pynng.Req0(dial=url) as bare:

            def ask() -> int:
                bare.send(BODY)
                return len(bare.recv()) // len(BODY)

            async def aask() -> int:
                await bare.asend(BODY)
                return len(await bare.arecv()) // len(BODY)

            return timed(ask, seconds) if "blocking" in way else run_in("trio", lambda: timed_async(aask, seconds))
    from nngkit.protocols import Req

    with Req(dial=url) as req:

        async def request() -> int:
            return len(await req.arequest(BODY)) // len(BODY)

        if "blocking" in way:
            return timed(lambda: len(req.request(BODY)) // len(BODY), seconds)
        return run_in("trio", lambda: timed_async(request, seconds))


def child(role: str, way: str, seconds: float, url: str) -> None:
    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    import pynng

    if role == "send":
        push = pynng.Push0(send_buffer_size=1024, dial=url)
        while True:
            push.send(BODY)
    elif role == "serve":
        # one server for both sides, so that only the client differs: bare, blocking, the fastest pynng has
        rep = pynng.Rep0(listen="tcp://127.0.0.1:0", recv_max_size=1 << 20)
        say(rep.listeners[0].url)
        while True:
            rep.send(rep.recv())
    elif WAYS[way][0] == "receive":
        say(str(receive(way, seconds, say)))
    else:
        say(str(round_trip(way, seconds, say, url)))
    sys.stdout.flush()
    os._exit(0)  # bare pynng may hang at exit with a peer that still sends


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, "--child", *arguments], stdout=subprocess.PIPE, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise SystemExit(f"a measuring process ended early with exit {process.wait(BOUND)}")
    return line


def measure(way: str, seconds: float) -> float:
    kind = WAYS[way][0]
    if kind == "receive":
        measured = start("measure", way, str(seconds), "")
        other = start("send", way, str(seconds), line_of(measured))
    else:
        other = start("serve", way, str(seconds), "")
        measured = start("measure", way, str(seconds), line_of(other))
    try:
        return float(line_of(measured))
    finally:
        for process in (measured, other):
            process.kill()
            process.wait(BOUND)
            assert process.stdout is not None
            process.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench bricks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="rounds over all ways")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    options = parser.parse_args()
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    total = options.rounds * len(WAYS)
    for number in range(total):
        way = list(WAYS)[number % len(WAYS)]
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K[{number + 1}/{total}] {way}")
        rates[way].append(measure(way, options.seconds))
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    rows: list[dict[str, Any]] = []
    for way, (_, base) in WAYS.items():
        ratio = statistics.median(a / b for a, b in zip(rates[way], rates[base], strict=True))
        rows.append({"way": way, "per_second": statistics.median(rates[way]), "against": base, "ratio": ratio})
    load = os.getloadavg()[0]
    if options.json:
        sys.stdout.write(json.dumps({"load": load, "rounds": options.rounds, "rows": rows}) + "\n")
        return
    sys.stdout.write(f"16 bytes over tcp, {options.rounds} rounds of {options.seconds} s, load average {load:.1f}\n")
    for row in rows:
        sys.stdout.write(f"{row['way']:38}{row['per_second']:>12,.0f}/s{row['ratio']:>8.2f}x\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], float(sys.argv[4]), sys.argv[5])
    else:
        main()
