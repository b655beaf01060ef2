"""Timeouts of calls: seconds, None for ever, DEFAULT as the socket was configured."""

from __future__ import annotations

from typing import Final

__all__ = ["DEFAULT", "Default", "Timeout"]


class Default:
    """The type of ``DEFAULT``: the socket's own setting applies."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default()
Timeout = float | Default | None
