"""nng_stream_close in a forked child cuts the parent's connection.

pynng 0.9.0 (NNG 1.11.0). It calls shutdown, which works on the connection and not on the descriptor.
Expected: wrappers allow for it: a child must not touch the streams of its parent.
Observed: the other end receives the end of the stream.
"""

import os
import signal
import time

from _harness import connected, done, error_of, new_aio, post
from pynng import ffi, lib

one, other = connected()
aio, buffer = new_aio(), ffi.new("char[]", 100)
post(lib.nng_stream_recv, other, aio, buffer, 100)
if not (forked := os.fork()):
    signal.alarm(3)
    os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
    lib.nng_stream_close(one)
    os._exit(0)
_, status = os.waitpid(forked, 0)
time.sleep(0.2)
pending, result = lib.nng_aio_busy(aio), lib.nng_aio_result(aio)
receive = "pending" if pending else error_of(result)
found = f"child ended with {os.waitstatus_to_exitcode(status)}; the other end's receive: {receive}"
done(found, not pending and result)
