"""A pending accept of a stream ends with an error when the process has no descriptors left.

pynng 0.9.0 (NNG 1.11.0). By design; a listener that does not post again accepts nothing more, ever.
Expected: wrappers allow for it; NNG's own listeners try again later.
Observed: result 21 (NNG_ENOFILES); a second accept, posted once there are descriptors, gets the same connection.
"""

import contextlib
import os
import resource
import socket

from _harness import done, listener_at, new_aio
from pynng import lib

listener, url = listener_at()
client = socket.socket()
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
kept = []
with contextlib.suppress(OSError):
    while True:
        kept.append(os.open("/dev/null", os.O_RDONLY))
aio, results = new_aio(), []
lib.nng_stream_listener_accept(listener, aio)
client.connect(("127.0.0.1", int(url.rpartition(":")[2])))
lib.nng_aio_wait(aio)
results.append(lib.nng_aio_result(aio))
for descriptor in kept:
    os.close(descriptor)
lib.nng_stream_listener_accept(listener, aio)
lib.nng_aio_wait(aio)
results.append(lib.nng_aio_result(aio))
found = f"accept without descriptors: {results[0]}; posted again with some: {results[1]}"
done(found, results == [lib.NNG_ENOFILES, 0])
