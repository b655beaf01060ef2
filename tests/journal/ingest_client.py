"""Who asks a recorder to keep numbered messages, one after the other, and notes which of them it said that it has."""

from __future__ import annotations

import trio

from nngkit.errors import NotStored
from nngkit.journal import encode_request, parse_reply
from nngkit.protocols import Req

__all__ = ["ask"]


async def ask(req: Req, worker: int, acknowledged: set[bytes], stopping: trio.Event, pause: float = 0.0) -> None:
    """Until `stopping`; what is under way then is still answered. What was refused is asked once more.

    `pause`: seconds between an answer and the next request.
    """
    number = 0
    while not stopping.is_set():
        message = b"%d-%d" % (worker, number)
        try:
            parse_reply(await req.arequest(encode_request(message, [message])))
        except NotStored:
            continue
        acknowledged.add(message)
        number += 1
        await trio.sleep(pause)
