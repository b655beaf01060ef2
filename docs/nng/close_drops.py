"""close() drops messages whose send has returned.

pynng 0.9.0 (NNG 1.11.0). NNG has no linger: closing discards the send queue.
Expected by users of other libraries: accepted messages are sent, or a linger option bounds the time for it.
Observed: most of it is lost, without an error.
"""

import contextlib

import pynng
from _harness import done, stranger

TOTAL, SIZE = 200, 65536  # far more than the system's buffers of a connection hold

with pynng.Push0(listen="tcp://127.0.0.1:0", send_buffer_size=1000) as push:
    slow = stranger(push, 81)
    for _ in range(TOTAL):
        push.send(b"x" * SIZE)
received = 0
with contextlib.suppress(ConnectionResetError):
    while more := slow.recv(1 << 20):
        received += len(more)
received //= SIZE + 8
done(f"{TOTAL} sent, {received} received", received < TOTAL)
