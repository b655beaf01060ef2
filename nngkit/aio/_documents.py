"""Bases of documents and of objects that open them, for asyncio programs."""

from __future__ import annotations

from typing import TypeVar

from nngkit.aio._base import Aio, Waits
from nngkit.documents.document import Document
from nngkit.documents.threads import Opener
from nngkit.documents.threads import Whole as Content

__all__ = ["Opening", "Whole"]

T = TypeVar("T")


class Whole(Waits[Document], Content):
    """Base of `Document`."""


class Opening(Aio[T], Opener[T]):
    """Base of objects that open documents."""
