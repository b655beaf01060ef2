"""A PUSH crashes when a peer leaves just while a send to it completes: use after free of a closed pipe.

pynng 0.9.0 (NNG 1.11.0). push0_send_cb calls push0_pipe_ready, which puts the connection in the list of ready peers
without checking whether push0_pipe_close has removed it already. It is freed while it is listed, and the next nng_send
takes it from there (push0_sock_send, nni_list_remove). A fix in C: `closed` in struct push0_pipe, set under the lock
in push0_pipe_close, checked in push0_pipe_ready.
Expected: peers come and go.
Observed: the process ends by a signal, sooner with MALLOC_PERTURB_, which the child is given. By chance; argument:
SECONDS to try for (15).
"""

import contextlib
import os
import random
import threading
import time

import pynng
from _harness import CHILD, child, done, failed, seconds_to_try, url_of


def push_to_guests(seconds):
    end = time.monotonic() + seconds
    push = pynng.Push0(listen="tcp://127.0.0.1:0", send_buffer_size=100)
    url = url_of(push)

    def send():
        while True:
            with contextlib.suppress(pynng.TryAgain):
                push.send(b"x" * 100, block=False)
            time.sleep(0)

    def come_and_go(seed):
        chance = random.Random(seed)
        while time.monotonic() < end:
            with pynng.Pull0(dial=url, block_on_dial=True, recv_timeout=1000) as pull:
                time.sleep(0.03)
                with contextlib.suppress(pynng.Timeout):
                    for _ in range(chance.randrange(1, 20)):
                        pull.recv()
            os.write(1, b".")

    threading.Thread(target=send, daemon=True).start()
    peers = [threading.Thread(target=come_and_go, args=(seed,), daemon=True) for seed in range(3)]
    for peer in peers:
        peer.start()
    for peer in peers:
        peer.join(seconds + 5)
    os._exit(0)


if CHILD:
    push_to_guests(float(CHILD[0]))

seconds, start = seconds_to_try(15.0), time.monotonic()
code, written = child(seconds, seconds=seconds + 15, perturb=True)
took = time.monotonic() - start
done(f"{len(written)} peers left in {took:.1f} s: exit code {code}", failed(code))
