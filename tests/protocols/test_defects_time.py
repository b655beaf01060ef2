"""Defects of bare pynng (0.9, NNG 1.11) that the bricks must not have, one test each: time, and the end.

Where it can be shown safely, the same is done first on pynng itself, in a process of its own; the day one of those
assertions fails, NNG or pynng has mended it. Closing while
others wait is in test_close_stress.py.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.protocols.wires import WAIT, run_python, said

# ---- time ------------------------------------------------------------------------------------------------------------


# Load takes CPU from a thread that goes round in circles until a time is over, and adds to what work costs: so the best
# of many windows is what each would cost alone, the most of NNG's timer and the least of ours.
STEPS = """\
import os, time

def windows(step, seconds=4.0):
    "CPU per ``step`` in microseconds, all threads, in each of the windows of 25 steps that there is time for."
    step()
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end or len(found) < 10:
        cpu = time.process_time()
        for _ in range(25):
            step()
        found.append((time.process_time() - cpu) / 25 * 1e6)
    return found
"""


@pytest.mark.slow
def test_a_timer_of_nngs_keeps_a_cpu_busy_and_a_batch_waits_without_one() -> None:
    bare = float(
        said(
            STEPS
            + textwrap.dedent("""
                from pynng import ffi, lib

                slot = ffi.new("nng_aio **")
                assert not lib.nng_aio_alloc(slot, ffi.NULL, ffi.NULL)

                def wait():
                    lib.nng_sleep_aio(2, slot[0])
                    lib.nng_aio_wait(slot[0])

                print(max(windows(wait)), flush=True)
                lib.nng_aio_free(slot[0])
                os._exit(0)  # NNG's own end may hang, which is not what is shown here
            """)
        )
    )
    ours = float(
        said(
            STEPS
            + textwrap.dedent("""
                from nngkit.protocols import Batch, Pull, Push

                with Pull(listen="tcp://127.0.0.1:0", batch=True) as pull:
                    with Push(dial=pull.address, batch=Batch(delay=0.002)) as push:
                        def wait():
                            push.send(b"x")
                            pull.recv(timeout=20)

                        print(min(windows(wait)))
            """)
        )
    )
    # ours does more: a message goes through a batch, the network and a ring each time
    print(f"CPU, us: {bare:.0f} for one timer of bare NNG's, {ours:.0f} for one of ours, with a message")  # noqa: T201
    assert ours < bare


# ---- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waiting", ["nobody waits", "a thread waits", "a task waits"])
def test_an_interpreter_that_exits_with_sockets_open_may_hang(waiting: str) -> None:
    # on pynng alone it does one time in three, for as long as one waits
    program = """
        import sys, threading, trio
        from nngkit.errors import Closed
        from nngkit.protocols import *

        kept = []
        for one, other in ((Pair0, Pair0), (Pair1, Pair1), (Push, Pull), (Rep, Req), (Bus, Bus), (Pub, Sub),
                           (Surveyor, Respondent)):
            for url in ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/brick"):
                listener = one(listen=url)
                dialler = other(dial=listener.address)
                listener.wait_for_peers(1, 20)
                kept += [listener, dialler]

        def wait():
            try:
                kept[0].recv()
            except Closed:
                pass

        async def task():
            try:
                await kept[0].arecv()
            except Closed:
                pass

        if sys.argv[1] == "a thread waits":
            threading.Thread(target=wait, daemon=True).start()
        elif sys.argv[1] == "a task waits":
            threading.Thread(target=trio.run, args=(task,), daemon=True).start()
        kept[4].send(b"nobody reads this")
        print("over")
    """
    done = run_python(program, waiting, timeout=WAIT)
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr
