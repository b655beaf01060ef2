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
import signal
import subprocess
import sys
import threading
import time

import pynng


def child(seconds):
    end = time.monotonic() + seconds
    push = pynng.Push0(listen="tcp://127.0.0.1:0", send_buffer_size=100)
    url = f"tcp://{push.listeners[0].local_address}"

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
            print("gone", flush=True)

    threading.Thread(target=send, daemon=True).start()
    peers = [threading.Thread(target=come_and_go, args=(seed,), daemon=True) for seed in range(3)]
    for peer in peers:
        peer.start()
    for peer in peers:
        peer.join(seconds + 5)
    os._exit(0)


if len(sys.argv) > 1 and sys.argv[1] == "child":
    signal.alarm(120)
    child(float(sys.argv[2]))

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
start = time.monotonic()
done = subprocess.run(
    [sys.executable, __file__, "child", str(seconds)],
    check=False,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    env={**os.environ, "MALLOC_PERTURB_": "165"},
)
took = time.monotonic() - start
print(f"{done.stdout.count(b'gone')} peers left in {took:.1f} s: exit code {done.returncode}")
sys.exit(0 if done.returncode < 0 else 1)
