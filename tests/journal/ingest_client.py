"""Client that sends numbered ingest requests to a recorder and notes the acknowledged ones."""

from __future__ import annotations

import trio

from nngkit.errors import NotStored
from nngkit.journal import encode_request, parse_reply
from nngkit.protocols import Req

__all__ = ["ask"]


async def ask(req: Req, worker: int, acknowledged: set[bytes], stopping: trio.Event, pause: float = 0.0) -> None:
    """Send requests until `stopping`; the last one is still replied to. Refused requests are repeated.

    `pause`: seconds between a reply and the next request.
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
