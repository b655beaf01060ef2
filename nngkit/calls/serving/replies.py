"""Replies of a server: sent at once, several together, or by a task that waits for room in a connection."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from nngkit.background import Background
from nngkit.calls.serving.progress import Progress
from nngkit.errors import Closed, NngkitError
from nngkit.protocols import Payload, Rep, Request

log = logging.getLogger("nngkit.calls")


@dataclass(eq=False)
class Replies:
    """Sends replies. `rep` is set before the first one."""

    name: str
    progress: Progress
    background: Background
    rep: Rep = field(init=False)

    def send_at_once(self, request: Request, data: Payload) -> bool:
        """Send a reply; return False, without a change, if `send` has to wait, or to say why it cannot."""
        try:
            return request.reply_if_room(data)
        except NngkitError:
            return False

    async def send(self, request: Request, data: Payload) -> bool:
        """Send a reply, once there is room; return False if the caller has left. Raises Closed."""
        try:
            await request.areply(data)
        except Closed:
            raise
        except NngkitError as error:
            log.debug("%s: not answered: %s", self.name, error)
            return False
        return True

    def send_all(self, replies: list[tuple[Request, Payload]]) -> None:
        """Send replies, and remove them from the list; those that have to wait for room in a task of their own."""
        if len(replies) == 1 and self.send_at_once(*replies[0]):
            waiting: list[tuple[Request, Payload]] = []
        else:
            try:
                waiting = [replies[index] for index in self.rep.reply_many(replies)]
            except NngkitError:  # `send` says why
                waiting = replies[:]
        self.progress.replies += len(replies) - len(waiting)
        replies.clear()
        if waiting:
            self.progress.in_progress += len(waiting)
            self.background.start(self._send_waiting, waiting)

    async def _send_waiting(self, waiting: list[tuple[Request, Payload]]) -> None:
        try:
            for request, data in waiting:
                self.progress.replies += await self.send(request, data)
        except Closed as closed:
            log.debug("%s: %s", self.name, closed)
        finally:
            self.progress.in_progress -= len(waiting)
            self.progress.changed()
