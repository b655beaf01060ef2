"""Over tls+tcp a PUSH writes two TLS records a message, and may leave without close_notify.

pynng 0.9.0 (NNG 1.11.0). The header of 8 bytes is sent separately. Each record costs the receiver a receive of its own.
Expected: one record for a small message, and close_notify at the end.
Observed: the sizes of the records below, as OpenSSL receives them.
"""

import os
import signal
import socket
import ssl
import struct
import tempfile

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

with tempfile.NamedTemporaryFile() as pem:
    pem.write(CERT + KEY)
    pem.flush()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem.name)
server = socket.create_server(("127.0.0.1", 0))
config = TLSConfig(TLSConfig.MODE_CLIENT, ca_string=CERT, server_name="localhost")
with pynng.Push0(tls_config=config, send_buffer_size=10) as push:
    push.dial(f"tls+tcp://127.0.0.1:{server.getsockname()[1]}", block=False)
    for _ in range(3):
        push.send(b"x" * 16)
    pull = context.wrap_socket(server.accept()[0], server_side=True, suppress_ragged_eofs=False)
    pull.sendall(struct.pack(">4sHH", b"\0SP\0", 81, 0))
    hello = len(pull.recv(1 << 16))
    sizes = []
    while sum(sizes) < 3 * (8 + 16):
        sizes.append(len(pull.recv(1 << 16)))
try:
    ending = f"close_notify ({pull.recv(1)!r})"
except ssl.SSLEOFError:
    ending = "no close_notify"
print(f"hello {hello}, then 3 messages of 16 bytes in records of {sizes}; at the end {ending}", flush=True)
os._exit(0 if len(sizes) == 6 else 1)  # not sys.exit: NNG's cleanup at exit may hang
