"""`tls-verified` of a TLS stream is true before its handshake.

pynng 0.9.0 (NNG 1.11.0). A dial completes when TCP has connected; the handshake takes place with the first send or
receive.
Expected: false until the certificate was checked.
Observed: true for a peer that has not sent any TLS.
"""

import socket

from _harness import dialed, dialer_to, done
from pynng import ffi, lib

silent = socket.create_server(("127.0.0.1", 0))
stream, verified = dialed(dialer_to(f"tls+tcp://127.0.0.1:{silent.getsockname()[1]}")), ffi.new("bool *")
result = lib.nng_stream_get_bool(stream, b"tls-verified", verified)
found = f"connected to a silent TCP peer: result {result}, tls-verified {bool(verified[0])}"
done(found, result == 0 and verified[0])
