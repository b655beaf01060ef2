"""A ws stream dialer that is closed while dialing hangs or ends the process.

pynng 0.9.0 (NNG 1.11.0). A dial is posted, and the dialer is closed a moment later.
Expected: the dial ends with an error.
Observed: it never ends, or the process ends by a signal. By chance; argument: SECONDS to try for (8).
"""

import os
import random
import time

from _harness import CHILD, child, dialer_to, done, failed, listener_at, new_aio, seconds_to_try, stream_of
from pynng import lib


def close_dialers(seconds, url):
    end = time.monotonic() + seconds
    listener, url = listener_at(url)
    while time.monotonic() < end:
        dialer, accepting, dialing = dialer_to(url), new_aio(), new_aio()
        lib.nng_stream_listener_accept(listener, accepting)
        lib.nng_stream_dialer_dial(dialer, dialing)
        time.sleep(random.random() * 0.001)
        lib.nng_stream_dialer_close(dialer)
        deadline = time.monotonic() + 2
        while lib.nng_aio_busy(dialing):
            if time.monotonic() > deadline:
                os._exit(3)
            time.sleep(0.0001)
        lib.nng_aio_wait(dialing)
        lib.nng_stream_dialer_free(dialer)
        lib.nng_aio_cancel(accepting)
        lib.nng_aio_wait(accepting)
        for aio in (accepting, dialing):
            if not lib.nng_aio_result(aio):
                stream = stream_of(aio)
                lib.nng_stream_close(stream)
                lib.nng_stream_free(stream)
            lib.nng_aio_free(aio)
        os.write(1, b".")
    os._exit(0)


if CHILD:
    close_dialers(float(CHILD[0]), CHILD[1])

seconds = seconds_to_try(8.0)
codes, found = {}, []
for url in ("ws://127.0.0.1:0/x", "tcp://127.0.0.1:0"):
    scheme = url.partition(":")[0]
    codes[scheme], written = child(seconds / 2, url, seconds=seconds / 2 + 5)
    ending = {0: "the end", 3: "a dial that never ends"}.get(codes[scheme], f"exit code {codes[scheme]}")
    found.append(f"{scheme}: {len(written)} dialers closed, then {ending}")
done("; ".join(found), failed(codes["ws"]))
