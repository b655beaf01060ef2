"""A PUSH whose peer closes the connection at once crashes: use after free of a young pipe (NNG issue 1653).

pynng 0.9.0 (NNG 1.11.0). PUSH puts a connection in its list of ready peers after the first receive on it was posted; if
that fails at once, because the peer has closed, the connection is freed and still in the list.
Expected: the PUSH dials again.
Observed: its process ends by a signal, or hangs. By chance; argument: SECONDS to try for (15).
"""

import os
import signal
import subprocess
import sys
import time

import pynng

if len(sys.argv) > 1 and sys.argv[1] == "child":
    signal.alarm(120)
    sockets = [pynng.Push0() for _ in range(8)]
    for push in sockets:
        push.reconnect_time_min = push.reconnect_time_max = 5
        push.dial(sys.argv[2], block=False)
    time.sleep(float(sys.argv[3]))
    os._exit(0)

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
signal.alarm(int(seconds) + 30)  # ends a run that hangs
refused = 0


def refuse(pipe):
    global refused
    refused += 1
    pipe.close()


with pynng.Pull0() as pull:
    pull.add_pre_pipe_connect_cb(refuse)
    pull.listen("tcp://127.0.0.1:0")
    start = time.monotonic()
    command = [sys.executable, __file__, "child", f"tcp://{pull.listeners[0].local_address}", str(seconds)]
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        outcome = child.wait(seconds + 10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        outcome = "hang"
    took = time.monotonic() - start
print(f"PUSH refused {refused} times in {took:.1f} s: exit code {outcome}", flush=True)
os._exit(0 if outcome != 0 else 1)  # not sys.exit: NNG's cleanup at exit may hang
