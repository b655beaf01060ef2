"""NNG's counters of messages stay 0 on ws and inproc.

pynng 0.9.0 (NNG 1.11.0). The pipe counters tx_msgs and rx_msgs of `nng_stats_get`.
Expected: they count on every transport.
Observed: they count on tcp, ipc and abstract, and stay 0 on ws and inproc.
"""

import os

import pynng
from _harness import done, messages_read

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
            counted[scheme] = messages_read(2)
found = ", ".join(f"{name} {number}" for name, number in counted.items())
wrong = [name for name, number in counted.items() if number == 0]
done(f"of 10 messages received, counted: {found}", wrong == ["ws", "inproc"])
