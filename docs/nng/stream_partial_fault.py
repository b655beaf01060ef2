"""A buffer that is unmapped while its send is pending aborts the process.

pynng 0.9.0 (NNG 1.11.0). The kernel reports EFAULT, for which NNG has no code of its own. What happens here to unmapped
memory happens to any buffer that is freed before its operation ends, less visibly: NNG sends its later content.
Expected: an error, as the aio's result.
Observed: see the line that is printed.
"""

import ctypes
import os
import subprocess
import time

from _harness import CHILD, child, connected, done, error_of, failed, new_aio, post
from pynng import ffi, lib

SIZE = 64 << 20  # more than the system's buffers of a connection hold

if CHILD is not None:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    memory = libc.mmap(None, SIZE, 3, 0x22, -1, 0)  # anonymous and private, to read and write
    one, other = connected()
    sending, receiving, buffer = new_aio(), new_aio(), ffi.new("char[]", 1 << 20)
    count = SIZE
    while count == SIZE or not lib.nng_aio_busy(sending):  # sends are partial: until one is pending
        post(lib.nng_stream_send, one, sending, ffi.cast("char *", memory), SIZE)
        time.sleep(0.1)
        count = lib.nng_aio_count(sending)
    libc.munmap(memory, SIZE)
    while lib.nng_aio_busy(sending):
        post(lib.nng_stream_recv, other, receiving, buffer, 1 << 20)
        lib.nng_aio_wait(receiving)
    print(error_of(lib.nng_aio_result(sending)), flush=True)
    os._exit(0)

code, written = child(stderr=subprocess.STDOUT)
lines = written.decode().strip().splitlines() or [""]
done(f"exit code {code}: {lines[0]}", failed(code))
