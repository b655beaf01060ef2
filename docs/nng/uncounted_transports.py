"""NNG's counters of messages stay 0 on ws and inproc.

pynng 0.9.0 (NNG 1.11.0). The pipe counters tx_msgs and rx_msgs of `nng_stats_get`.
Expected: they count on every transport.
Observed: they count on tcp, ipc and abstract, and stay 0 on ws and inproc.
"""

import os
import signal

import pynng
from pynng import ffi, lib

signal.alarm(30)  # ends a run that hangs


def messages_read():
    """Return the sum of NNG's counters of received messages over all pipes."""
    slot = ffi.new("nng_stat **")
    lib.nng_stats_get(slot)
    scope, found = lib.nng_stat_child(slot[0]), 0
    while scope:
        if ffi.string(lib.nng_stat_name(scope)) == b"pipe":
            leaf = lib.nng_stat_child(scope)
            while leaf:
                if ffi.string(lib.nng_stat_name(leaf)) == b"rx_msgs":
                    found += lib.nng_stat_value(leaf)
                leaf = lib.nng_stat_next(leaf)
        scope = lib.nng_stat_next(scope)
    lib.nng_stats_free(slot[0])
    return found


counted = {}
unique = f"nng-{os.getpid()}"
for url in ("tcp://127.0.0.1:0", f"ipc:///tmp/{unique}", f"abstract://{unique}", "ws://127.0.0.1:0/x", "inproc://x"):
    with pynng.Pair0(listen=url, recv_timeout=5000) as one:
        scheme = url.split(":")[0]
        if url.endswith((":0", ":0/x")):
            url = f"{scheme}://{one.listeners[0].local_address}" + ("/x" if scheme == "ws" else "")
        with pynng.Pair0(dial=url) as other:
            for _ in range(10):
                other.send(b"x")
                one.recv()
            counted[scheme] = messages_read()
print("of 10 messages received, counted: " + ", ".join(f"{name} {n}" for name, n in counted.items()), flush=True)
wrong = [name for name, number in counted.items() if number == 0]
os._exit(0 if wrong == ["ws", "inproc"] else 1)  # not sys.exit: NNG's cleanup at exit may hang
