"""Closing a socket that dials wss just when a try to connect ends may end the process, or hang.

pynng 0.9.0 (NNG 1.11.0). The address has no listener, so each try fails at once and the next begins.
Expected: the socket closes.
Observed: the process ends by a signal. By chance; argument: SECONDS to try for (15).
"""

import os
import random
import socket
import subprocess
import sys
import time

import pynng
from pynng import TLSConfig


def child(seconds, scheme):
    end, chance = time.monotonic() + seconds, random.Random()
    with socket.create_server(("127.0.0.1", 0)) as server:
        refused = server.getsockname()[1]
    config = TLSConfig(TLSConfig.MODE_CLIENT)
    while time.monotonic() < end:
        sockets = [pynng.Pull0(tls_config=config) for _ in range(4)]
        for pull in sockets:
            pull.reconnect_time_min = pull.reconnect_time_max = 1
            pull.dial(f"{scheme}://127.0.0.1:{refused}/x", block=False)
        time.sleep(0.002 + chance.random() * 0.003)
        for pull in sockets:
            pull.close()
        os.write(1, b"....")
    os._exit(0)


if len(sys.argv) > 2 and sys.argv[1] == "child":
    child(float(sys.argv[2]), sys.argv[3])

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
codes = {}
for scheme in ("wss", "ws"):
    try:
        done = subprocess.run(
            [sys.executable, __file__, "child", str(seconds / 2), scheme],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "MALLOC_PERTURB_": "165"},
            timeout=seconds / 2 + 5,
        )
        codes[scheme] = f"{len(done.stdout)} sockets closed, exit code {done.returncode}"
    except subprocess.TimeoutExpired as expired:
        codes[scheme] = f"{len(expired.stdout or b'')} sockets closed, then a hang"
print("; ".join(f"{scheme}: {what}" for scheme, what in codes.items()))
sys.exit(0 if any("exit code 0" not in what for what in codes.values()) else 1)
