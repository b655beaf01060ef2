"""PULL holds one message per connection, whatever `recv_buffer_size` says.

pynng 0.9.0 (NNG 1.11.0). The option can be set and read back.
Expected: with `recv_buffer_size` 100 the socket takes 100 messages before the first receive.
Observed: NNG reads one message, and the next when that is received.
"""

import time

import pynng
from _harness import done, framed, messages_read, stranger

with pynng.Pull0(listen="tcp://127.0.0.1:0", recv_buffer_size=100) as pull:
    push = stranger(pull, 80)
    push.sendall(100 * framed(b"x"))
    time.sleep(0.5)
    read, option = messages_read(1), pull.recv_buffer_size
done(f"recv_buffer_size {option}, 100 sent, {read} read by NNG", read <= 2)
