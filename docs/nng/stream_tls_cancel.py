"""A receive of a TLS stream that is cancelled while data arrives does not end.

pynng 0.9.0 (NNG 1.11.0). Receives are posted, cancelled and waited for, again and again, one or 16 at a time; the peer
sends all the time.
Expected: every receive ends, with data or with NNG_ECANCELED, as on tcp.
Observed: within a few rounds one is still pending after a second, and nng_aio_wait would hang; a second cancel ends it.
By chance; argument: SECONDS to try for, each (2).
"""

import os
import threading
import time

from _harness import CHILD, child, connected, done, new_aio, post, seconds_to_try
from pynng import ffi, lib

if CHILD:
    server, client = connected(f"{CHILD[2]}://127.0.0.1:0")
    data, end = ffi.new("char[]", 20_000), time.monotonic() + float(CHILD[0])

    def send():
        aio = new_aio()
        while True:
            post(lib.nng_stream_send, client, aio, data, 20_000)
            lib.nng_aio_wait(aio)

    threading.Thread(target=send, daemon=True).start()
    buffers = [ffi.new("char[]", 4096) for _ in range(int(CHILD[1]))]
    aios = [new_aio() for _ in buffers]
    while time.monotonic() < end:
        for aio, buffer in zip(aios, buffers, strict=True):
            post(lib.nng_stream_recv, server, aio, buffer, 4096)
        for aio in aios:
            lib.nng_aio_cancel(aio)
        deadline = time.monotonic() + 1
        while stuck := [aio for aio in aios if lib.nng_aio_busy(aio)]:
            if time.monotonic() > deadline:
                lib.nng_aio_cancel(stuck[0])
                time.sleep(0.2)
                again = "pending" if lib.nng_aio_busy(stuck[0]) else "over"
                print(f"stuck, {len(stuck)} pending after 1 s; one cancelled again is {again}", flush=True)
                os._exit(3)
            time.sleep(0)
        print("round", flush=True)
    os._exit(0)

seconds = seconds_to_try(2.0)
found = {}
for scheme in ("tls+tcp", "tcp"):
    for count in (1, 16):
        written = child(seconds, count, scheme, seconds=seconds + 10)[1].decode()
        stuck = [line for line in written.splitlines() if line.startswith("stuck")]
        found[scheme, count] = f"{written.count('round')} rounds, then {stuck[0] if stuck else 'the end'}"
done(
    "; ".join(f"{scheme}, {count} at a time: {what}" for (scheme, count), what in found.items()),
    "stuck" in found["tls+tcp", 1] + found["tls+tcp", 16],
)
