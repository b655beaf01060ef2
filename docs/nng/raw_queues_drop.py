"""Raw REP, RESPONDENT and SURVEYOR queue a fixed number of messages a peer and silently drop the rest.

pynng 0.9.0 (NNG 1.11.0). No option changes the numbers; `send_buffer_size` is about another queue.
Expected: a send that finds no room waits or fails.
Observed: it succeeds, and the message is lost.
"""

import contextlib
import struct
import time

import pynng
from _harness import done, request, stranger
from pynng import ffi, lib

SIZE = 4 << 20  # a message of that size fills the system's buffers of a connection and stays in NNG's hands


def delivered(opener, peer, count=200):
    answers = peer in (48, 98)  # these peers ask before they are answered
    with pynng.Socket(opener=opener, listen="tcp://127.0.0.1:0", recv_timeout=5000, send_buffer_size=8192) as raw:
        slow = stranger(raw, peer)
        slot = ffi.new("nng_msg **")
        header = struct.pack(">I", 0x80000001)
        if answers:  # an answer begins with the pipe and the id of its question, which NNG gives as a header
            slow.sendall(request(1, b"q"))
            assert not lib.nng_recvmsg(raw.socket, slot, 0)
            header = ffi.buffer(lib.nng_msg_header(slot[0]), lib.nng_msg_header_len(slot[0]))[:]
        for number in range(count):
            lib.nng_msg_alloc(slot, SIZE if number == 0 else 0)
            lib.nng_msg_header_append(slot[0], header, len(header))
            assert not lib.nng_sendmsg(raw.socket, slot[0], 0)
        time.sleep(0.3)
        slow.settimeout(0.5)
        stream, found = slow.makefile("rb"), 0
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
done(f"of 200 messages to a peer that does not read, delivered once it reads: {counts}", max(found.values()) < 200)
