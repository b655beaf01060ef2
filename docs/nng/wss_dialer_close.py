"""Closing a socket that dials wss just when a try to connect ends may end the process, or hang.

pynng 0.9.0 (NNG 1.11.0). The address has no listener, so each try fails at once and the next begins.
Expected: the socket closes.
Observed: the process ends by a signal. By chance; argument: SECONDS to try for (15).
"""

import os
import random
import socket
import time

import pynng
from _harness import CHILD, child, done, failed, seconds_to_try
from pynng import TLSConfig


def close_dialers(seconds, scheme):
    end = time.monotonic() + seconds
    with socket.create_server(("127.0.0.1", 0)) as server:
        refused = server.getsockname()[1]
    config = TLSConfig(TLSConfig.MODE_CLIENT)
    while time.monotonic() < end:
        sockets = [pynng.Pull0(tls_config=config) for _ in range(4)]
        for pull in sockets:
            pull.reconnect_time_min = pull.reconnect_time_max = 1
            pull.dial(f"{scheme}://127.0.0.1:{refused}/x", block=False)
        time.sleep(0.002 + random.random() * 0.003)
        for pull in sockets:
            pull.close()
        os.write(1, b"....")
    os._exit(0)


if CHILD:
    close_dialers(float(CHILD[0]), CHILD[1])

seconds = seconds_to_try(15.0)
codes, found = [], []
for scheme in ("wss", "ws"):
    code, written = child(seconds / 2, scheme, seconds=seconds / 2 + 5, perturb=True)
    codes.append(code)
    found.append(f"{scheme}: {len(written)} sockets closed, exit code {code}")
done("; ".join(found), any(map(failed, codes)))
