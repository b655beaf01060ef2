"""Programs on pynng alone, each in a process of its own, to show what it does before the bricks are shown not to."""

from __future__ import annotations

import textwrap

from tests.protocols.wires import said

TCP = "tcp://127.0.0.1:0"

BARE = """\
import asyncio, gc, json, os, socket, struct, time
import pynng, trio

TCP = "tcp://127.0.0.1:0"

def address(sock):
    return f"tcp://{sock.listeners[0].local_address}"

def stranger(sock, protocol):
    host, port = str(sock.listeners[0].local_address).split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(struct.pack(">4sHH", b"\\0SP\\0", protocol, 0))
    assert len(connection.recv(8, socket.MSG_WAITALL)) == 8
    return connection

def joined(sock, count=1):
    end = time.monotonic() + 20
    while len(sock.pipes) < count:
        assert time.monotonic() < end
        time.sleep(0.002)

def count(sock):
    "How many messages there are, the last one taken to be there if none comes for a second."
    sock.recv_timeout, got = 1000, 0
    try:
        while True:
            sock.recv()
            got += 1
    except pynng.Timeout:
        return got
"""


def bare(program: str, *arguments: str) -> str:
    """What ``program`` prints, run on pynng alone."""
    return said(BARE + textwrap.dedent(program), *arguments, timeout=50)
