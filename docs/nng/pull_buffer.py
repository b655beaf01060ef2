"""PULL holds one message per connection, whatever `recv_buffer_size` says.

pynng 0.9.0 (NNG 1.11.0). The option can be set and read back.
Expected: with `recv_buffer_size` 100 the socket takes 100 messages before the first receive.
Observed: NNG reads one message, and the next when that is received.
"""

import os
import signal
import socket
import struct
import time

import pynng
from pynng import ffi, lib

signal.alarm(30)  # ends a run that hangs


def messages_read():
    """Return NNG's counter of received messages for the one pipe."""
    slot = ffi.new("nng_stat **")
    lib.nng_stats_get(slot)
    scope, found = lib.nng_stat_child(slot[0]), 0
    while scope:
        if ffi.string(lib.nng_stat_name(scope)) == b"pipe":
            leaf = lib.nng_stat_child(scope)
            while leaf:
                if ffi.string(lib.nng_stat_name(leaf)) == b"rx_msgs":
                    found = lib.nng_stat_value(leaf)
                leaf = lib.nng_stat_next(leaf)
        scope = lib.nng_stat_next(scope)
    lib.nng_stats_free(slot[0])
    return found


with pynng.Pull0(listen="tcp://127.0.0.1:0", recv_buffer_size=100) as pull:
    push = socket.create_connection(("127.0.0.1", int(str(pull.listeners[0].local_address).split(":")[1])))
    push.sendall(struct.pack(">4sHH", b"\0SP\0", 80, 0) + 100 * (struct.pack(">Q", 1) + b"x"))
    while not pull.pipes:
        time.sleep(0.002)
    time.sleep(0.5)
    read, option = messages_read(), pull.recv_buffer_size
print(f"recv_buffer_size {option}, 100 sent, {read} read by NNG", flush=True)
os._exit(0 if read <= 2 else 1)  # not sys.exit: NNG's cleanup at exit may hang
