"""A buffer that is unmapped while its send is pending aborts the process.

pynng 0.9.0 (NNG 1.11.0). The kernel reports EFAULT, for which NNG has no code of its own. What happens here to unmapped
memory happens to any buffer that is freed before its operation ends, less visibly: NNG sends its later content.
Expected: an error, as the aio's result.
Observed: see the line that is printed.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time

from pynng import ffi, lib

signal.alarm(30)  # ends a run that hangs
SIZE = 64 << 20  # more than the system's buffers of a connection hold


def new_aio():
    slot = ffi.new("nng_aio **")
    assert not lib.nng_aio_alloc(slot, ffi.NULL, ffi.NULL)
    return slot[0]


def connected(url="tcp://127.0.0.1:0"):
    """Return both ends of a stream."""
    slot, port = ffi.new("nng_stream_listener **"), ffi.new("int *")
    assert not lib.nng_stream_listener_alloc(slot, url.encode())
    assert not lib.nng_stream_listener_listen(slot[0])
    if url.endswith(":0"):
        assert not lib.nng_stream_listener_get_int(slot[0], b"tcp-bound-port", port)
        url = url[:-1] + str(port[0])
    dialer = ffi.new("nng_stream_dialer **")
    assert not lib.nng_stream_dialer_alloc(dialer, url.encode())
    accepting, dialing = new_aio(), new_aio()
    lib.nng_stream_listener_accept(slot[0], accepting)
    lib.nng_stream_dialer_dial(dialer[0], dialing)
    streams = []
    for aio in (accepting, dialing):
        lib.nng_aio_wait(aio)
        assert not lib.nng_aio_result(aio)
        streams.append(ffi.cast("nng_stream *", lib.nng_aio_get_output(aio, 0)))
    return streams


def post(call, stream, aio, buffer, size):
    """Post a receive into, or a send from, `buffer`."""
    iov = ffi.new("nng_iov *", {"iov_buf": buffer, "iov_len": size})
    assert not lib.nng_aio_set_iov(aio, 1, iov)
    call(stream, aio)


if len(sys.argv) > 1 and sys.argv[1] == "child":
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
    print(ffi.string(lib.nng_strerror(lib.nng_aio_result(sending))).decode(), flush=True)
    os._exit(0)

done = subprocess.run([sys.executable, __file__, "child"], check=False, capture_output=True, text=True)
lines = (done.stdout + done.stderr).strip().splitlines() or [""]
print(f"exit code {done.returncode}: {lines[0]}")
sys.exit(0 if done.returncode < 0 else 1)
