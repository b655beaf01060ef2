"""A subscriber that reports to its publisher."""

from __future__ import annotations

from typing import Final

from nngkit.fanout import Publisher, Subscriber
from nngkit.testing import aeventually

WAIT: Final = 10.0


async def joined(subscriber: Subscriber, publisher: Publisher) -> None:
    """Wait until the publisher has heard from its subscriber and messages reach it.

    Of a publisher that is back at its address, what reports to it may be connected before what receives.
    """
    await publisher.wait_for_peers(1, WAIT)
    await aeventually(lambda: any(each.id == subscriber.id for each in publisher.subscribers()))
