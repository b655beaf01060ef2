"""A raw socket keeps the aio of a non-blocking send that it has refused, if other sends wait for room.

pynng 0.9.0 (NNG 1.11.0). nni_msgq_aio_put refuses a non-blocking send only if its queue is full. With room in the queue
but older sends still waiting, it appends the aio to the list of waiting sends although nni_aio_schedule has failed; the
older sends take the room, the call returns NNG_EAGAIN, and its aio stays in the list.
Expected: NNG_EAGAIN leaves nothing behind.
Observed: the process ends by a signal. By chance; argument: SECONDS to try for (15).
"""

import os
import threading
import time

import pynng
from _harness import CHILD, child, done, failed, seconds_to_try, url_of
from pynng import ffi, lib


def send_raw(seconds):
    rep = pynng.Rep0(listen="tcp://127.0.0.1:0")
    raw = pynng.Socket(opener=lib.nng_req0_open_raw, send_buffer_size=16, dial=url_of(rep))
    header = b"\x80\0\0\1"

    def message():
        slot = ffi.new("nng_msg **")
        assert not lib.nng_msg_alloc(slot, 100)
        lib.nng_msg_header_append(slot[0], header, len(header))
        return slot[0]

    def answer():
        while True:
            rep.recv()

    def wait_for_room():
        while True:  # a blocking send is an aio that waits for room
            lib.nng_sendmsg(raw.socket, message(), 0)

    def offer():
        refused = message()
        while True:
            if lib.nng_sendmsg(raw.socket, refused, lib.NNG_FLAG_NONBLOCK):
                lib.nng_msg_free(refused)
            refused = message()

    for call in (answer, wait_for_room, wait_for_room, wait_for_room, offer, offer):
        threading.Thread(target=call, daemon=True).start()
    time.sleep(seconds)
    os._exit(0)


if CHILD:
    send_raw(float(CHILD[0]))

seconds, start = seconds_to_try(15.0), time.monotonic()
code, _ = child(seconds, seconds=seconds + 15)
done(f"after {time.monotonic() - start:.1f} s: exit code {code}", failed(code))
