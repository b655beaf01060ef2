"""A Ctrl-C that the kernel gives to one of NNG's threads is noticed only when the main thread's wait ends.

pynng 0.9.0 (NNG 1.11.0). Python runs signal handlers in the main thread, and only the signal itself interrupts that
thread's wait. NNG's threads do not block signals, so the kernel may give it to one of them, most often to one that is
just starting.
Expected: KeyboardInterrupt within milliseconds.
Observed: some programs go on waiting. By chance; argument: SECONDS to try for (15).
"""

import contextlib
import os
import random
import signal
import subprocess
import time

import pynng
from _harness import CHILD, COMMAND, done, seconds_to_try

if CHILD is not None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print("begins", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        pynng.Pair0(listen="tcp://127.0.0.1:0")
        os.read(0, 1)
    os._exit(0)

end, runs, unnoticed = time.monotonic() + seconds_to_try(15.0), 0, 0
while time.monotonic() < end:
    children = [subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(12)]
    for child in children:
        child.stdout.readline()
        time.sleep(random.random() * 0.002)
        child.send_signal(signal.SIGINT)
    for child in children:
        try:
            child.wait(1)
        except subprocess.TimeoutExpired:
            unnoticed += 1
            child.kill()
            child.wait()
        child.stdin.close()
        child.stdout.close()
    runs += len(children)
done(f"{unnoticed} of {runs} programs did not notice Ctrl-C within a second", unnoticed)
