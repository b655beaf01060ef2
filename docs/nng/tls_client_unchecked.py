"""A TLS listener with a CA lets in clients without a certificate.

pynng 0.9.0 (NNG 1.11.0). The server's default is NNG_TLS_AUTH_MODE_NONE.
Expected: a server that was given a CA asks for a certificate.
Observed: the client's message is received; `tls-verified` of its pipe is false.
"""

import contextlib

import pynng
from _harness import CERT, KEY, done, url_of
from pynng import TLSConfig, ffi, lib

server = TLSConfig(TLSConfig.MODE_SERVER, own_cert_string=CERT, own_key_string=KEY, ca_string=CERT)
client = TLSConfig(TLSConfig.MODE_CLIENT, ca_string=CERT, server_name="localhost")
received, verified = None, ffi.new("bool *")
with pynng.Pair0(tls_config=server, recv_timeout=2000) as one:
    one.listen("tls+tcp://127.0.0.1:0")
    with pynng.Pair0(tls_config=client) as other:
        other.dial(f"tls+{url_of(one)}", block=False)
        other.send(b"hello")
        with contextlib.suppress(pynng.Timeout):
            message = one.recv_msg()
            received = message.bytes
            lib.nng_pipe_get_bool(message.pipe.pipe, b"tls-verified", verified)
done(f"from a client without a certificate: {received!r}, tls-verified {bool(verified[0])}", received)
