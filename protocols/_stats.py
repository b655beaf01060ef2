"""Counters of a socket."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of a socket since it was opened. Messages, unless said otherwise.

    ``sent``: accepted for sending. ``received``: handed to, or ready for, the program. ``dropped``: let go for want of
    room, on the way in or out. ``broken``: being written when their connection ended: nobody knows what became of
    them. ``too_large``: over ``recv_max_size``; the connection was cut. ``bad``: bytes that were not what the protocol
    says. ``late``: replies after their deadline. ``duplicate``: numbered messages that came again. ``resent``: requests
    sent again. ``lost``: gaps seen in numbered messages. ``written``, ``read``: on all connections. ``unwritten``:
    accepted and not written, and neither dropped nor broken. ``pipes``: connections now; ``joined``, ``left``,
    ``refused`` (by ``admit``), ``cut`` (for breaking the rules; ``cuts`` says which and why): ever.
    """

    sent: int = 0
    received: int = 0
    dropped: int = 0
    broken: int = 0
    too_large: int = 0
    bad: int = 0
    late: int = 0
    duplicate: int = 0
    resent: int = 0
    lost: int = 0
    written: int = 0
    read: int = 0
    unwritten: int = 0
    pipes: int = 0
    joined: int = 0
    left: int = 0
    refused: int = 0
    cut: int = 0
