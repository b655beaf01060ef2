"""Common to the scripts of this folder, each of which shows a finding about NNG or pynng (docs/nng.md).

It needs only pynng, and bounds every script in time. A script that makes a process crash or hang does so in children:
itself, run again with "child" and arguments, which are then in `CHILD`.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import pynng
from pynng import ffi, lib

COMMAND = [sys.executable, sys.argv[0], "child"]
CHILD = sys.argv[2:] if sys.argv[1:2] == ["child"] else None
signal.alarm(30 if CHILD is None else 120)  # ends a run that hangs

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


def done(line, reproduced):
    """Print the result and exit."""
    print(line, flush=True)
    os._exit(0 if reproduced else 1)  # not sys.exit: NNG's cleanup at exit may hang


def seconds_to_try(default):
    """Return the script's argument SECONDS."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else default
    signal.alarm(int(seconds) + 30)
    return seconds


def child(*arguments, seconds=20.0, perturb=False, stderr=subprocess.DEVNULL):
    """Run a child; return its exit code, or "hang" if it takes longer, and what it has written.

    `perturb`: freed memory is overwritten, so that its use shows.
    """
    environment = {**os.environ, "MALLOC_PERTURB_": "165"} if perturb else None
    command = [*COMMAND, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, env=environment)
    try:
        written, _ = process.communicate(timeout=seconds)
        return process.returncode, written
    except subprocess.TimeoutExpired:
        process.kill()
        return "hang", process.communicate()[0]


def failed(code):
    """Return whether a child crashed, hung or said so, rather than ended well or by an exception of Python."""
    return code not in (0, 1)


def race(attempt, threads):
    """Repeat an attempt in threads of children until one crashes or the time, the argument SECONDS (60), is up.

    `attempt`: called with an aio of its thread.
    """
    if CHILD:
        end = time.monotonic() + float(CHILD[0])

        def repeat():
            aio = new_aio()
            while time.monotonic() < end:
                attempt(aio)

        several = [threading.Thread(target=repeat) for _ in range(threads)]
        for thread in several:
            thread.start()
        for thread in several:
            thread.join()
        os._exit(0)
    end = time.monotonic() + seconds_to_try(60.0)
    runs = code = 0
    while not code and (left := end - time.monotonic()) > 0:
        runs += 1
        code, _ = child(min(5.0, left), perturb=True)
    done(f"runs: {runs}; the last one ended with {code}", failed(code))


def in_own_host(setup):
    """Run the script again on a host of its own, made by these commands; it needs `unshare`, `ip` and `mount`."""
    if "inside" not in sys.argv:
        inside = ["sh", "-c", f'{setup} && exec "$@"', "sh", sys.executable, sys.argv[0], "inside"]
        os.execvp("unshare", ["unshare", "-r", "-n", "-m", *inside])


def with_silent_dns():
    """Go to a host whose DNS server does not answer; return the socket of that server."""
    if "inside" not in sys.argv:
        with tempfile.NamedTemporaryFile("w", delete=False) as configuration:
            configuration.write("nameserver 127.0.0.9\n")
        mount = f"mount --bind {configuration.name} /etc/resolv.conf; rm -f {configuration.name}"
        in_own_host(f"ip link set lo up && {mount}")
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind(("127.0.0.9", 53))
    return silent


# ---- sockets and their peers -----------------------------------------------------------------------------------------


def url_of(sock):
    return f"tcp://{sock.listeners[0].local_address}"


def port_of(sock):
    return int(str(sock.listeners[0].local_address).split(":")[1])


def peer_of(sock):
    """Return an event that is set once a peer can be sent to, which connects from now on.

    pynng lists it in `pipes` before NNG's protocol has it: what is sent then goes nowhere.
    """
    started = threading.Event()
    sock.add_post_pipe_connect_cb(lambda pipe: started.set())
    return started


def hello(protocol):
    return struct.pack(">4sHH", b"\0SP\0", protocol, 0)


def framed(body):
    return struct.pack(">Q", len(body)) + body


def request(number, body=b"question"):
    return framed(struct.pack(">I", 0x80000000 + number) + body)


def stranger(sock, protocol, receive_buffer=None):
    """Return a plain TCP connection to a socket, for which it is a peer with the protocol of that number."""
    connection, started = socket.socket(), peer_of(sock)
    if receive_buffer is not None:  # before it connects: otherwise it grows with the system's
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect(("127.0.0.1", port_of(sock)))
    greet(connection, protocol)
    started.wait()
    return connection


def greet(connection, protocol):
    """Exchange hellos."""
    connection.sendall(hello(protocol))
    assert len(connection.recv(8, socket.MSG_WAITALL)) == 8


def message_from(connection):
    (size,) = struct.unpack(">Q", connection.recv(8, socket.MSG_WAITALL))
    return connection.recv(size, socket.MSG_WAITALL)


def attempt(call, *arguments, **options):
    """Return the result of a call, or pynng's exception."""
    try:
        return call(*arguments, **options)
    except pynng.NNGException as error:
        return error


def received_by(sock):
    """Return the messages that a socket receives, and last the exception that ends it."""
    received = []
    while not received or not isinstance(received[-1], pynng.NNGException):
        received.append(attempt(sock.recv))
    return received


def messages_read(pipes):
    """Return the sum of NNG's counters of received messages over all pipes, once it counts for so many.

    A pipe may carry messages before NNG's thread has registered its counters.
    """
    end = time.monotonic() + 5
    while (found := _counted())[0] < pipes and time.monotonic() < end:
        time.sleep(0.01)
    return found[1]


def _counted():
    slot = ffi.new("nng_stat **")
    lib.nng_stats_get(slot)
    scope, pipes, found = lib.nng_stat_child(slot[0]), 0, 0
    while scope:
        if ffi.string(lib.nng_stat_name(scope)) == b"pipe":
            pipes += 1
            leaf = lib.nng_stat_child(scope)
            while leaf:
                if ffi.string(lib.nng_stat_name(leaf)) == b"rx_msgs":
                    found += lib.nng_stat_value(leaf)
                leaf = lib.nng_stat_next(leaf)
        scope = lib.nng_stat_next(scope)
    lib.nng_stats_free(slot[0])
    return pipes, found


# ---- byte streams ----------------------------------------------------------------------------------------------------


def error_of(code):
    return ffi.string(lib.nng_strerror(code)).decode()


def new_aio(callback=ffi.NULL, argument=ffi.NULL):
    slot = ffi.new("nng_aio **")
    assert not lib.nng_aio_alloc(slot, callback, argument)
    return slot[0]


def tls_config(mode):
    slot = ffi.new("nng_tls_config **")
    assert not lib.nng_tls_config_alloc(slot, mode)
    if mode == lib.NNG_TLS_MODE_SERVER:
        assert not lib.nng_tls_config_own_cert(slot[0], CERT, KEY, ffi.NULL)
        assert not lib.nng_tls_config_auth_mode(slot[0], lib.NNG_TLS_AUTH_MODE_NONE)
    else:
        assert not lib.nng_tls_config_ca_chain(slot[0], CERT, ffi.NULL)
        assert not lib.nng_tls_config_server_name(slot[0], b"localhost")
    return slot[0]


def listener_at(url="tcp://127.0.0.1:0"):
    """Return a stream listener, and its URL with the port that it has got."""
    slot, port = ffi.new("nng_stream_listener **"), ffi.new("int *")
    assert not lib.nng_stream_listener_alloc(slot, url.encode())
    if url.startswith("tls"):
        config = tls_config(lib.NNG_TLS_MODE_SERVER)
        assert not lib.nng_stream_listener_set_ptr(slot[0], b"tls-config", config)
    assert not lib.nng_stream_listener_listen(slot[0])
    if ":0" in url:
        assert not lib.nng_stream_listener_get_int(slot[0], b"tcp-bound-port", port)
        url = url.replace(":0", f":{port[0]}")
    return slot[0], url


def dialer_to(url):
    slot = ffi.new("nng_stream_dialer **")
    assert not lib.nng_stream_dialer_alloc(slot, url.encode())
    if url.startswith("tls"):
        assert not lib.nng_stream_dialer_set_ptr(slot[0], b"tls-config", tls_config(lib.NNG_TLS_MODE_CLIENT))
    return slot[0]


def stream_of(aio):
    """Return the stream of an accept or a dial, once it has ended."""
    lib.nng_aio_wait(aio)
    assert not lib.nng_aio_result(aio)
    return ffi.cast("nng_stream *", lib.nng_aio_get_output(aio, 0))


def dialed(dialer):
    """Dial, and return the stream."""
    aio = new_aio()
    lib.nng_stream_dialer_dial(dialer, aio)
    return stream_of(aio)


def connected(url="tcp://127.0.0.1:0", dialer=dialer_to):
    """Return both ends of a stream: the accepted and the dialed one."""
    listener, url = listener_at(url)
    accepting = new_aio()
    lib.nng_stream_listener_accept(listener, accepting)
    stream = dialed(dialer(url))
    return stream_of(accepting), stream


def post(call, stream, aio, buffer, size):
    """Post a receive into, or a send from, `buffer`."""
    iov = ffi.new("nng_iov *", {"iov_buf": buffer, "iov_len": size})
    assert not lib.nng_aio_set_iov(aio, 1, iov)
    call(stream, aio)
