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
from pynng import TLSConfig

CERT = b"""-----BEGIN CERTIFICATE-----
MIIBQjCB6KADAgECAgEBMAoGCCqGSM49BAMCMBQxEjAQBgNVBAMMCWxvY2FsaG9z
dDAgFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowFDESMBAGA1UEAwwJ
bG9jYWxob3N0MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEX9i/luoxFlzP8A3D
NdH/T/CtSpxBoca7YPPIB5eowAZ48ceEEkRbthvCDW3RGhWpCuoXOTViAx7LB9rG
QzgwOKMpMCcwFAYDVR0RBA0wC4IJbG9jYWxob3N0MA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDSQAwRgIhAPDyqZygulxbztUlUbXOekXcAwwLVMRkLUFqSliD
6sprAiEA7VjvhWt7rKXhpYKvzSsjWlgznguxz1YhVL158GyB220=
-----END CERTIFICATE-----
"""
KEY = b"""-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQghiZm+UPh+0MjyaV/
RiDyBOH6iToV1c4PwV95Slb8hBWhRANCAARf2L+W6jEWXM/wDcM10f9P8K1KnEGh
xrtg88gHl6jABnjxx4QSRFu2G8INbdEaFakK6hc5NWIDHssH2sZDODA4
-----END PRIVATE KEY-----
"""  # of no use anywhere else


def child(seconds):
    signal.alarm(int(seconds))
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    config = TLSConfig(TLSConfig.MODE_SERVER, own_cert_string=CERT, own_key_string=KEY)
    while True:
        with pynng.Pull0(tls_config=config) as pull:
            pull.listen("wss://127.0.0.1:0/x")
        os.write(1, b".")


if len(sys.argv) > 1 and sys.argv[1] == "child":
    child(float(sys.argv[2]))

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
try:
    done = subprocess.run(
        [sys.executable, __file__, "child", str(seconds)],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=seconds + 15,
    )
    code, count = done.returncode, len(done.stdout)
except subprocess.TimeoutExpired as expired:
    code, count = "hang", len(expired.stdout or b"")
finally:
    for process in busy:
        process.kill()
        process.wait()
print(f"{count} listeners opened and closed: exit code {code}")
sys.exit(0 if code else 1)
