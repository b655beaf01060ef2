"""close() while another thread is inside send or recv may leave that thread hanging for ever, or end the process.

pynng 0.9.0 (NNG 1.11.0). The threads use blocking calls of NNG.
Expected: the calls raise Closed.
Observed: most do. By chance; argument: SECONDS to try for (15).
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
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        one = pynng.Pair0(listen="tcp://127.0.0.1:0")
        other = pynng.Pair0(dial=f"tcp://{one.listeners[0].local_address}")

        def use(call):
            with contextlib.suppress(pynng.NNGException):
                while True:
                    call()

        calls = [one.recv, other.recv, lambda one=one: one.send(b"x"), lambda other=other: other.send(b"x")]
        threads = [threading.Thread(target=use, args=(call,), daemon=True) for call in calls]
        for thread in threads:
            thread.start()
        time.sleep(random.random() * 0.01)
        one.close()
        other.close()
        for thread in threads:
            thread.join(5)
        if any(thread.is_alive() for thread in threads):
            print(f"{count} hang", flush=True)
            os._exit(3)
        count += 1
        print(count, flush=True)
    os._exit(0)


if len(sys.argv) > 1 and sys.argv[1] == "child":
    signal.alarm(120)
    child(float(sys.argv[2]))

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
command = [sys.executable, __file__, "child", str(seconds)]
environment = {**os.environ, "MALLOC_PERTURB_": "165"}
try:
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, timeout=seconds + 15
    )
    code, lines = done.returncode, done.stdout.decode().splitlines()
except subprocess.TimeoutExpired as expired:
    code, lines = "hang in close()", (expired.stdout or b"").decode().splitlines()
ending = {0: "the end", 3: "a thread that hangs"}.get(code, code)
print(f"{lines[-1].split()[0] if lines else 0} pairs closed under threads that send and receive, then: {ending}")
sys.exit(0 if code else 1)
