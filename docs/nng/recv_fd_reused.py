"""The descriptor of `recv-fd` belongs to NNG: after a close the number may name another file.

pynng 0.9.0 (NNG 1.11.0). By design; `recv_fd` is meant for event loops, which keep it while they wait.
Expected: known to programs that watch it; a close by another thread makes the number invalid at once.
Observed: the next file that is opened has the number, and a loop would watch that.
"""

import os
import signal

import pynng

signal.alarm(30)  # ends a run that hangs

pair = pynng.Pair0()
watched = pair.recv_fd
pair.close()
other = [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]
print(f"recv_fd was {watched}; after close, 8 files opened have {other}", flush=True)
os._exit(0 if watched in other else 1)  # not sys.exit: NNG's cleanup at exit may hang
