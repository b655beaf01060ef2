"""A PUSH whose peer closes the connection at once crashes: use after free of a young pipe (NNG issue 1653).

pynng 0.9.0 (NNG 1.11.0). PUSH puts a connection in its list of ready peers after the first receive on it was posted; if
that fails at once, because the peer has closed, the connection is freed and still in the list.
Expected: the PUSH dials again.
Observed: its process ends by a signal, or hangs. By chance; argument: SECONDS to try for (15).
"""

import os
import time

import pynng
from _harness import CHILD, child, done, failed, seconds_to_try, url_of

if CHILD:
    sockets = [pynng.Push0() for _ in range(8)]
    for push in sockets:
        push.reconnect_time_min = push.reconnect_time_max = 5
        push.dial(CHILD[0], block=False)
    time.sleep(float(CHILD[1]))
    os._exit(0)

seconds, refused = seconds_to_try(15.0), 0


def refuse(pipe):
    global refused
    refused += 1
    pipe.close()


with pynng.Pull0() as pull:
    pull.add_pre_pipe_connect_cb(refuse)
    pull.listen("tcp://127.0.0.1:0")
    start = time.monotonic()
    code, _ = child(url_of(pull), seconds, seconds=seconds + 10)
    took = time.monotonic() - start
done(f"PUSH refused {refused} times in {took:.1f} s: exit code {code}", failed(code))
