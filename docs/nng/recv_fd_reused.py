"""The descriptor of `recv-fd` belongs to NNG: after a close the number may name another file.

pynng 0.9.0 (NNG 1.11.0). By design; `recv_fd` is meant for event loops, which keep it while they wait.
Expected: known to programs that watch it; a close by another thread makes the number invalid at once.
Observed: the next file that is opened has the number, and a loop would watch that.
"""

import os

import pynng
from _harness import done

pair = pynng.Pair0()
watched = pair.recv_fd
pair.close()
other = [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]
done(f"recv_fd was {watched}; after close, 8 files opened have {other}", watched in other)
