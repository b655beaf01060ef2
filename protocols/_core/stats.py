"""Counters of a socket."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters of a socket since it was opened; messages, unless stated otherwise.

    ``sent``: accepted for sending. ``received``: returned to the program, or ready for it. ``dropped``: dropped because
    a send or receive queue was full, or without a handler (``Sub.serve``). ``broken``: being written when their
    connection ended, so it is unknown whether the peer received them. ``too_large``: over ``recv_max_size``; the
    connection was cut. ``bad``: malformed. ``late``: replies after their deadline. ``duplicate``: numbered messages
    received again. ``resent``: requests sent again. ``lost``: gaps in numbered messages. ``written``, ``read``: on all
    connections. ``unwritten``: accepted, and not yet written, dropped or broken. ``pipes``: current connections;
    ``joined``, ``left``, ``refused`` (by ``admit``), ``cut`` (for breaking a rule or for silence; see ``cuts``): totals
    of connections.
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
