"""Closing a wss listener may end the process, also one that never had a connection.

pynng 0.9.0 (NNG 1.11.0). NNG frees the HTTP server behind it while that is still at work.
Expected: opening and closing may be repeated.
Observed: the process ends by a signal. By chance, sooner beside busy processes, which the script starts; argument:
SECONDS to try for (15).
"""

import os
import signal
import subprocess
import sys

import pynng
from _harness import CERT, CHILD, KEY, child, done, failed, seconds_to_try
from pynng import TLSConfig

if CHILD:
    signal.alarm(int(float(CHILD[0])))
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    config = TLSConfig(TLSConfig.MODE_SERVER, own_cert_string=CERT, own_key_string=KEY)
    while True:
        with pynng.Pull0(tls_config=config) as pull:
            pull.listen("wss://127.0.0.1:0/x")
        os.write(1, b".")

seconds = seconds_to_try(15.0)
busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
try:
    code, written = child(seconds, seconds=seconds + 15)
finally:
    for process in busy:
        process.kill()
        process.wait()
done(f"{len(written)} listeners opened and closed: exit code {code}", failed(code))
