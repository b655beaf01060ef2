"""A receive of a TLS stream that is cancelled while data arrives does not end.

pynng 0.9.0 (NNG 1.11.0). Receives are posted, cancelled and waited for, again and again, one or 16 at a time; the peer
sends all the time.
Expected: every receive ends, with data or with NNG_ECANCELED, as on tcp.
Observed: within a few rounds one is still pending after a second, and nng_aio_wait would hang; a second cancel ends it.
By chance; argument: SECONDS to try for, each (2).
"""

import os
import signal
import subprocess
import sys
import threading
import time

from pynng import ffi, lib

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
SCHEME = sys.argv[4] if len(sys.argv) > 4 else "tls+tcp"


def new_aio():
    slot = ffi.new("nng_aio **")
    assert not lib.nng_aio_alloc(slot, ffi.NULL, ffi.NULL)
    return slot[0]


def config(mode):
    slot = ffi.new("nng_tls_config **")
    assert not lib.nng_tls_config_alloc(slot, mode)
    if mode == lib.NNG_TLS_MODE_SERVER:
        assert not lib.nng_tls_config_own_cert(slot[0], CERT, KEY, ffi.NULL)
        assert not lib.nng_tls_config_auth_mode(slot[0], lib.NNG_TLS_AUTH_MODE_NONE)
    else:
        assert not lib.nng_tls_config_ca_chain(slot[0], CERT, ffi.NULL)
        assert not lib.nng_tls_config_server_name(slot[0], b"localhost")
    return slot[0]


def listening():
    """Return a TLS listener and its port."""
    slot, port = ffi.new("nng_stream_listener **"), ffi.new("int *")
    assert not lib.nng_stream_listener_alloc(slot, f"{SCHEME}://127.0.0.1:0".encode())
    assert SCHEME == "tcp" or not lib.nng_stream_listener_set_ptr(
        slot[0], b"tls-config", config(lib.NNG_TLS_MODE_SERVER)
    )
    assert not lib.nng_stream_listener_listen(slot[0])
    assert not lib.nng_stream_listener_get_int(slot[0], b"tcp-bound-port", port)
    return slot[0], port[0]


def stream_of(aio):
    lib.nng_aio_wait(aio)
    assert not lib.nng_aio_result(aio)
    return ffi.cast("nng_stream *", lib.nng_aio_get_output(aio, 0))


def post(call, stream, aio, buffer, size):
    """Post a receive into, or a send from, `buffer`."""
    iov = ffi.new("nng_iov *", {"iov_buf": buffer, "iov_len": size})
    assert not lib.nng_aio_set_iov(aio, 1, iov)
    call(stream, aio)


def connected():
    """Return both ends of a TLS stream."""
    listener, port = listening()
    dialer = ffi.new("nng_stream_dialer **")
    assert not lib.nng_stream_dialer_alloc(dialer, f"{SCHEME}://127.0.0.1:{port}".encode())
    assert SCHEME == "tcp" or not lib.nng_stream_dialer_set_ptr(
        dialer[0], b"tls-config", config(lib.NNG_TLS_MODE_CLIENT)
    )
    accepting, dialing = new_aio(), new_aio()
    lib.nng_stream_listener_accept(listener, accepting)
    lib.nng_stream_dialer_dial(dialer[0], dialing)
    return stream_of(accepting), stream_of(dialing)


if len(sys.argv) > 3 and sys.argv[1] == "child":
    signal.alarm(60)
    server, client = connected()
    data, end = ffi.new("char[]", 20_000), time.monotonic() + float(sys.argv[2])

    def send():
        aio = new_aio()
        while True:
            post(lib.nng_stream_send, client, aio, data, 20_000)
            lib.nng_aio_wait(aio)

    threading.Thread(target=send, daemon=True).start()
    buffers = [ffi.new("char[]", 4096) for _ in range(int(sys.argv[3]))]
    aios = [new_aio() for _ in buffers]
    while time.monotonic() < end:
        for aio, buffer in zip(aios, buffers, strict=True):
            post(lib.nng_stream_recv, server, aio, buffer, 4096)
        for aio in aios:
            lib.nng_aio_cancel(aio)
        deadline = time.monotonic() + 1
        while stuck := [aio for aio in aios if lib.nng_aio_busy(aio)]:
            if time.monotonic() > deadline:
                lib.nng_aio_cancel(stuck[0])
                time.sleep(0.2)
                again = "pending" if lib.nng_aio_busy(stuck[0]) else "over"
                print(f"stuck, {len(stuck)} pending after 1 s; one cancelled again is {again}", flush=True)
                os._exit(3)
            time.sleep(0)
        print("round", flush=True)
    os._exit(0)

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
found = {}
for scheme in ("tls+tcp", "tcp"):
    for count in (1, 16):
        child = [sys.executable, __file__, "child", str(seconds), str(count), scheme]
        output = subprocess.run(child, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode()
        stuck = [line for line in output.splitlines() if line.startswith("stuck")]
        found[scheme, count] = f"{output.count('round')} rounds, then {stuck[0] if stuck else 'the end'}"
print("; ".join(f"{scheme}, {count} at a time: {what}" for (scheme, count), what in found.items()))
sys.exit(0 if "stuck" in found["tls+tcp", 1] + found["tls+tcp", 16] else 1)
