"""close() while another thread is inside send or recv may leave that thread hanging for ever, or end the process.

pynng 0.9.0 (NNG 1.11.0). The threads use blocking calls of NNG.
Expected: the calls raise Closed.
Observed: most do. By chance; argument: SECONDS to try for (15).
"""

import contextlib
import os
import random
import threading
import time

import pynng
from _harness import CHILD, child, done, failed, seconds_to_try, url_of


def close_pairs(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        one = pynng.Pair0(listen="tcp://127.0.0.1:0")
        other = pynng.Pair0(dial=url_of(one))

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
            os._exit(3)
        os.write(1, b".")
    os._exit(0)


if CHILD:
    close_pairs(float(CHILD[0]))

seconds = seconds_to_try(15.0)
code, written = child(seconds, seconds=seconds + 15, perturb=True)
ending = {0: "the end", 3: "a thread that hangs", "hang": "hang in close()"}.get(code, code)
done(f"{written.count(b'.')} pairs closed under threads that send and receive, then: {ending}", failed(code))
