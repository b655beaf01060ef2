"""A send on a TLS stream takes the first buffer only, and 16 KiB of it at most.

pynng 0.9.0 (NNG 1.11.0). By design: a send of a stream may be partial. On tcp the same send takes all buffers.
Expected: wrappers allow for it: look at nng_aio_count.
Observed: the counts below.
"""

import os
import signal

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


def listening():
    """Return a TLS listener and its port."""
    slot, port = ffi.new("nng_stream_listener **"), ffi.new("int *")
    assert not lib.nng_stream_listener_alloc(slot, b"tls+tcp://127.0.0.1:0")
    assert not lib.nng_stream_listener_set_ptr(slot[0], b"tls-config", config(lib.NNG_TLS_MODE_SERVER))
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
    assert not lib.nng_stream_dialer_alloc(dialer, f"tls+tcp://127.0.0.1:{port}".encode())
    assert not lib.nng_stream_dialer_set_ptr(dialer[0], b"tls-config", config(lib.NNG_TLS_MODE_CLIENT))
    accepting, dialing = new_aio(), new_aio()
    lib.nng_stream_listener_accept(listener, accepting)
    lib.nng_stream_dialer_dial(dialer[0], dialing)
    return stream_of(accepting), stream_of(dialing)


server, client = connected()
receiving, sending, buffer, data = new_aio(), new_aio(), ffi.new("char[]", 100), ffi.new("char[]", 100_000)
post(lib.nng_stream_recv, server, receiving, buffer, 100)
counts = {}
for sizes in ((8, 1000), (100_000,)):
    iov = ffi.new("nng_iov[]", [{"iov_buf": data, "iov_len": size} for size in sizes])
    assert not lib.nng_aio_set_iov(sending, len(sizes), iov)
    lib.nng_stream_send(client, sending)
    lib.nng_aio_wait(sending)
    counts[sizes] = lib.nng_aio_count(sending)
print("; ".join(f"buffers of {sizes} bytes: {count} sent" for sizes, count in counts.items()), flush=True)
os._exit(0 if counts[(8, 1000)] == 8 and counts[(100_000,)] < 100_000 else 1)  # not sys.exit: that may hang
