"""A listener that is closed while a connection is being made may leak its descriptor.

pynng 0.9.0 (NNG 1.11.0). A listener closes as soon as its dialer reports a connection.
Expected: as many descriptors as before.
Observed: more, for the life of the process. By chance; argument: SECONDS to try for (10).
"""

import os
import time

import pynng
from _harness import done, seconds_to_try, url_of


def cycle():
    listener, dialer = pynng.Pair1(listen="tcp://127.0.0.1:0"), pynng.Pair1()
    dialer.dial(url_of(listener), block=True)
    dialer.close()
    listener.close()


def descriptors():
    """Count open descriptors, once the number has not fallen for a second: NNG closes some later."""
    last, since = len(os.listdir("/proc/self/fd")), time.monotonic()
    while time.monotonic() - since < 1:
        time.sleep(0.01)
        if (now := len(os.listdir("/proc/self/fd"))) < last:
            last, since = now, time.monotonic()
    return last


for _ in range(20):  # descriptors that are opened once
    cycle()
before, count, end = descriptors(), 0, time.monotonic() + seconds_to_try(10.0)
while time.monotonic() < end:
    cycle()
    count += 1
left = descriptors() - before
done(f"{left} descriptors left after {count} cycles", left > 0)
