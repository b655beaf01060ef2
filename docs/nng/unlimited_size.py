"""A listener accepts messages of any length by default, and 16 bytes from a stranger abort its process.

pynng 0.9.0 (NNG 1.11.0). `recv_max_size` defaults to 0, which is unlimited; pynng's docstring says 1 MB.
Expected: NNG closes a connection that announces a message of 2**64 - 40 bytes.
Observed: the process ends by a signal.
"""

import os
import signal
import socket
import struct
import subprocess
import sys

import pynng

signal.alarm(30)  # ends a run that hangs

if len(sys.argv) > 1 and sys.argv[1] == "child":
    with pynng.Pull0(listen="tcp://127.0.0.1:0", recv_timeout=5000) as pull:
        assert pull.recv_max_size == 0
        connection = socket.create_connection(("127.0.0.1", int(str(pull.listeners[0].local_address).split(":")[1])))
        connection.sendall(struct.pack(">4sHH", b"\0SP\0", 80, 0) + struct.pack(">Q", 2**64 - 40))
        pull.recv()
    os._exit(0)

code = subprocess.run([sys.executable, __file__, "child"], check=False, stderr=subprocess.DEVNULL).returncode
print(f"child ended with {code}" + (f" ({signal.Signals(-code).name})" if code < 0 else ""))
sys.exit(0 if code < 0 else 1)
