"""TLSConfig(auth_mode=AUTH_MODE_NONE) keeps NNG's default, under which a client demands a certificate.

pynng 0.9.0 (NNG 1.11.0). AUTH_MODE_NONE is 0, and pynng checks `if auth_mode`. `set_auth_mode` works.
Expected: a client without a CA connects.
Observed: with the argument it does not, with the call it does.
"""

import os
import signal

import pynng
from pynng import TLSConfig

signal.alarm(30)  # ends a run that hangs
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

server = TLSConfig(TLSConfig.MODE_SERVER, own_cert_string=CERT, own_key_string=KEY)
by_argument = TLSConfig(TLSConfig.MODE_CLIENT, auth_mode=TLSConfig.AUTH_MODE_NONE)
by_call = TLSConfig(TLSConfig.MODE_CLIENT)
by_call.set_auth_mode(TLSConfig.AUTH_MODE_NONE)
outcome = []
with pynng.Pair0(tls_config=server, recv_timeout=1000) as one:
    one.listen("tls+tcp://127.0.0.1:0")
    for config in (by_argument, by_call):
        with pynng.Pair0(tls_config=config, send_timeout=1000) as other:
            other.dial(f"tls+tcp://{one.listeners[0].local_address}", block=False)
            try:
                other.send(b"hello")
                outcome.append(one.recv() == b"hello")
            except pynng.Timeout:
                outcome.append(False)
print(f"connected: by argument {outcome[0]}, by set_auth_mode {outcome[1]}", flush=True)
os._exit(0 if outcome == [False, True] else 1)  # not sys.exit: NNG's cleanup at exit may hang
