"""Wires for the tests of batches."""

from __future__ import annotations

from nngkit.errors import TimedOut
from nngkit.protocols import (
    Batch,
    Pull,
)

TCP = "tcp://127.0.0.1:0"
LATER = Batch(delay=3600.0)  # no batch is sent by its delay


def received_messages(pull: Pull) -> list[bytes]:
    """Return all messages received, after a pause in which more would have arrived."""
    found: list[bytes] = []
    try:
        while True:
            found += pull.recv_many(timeout=0.1)
    except TimedOut:
        return found
