"""Raw REP, RESPONDENT and SURVEYOR queue a fixed number of messages a peer and silently drop the rest.

pynng 0.9.0 (NNG 1.11.0). No option changes the numbers; `send_buffer_size` is about another queue.
Expected: a send that finds no room waits or fails.
Observed: it succeeds, and the message is lost.
"""

import contextlib
import os
import signal
import socket
import struct
import time

import pynng
from pynng import ffi, lib

signal.alarm(30)  # ends a run that hangs
SIZE = 4 << 20  # a message of that size fills the system's buffers of a connection and stays in NNG's hands


def question(protocol):
    """Return what a peer has to say before it can be answered."""
    return struct.pack(">QI", 4 + 1, 0x80000001) + b"q" if protocol in (48, 98) else b""


def delivered(opener, peer, count=200):
    with pynng.Socket(opener=opener, listen="tcp://127.0.0.1:0", recv_timeout=5000, send_buffer_size=8192) as raw:
        slow = socket.create_connection(("127.0.0.1", int(str(raw.listeners[0].local_address).split(":")[1])))
        slow.sendall(struct.pack(">4sHH", b"\0SP\0", peer, 0) + question(peer))
        while not raw.pipes:
            time.sleep(0.002)
        slot = ffi.new("nng_msg **")
        header = struct.pack(">I", 0x80000001)
        if question(peer):  # an answer begins with the pipe and the id of its question, which NNG gives as a header
            assert not lib.nng_recvmsg(raw.socket, slot, 0)
            header = ffi.buffer(lib.nng_msg_header(slot[0]), lib.nng_msg_header_len(slot[0]))[:]
        for number in range(count):
            lib.nng_msg_alloc(slot, SIZE if number == 0 else 0)
            lib.nng_msg_header_append(slot[0], header, len(header))
            assert not lib.nng_sendmsg(raw.socket, slot[0], 0)
        time.sleep(0.3)
        slow.settimeout(0.5)
        stream, found = slow.makefile("rb"), 0
        stream.read(8)
        with contextlib.suppress(TimeoutError):
            while True:
                stream.read(*struct.unpack(">Q", stream.read(8)))
                found += 1
        return found


found = {
    "REP": delivered(lib.nng_rep0_open_raw, 48),
    "RESPONDENT": delivered(lib.nng_respondent0_open_raw, 98),
    "SURVEYOR": delivered(lib.nng_surveyor0_open_raw, 99),
}
counts = ", ".join(f"{name} {number}" for name, number in found.items())
print(f"of 200 messages to a peer that does not read, delivered once it reads: {counts}", flush=True)
os._exit(0 if max(found.values()) < 200 else 1)  # not sys.exit: NNG's cleanup at exit may hang
