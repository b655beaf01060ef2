"""Values between ClusterDocuments and its callers: effects, and the interface of open documents. Pure.

::

    effects = documents.take(now)
    effects.broadcasts, effects.sends, effects.events, effects.changed
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from nngkit.documents.sync.local_copy import Content
from nngkit.documents.sync.messages import Aware


@dataclass(frozen=True, slots=True)
class Refused:
    """Input of `node` that was rejected, or an exception of a shared object: `what` it was about, and why."""

    node: str
    what: str
    why: str


@dataclass(slots=True)
class DocumentEffects:
    """Work for the node; see the module."""

    broadcasts: list[bytes] = field(default_factory=list)
    sends: list[tuple[str, list[Any]]] = field(default_factory=list)
    events: list[Refused] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)


class OpenedDocument(Protocol):
    """Interface of an open document: `content` for its copy, `document` for the program."""

    @property
    def content(self) -> Content: ...
    @property
    def document(self) -> Any: ...
    def changed(self) -> None:
        """Wake all waiters."""

    def receive_awareness(self, message: Aware, now: float) -> None:
        """Take the awareness state of another node. Raises BadMessage, TooLarge."""

    def renew_awareness(self, now: float) -> None:
        """Publish the own awareness state again; expire old ones."""

    def node_removed(self, origin: bytes, now: float) -> None:
        """Remove the awareness states of a node."""

    def close(self) -> None:
        """Close the document."""
