"""SP machines and frames for the tests of SP on a byte stream."""

import struct

import pytest

from nngkit.protocols.sp import (
    MIB,
    PULL,
    PUSH,
    Machine,
    hello,
)

FRAMINGS = pytest.mark.parametrize("ipc", [False, True], ids=["tcp", "ipc"])


def frame(body: bytes, ipc: bool = False) -> bytes:
    """Return a frame, built by hand."""
    return b"\1" * ipc + struct.pack(">Q", len(body)) + body


def opened(*, limit: int = MIB, ipc: bool = False, in_place: bool = False) -> Machine:
    """Return a PULL that has received its PUSH's hello."""
    machine = Machine(PULL, limit=limit, ipc=ipc, in_place=in_place)
    machine.feed(hello(PUSH))
    machine.take([])
    assert machine.open
    return machine


def all_of(machine: Machine, most: int = 1 << 62) -> list[bytes]:
    """Return the complete messages, taken ``most`` at a time."""
    out: list[bytes] = []
    while machine.more:
        before = len(out)
        machine.take(out, most)
        assert len(out) - before <= most
        assert len(out) > before or not machine.more, "a caller that loops while there is more would loop for ever"
    return out


def cut(wire: bytes, cuts: list[int]) -> list[bytes]:
    """Return ``wire`` in pieces of the sizes ``cuts``, repeated."""
    parts = []
    at = turn = 0
    while at < len(wire):
        parts.append(wire[at : at + cuts[turn % len(cuts)]])
        at += cuts[turn % len(cuts)]
        turn += 1
    return parts
