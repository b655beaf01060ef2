"""After a receive was cancelled, a TLS stream delivers nothing more.

pynng 0.9.0 (NNG 1.11.0). No data is there when a receive is posted and cancelled; it ends. Then another one is posted,
and the peer sends.
Expected: the second receive brings the data, as on tcp.
Observed: it is still pending a second later.
"""

import os
import signal
import time

from pynng import ffi, lib

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


def listening(scheme):
    """Return a TLS listener and its port."""
    slot, port = ffi.new("nng_stream_listener **"), ffi.new("int *")
    assert not lib.nng_stream_listener_alloc(slot, f"{scheme}://127.0.0.1:0".encode())
    assert scheme == "tcp" or not lib.nng_stream_listener_set_ptr(
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


def connected(scheme):
    """Return both ends of a TLS stream."""
    listener, port = listening(scheme)
    dialer = ffi.new("nng_stream_dialer **")
    assert not lib.nng_stream_dialer_alloc(dialer, f"{scheme}://127.0.0.1:{port}".encode())
    assert scheme == "tcp" or not lib.nng_stream_dialer_set_ptr(
        dialer[0], b"tls-config", config(lib.NNG_TLS_MODE_CLIENT)
    )
    accepting, dialing = new_aio(), new_aio()
    lib.nng_stream_listener_accept(listener, accepting)
    lib.nng_stream_dialer_dial(dialer[0], dialing)
    return stream_of(accepting), stream_of(dialing)


def rounds(scheme):
    """Return after how many of 50 rounds the stream delivered nothing, and the result of the cancelled receive."""
    server, client = connected(scheme)
    buffer, data = ffi.new("char[]", 100), ffi.new("char[]", 1)
    receiving, sending, cancelled = new_aio(), new_aio(), new_aio()
    post(lib.nng_stream_recv, server, receiving, buffer, 100)
    post(lib.nng_stream_send, client, sending, data, 1)
    lib.nng_aio_wait(receiving)  # the handshake is over
    for number in range(50):
        time.sleep(0.01)
        post(lib.nng_stream_recv, server, cancelled, buffer, 100)
        lib.nng_aio_cancel(cancelled)
        lib.nng_aio_wait(cancelled)
        post(lib.nng_stream_recv, server, receiving, buffer, 100)
        post(lib.nng_stream_send, client, sending, data, 1)
        deadline = time.monotonic() + 1
        while lib.nng_aio_busy(receiving):
            if time.monotonic() > deadline:
                return number
            time.sleep(0.001)
    return 50


found = {scheme: rounds(scheme) for scheme in ("tls+tcp", "tcp")}
print(
    "rounds until nothing was received: " + ", ".join(f"{scheme} {number} of 50" for scheme, number in found.items()),
    flush=True,
)
os._exit(0 if found["tls+tcp"] < 50 == found["tcp"] else 1)  # not sys.exit: NNG's cleanup at exit may hang
