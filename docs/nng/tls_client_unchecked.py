"""A TLS listener with a CA lets in clients without a certificate.

pynng 0.9.0 (NNG 1.11.0). The server's default is NNG_TLS_AUTH_MODE_NONE.
Expected: a server that was given a CA asks for a certificate.
Observed: the client's message is received; `tls-verified` of its pipe is false.
"""

import contextlib
import os
import signal

import pynng
from pynng import TLSConfig, ffi, lib

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

server = TLSConfig(TLSConfig.MODE_SERVER, own_cert_string=CERT, own_key_string=KEY, ca_string=CERT)
client = TLSConfig(TLSConfig.MODE_CLIENT, ca_string=CERT, server_name="localhost")
received, verified = None, ffi.new("bool *")
with pynng.Pair0(tls_config=server, recv_timeout=2000) as one:
    one.listen("tls+tcp://127.0.0.1:0")
    with pynng.Pair0(tls_config=client) as other:
        other.dial(f"tls+tcp://{one.listeners[0].local_address}", block=False)
        other.send(b"hello")
        with contextlib.suppress(pynng.Timeout):
            message = one.recv_msg()
            received = message.bytes
            lib.nng_pipe_get_bool(message.pipe.pipe, b"tls-verified", verified)
print(f"from a client without a certificate: {received!r}, tls-verified {bool(verified[0])}", flush=True)
os._exit(0 if received else 1)  # not sys.exit: NNG's cleanup at exit may hang
