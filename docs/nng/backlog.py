"""128 connections may wait for a listener to accept them, and no option changes it.

pynng 0.9.0 (NNG 1.11.0), Linux. By design; the system drops further ones, whose dialers try again.
Expected: known to services that expect thousands of peers at once.
Observed: the backlog as the kernel reports it (TCP_INFO).
"""

import os
import socket
import struct

import pynng
from _harness import done, port_of

with pynng.Pull0(listen="tcp://127.0.0.1:0") as pull:
    port = port_of(pull)
    found = None
    for name in os.listdir("/proc/self/fd"):
        try:
            held = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with held:
            if held.family == socket.AF_INET and held.getsockname()[1] == port:
                info = held.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
                found = struct.unpack("8B6I", info)[13]  # tcpi_unacked is how many wait, tcpi_sacked the limit
done(f"backlog {found}", found == 128)
