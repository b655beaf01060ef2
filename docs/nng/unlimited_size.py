"""A listener accepts messages of any length by default, and 16 bytes from a stranger abort its process.

pynng 0.9.0 (NNG 1.11.0). `recv_max_size` defaults to 0, which is unlimited; pynng's docstring says 1 MB.
Expected: NNG closes a connection that announces a message of 2**64 - 40 bytes.
Observed: the process ends by a signal.
"""

import os
import struct

import pynng
from _harness import CHILD, child, done, failed, stranger

if CHILD is not None:
    with pynng.Pull0(listen="tcp://127.0.0.1:0", recv_timeout=5000) as pull:
        assert pull.recv_max_size == 0
        stranger(pull, 80).sendall(struct.pack(">Q", 2**64 - 40))
        pull.recv()
    os._exit(0)

code, _ = child()
done(f"child ended with {code}", failed(code))
