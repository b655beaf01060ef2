"""Cancellations: providers are told, in the background, that the caller of a request has given up."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from nngkit.background import Background, WakeUp
from nngkit.errors import NngkitError
from nngkit.protocols import Req

log = logging.getLogger("nngkit.calls")

MOST: Final = 64
"""Cap on cancellations in progress: beyond it they are dropped, and the provider's own deadline ends the call."""
TIMEOUT: Final = 1.0  # seconds for the reply to a cancellation


class Cancels:
    """Cancellations of one client. `dropped`: those that were not sent, as too many waited."""

    def __init__(self, name: str, background: Background) -> None:
        self._name = name
        self._background = background
        self._unsent: deque[tuple[Req, bytes]] = deque()
        self._in_progress = 0
        self.dropped = 0

    def open(self) -> None:
        """Take cancellations from now on."""
        self._wake = WakeUp()
        self._background.start(self._send)

    def send_later(self, link: Req, message: bytes) -> None:
        """Send a cancellation in the background; on any thread."""
        if self._in_progress + len(self._unsent) >= MOST:
            self.dropped += 1
            return
        self._unsent.append((link, message))
        self._wake.wake_soon()

    async def _send(self) -> None:
        while True:
            while self._unsent:
                link, message = self._unsent.popleft()
                self._in_progress += 1
                self._background.start(self._send_one, link, message)
            await self._wake.wait()

    async def _send_one(self, link: Req, message: bytes) -> None:
        try:
            await link.arequest(message, timeout=TIMEOUT)
        except NngkitError as error:  # it left, or is busy: its own deadline ends the call
            log.debug("%s: not cancelled: %s", self._name, error)
        finally:
            self._in_progress -= 1
