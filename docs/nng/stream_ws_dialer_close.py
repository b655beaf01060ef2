"""A ws stream dialer that is closed while dialing hangs or ends the process.

pynng 0.9.0 (NNG 1.11.0). A dial is posted, and the dialer is closed a moment later.
Expected: the dial ends with an error.
Observed: it never ends, or the process ends by a signal. By chance; argument: SECONDS to try for (8).
"""

import os
import random
import signal
import subprocess
import sys
import time

from pynng import ffi, lib


def new_aio():
    slot = ffi.new("nng_aio **")
    assert not lib.nng_aio_alloc(slot, ffi.NULL, ffi.NULL)
    return slot[0]


def child(seconds, url):
    end, chance, port = time.monotonic() + seconds, random.Random(), ffi.new("int *")
    listener = ffi.new("nng_stream_listener **")
    assert not lib.nng_stream_listener_alloc(listener, url.encode())
    assert not lib.nng_stream_listener_listen(listener[0])
    assert not lib.nng_stream_listener_get_int(listener[0], b"tcp-bound-port", port)
    while time.monotonic() < end:
        dialer, accepting, dialing = ffi.new("nng_stream_dialer **"), new_aio(), new_aio()
        assert not lib.nng_stream_dialer_alloc(dialer, url.replace(":0", f":{port[0]}").encode())
        lib.nng_stream_listener_accept(listener[0], accepting)
        lib.nng_stream_dialer_dial(dialer[0], dialing)
        time.sleep(chance.random() * 0.001)
        lib.nng_stream_dialer_close(dialer[0])
        deadline = time.monotonic() + 2
        while lib.nng_aio_busy(dialing):
            if time.monotonic() > deadline:
                os._exit(3)
            time.sleep(0.0001)
        lib.nng_aio_wait(dialing)
        lib.nng_stream_dialer_free(dialer[0])
        lib.nng_aio_cancel(accepting)
        lib.nng_aio_wait(accepting)
        for aio in (accepting, dialing):
            if not lib.nng_aio_result(aio):
                stream = ffi.cast("nng_stream *", lib.nng_aio_get_output(aio, 0))
                lib.nng_stream_close(stream)
                lib.nng_stream_free(stream)
            lib.nng_aio_free(aio)
        os.write(1, b".")
    os._exit(0)


if len(sys.argv) > 2 and sys.argv[1] == "child":
    signal.alarm(60)
    child(float(sys.argv[2]), sys.argv[3])

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 8.0
found = {}
for url in ("ws://127.0.0.1:0/x", "tcp://127.0.0.1:0"):
    try:
        done = subprocess.run(
            [sys.executable, __file__, "child", str(seconds / 2), url],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds / 2 + 5,
        )
        code, count = done.returncode, len(done.stdout)
    except subprocess.TimeoutExpired as expired:
        code, count = "hang", len(expired.stdout or b"")
    found[url[: url.index(":")]] = f"{count} dialers closed, then " + {0: "the end", 3: "a dial that never ends"}.get(
        code, f"exit code {code}" if code != "hang" else code
    )
print("; ".join(f"{scheme}: {what}" for scheme, what in found.items()))
sys.exit(0 if not found["ws"].endswith("the end") else 1)
