"""Messages that introduce a peer, from what matters to a test."""

from __future__ import annotations

from typing import Any

from nngkit.documents.sync.messages import About, DocumentHeartbeat, Heartbeat, Hello, Introduction
from nngkit.documents.versions import EditStream

UNPRINTABLE = ("line\nbreak", "\x1b[31mred", "\u202egnol", "x" * 500)
"""Text of a peer that is not for a terminal as it is."""


def heartbeat(sender: EditStream, docs: tuple[DocumentHeartbeat, ...] = (), **about: Any) -> Heartbeat:
    """Return a heartbeat; `about`: fields of About."""
    return Heartbeat(sender, About(**about), docs)


def hello(sender: EditStream, token: str | None = None, **about: Any) -> Hello:
    """Return a hello; `about`: fields of Introduction."""
    return Hello(sender, token, Introduction(**about))
