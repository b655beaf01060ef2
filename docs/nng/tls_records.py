"""Over tls+tcp a PUSH writes two TLS records a message, and may leave without close_notify.

pynng 0.9.0 (NNG 1.11.0). The header of 8 bytes is sent separately. Each record costs the receiver a receive of its own.
Expected: one record for a small message, and close_notify at the end.
Observed: the sizes of the records below, as OpenSSL receives them.
"""

import socket
import ssl
import tempfile

import pynng
from _harness import CERT, KEY, done, hello
from pynng import TLSConfig

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
    pull.sendall(hello(81))
    size = len(pull.recv(1 << 16))
    sizes = []
    while sum(sizes) < 3 * (8 + 16):
        sizes.append(len(pull.recv(1 << 16)))
try:
    ending = f"close_notify ({pull.recv(1)!r})"
except ssl.SSLEOFError:
    ending = "no close_notify"
done(f"hello {size}, then 3 messages of 16 bytes in records of {sizes}; at the end {ending}", len(sizes) == 6)
