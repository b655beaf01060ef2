"""Finding a cluster by discovery: its nodes announce themselves, and bid for the ones that join. Under trio.

Each node that listens is a provider of the service ``cluster.NAME``. Who joins asks all of them; those that have room
answer with a bid, their children against the most that they may have, and are tried in that order. A node that is full
declines, so the next is tried.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final

import trio

from nngkit.discovery import Bid, Question, Resolver, Service, bids
from nngkit.errors import NngkitError, ServiceNotFound
from nngkit.log_lines import LogLines
from nngkit.trust import Choice

log = logging.getLogger("nngkit.cluster")

QUESTION: Final = b"join"
BIDS: Final = 8  # nodes that are tried: the best one nearly always accepts
WAIT: Final = 1.0  # seconds for bids
AGAIN: Final = 1.0  # seconds between two questions while the node has no place


def service_name(cluster: str) -> str:
    """Return the name of the service that the nodes of a cluster provide."""
    return f"cluster.{cluster}"


async def announce(
    stack: AsyncExitStack,
    cluster: str,
    id: str,
    address: str,
    discovery: Sequence[str],
    room: Callable[[], tuple[int, int] | None],
    trust: Choice | None,
) -> None:
    """Announce a node to daemons until `stack` ends. `room`: its children and their limit; None: it takes none now."""

    def bid(question: Question) -> Bid | None:
        if question.body != QUESTION or (there := room()) is None:
            return None
        children, most = there
        return Bid(children / most, address.encode()) if children < most else None

    def load() -> float:
        there = room()
        return 1.0 if there is None else there[0] / there[1]

    await stack.enter_async_context(
        Service(
            service_name(cluster),
            address,
            discovery=discovery,
            id=id,
            load=load,
            on_question=bid,
            trust=trust,
            sigterm=False,
        )
    )


async def seek(
    cluster: str,
    daemons: Sequence[str],
    wanted: Callable[[], bool],
    found: Callable[[list[str]], None],
    failed: Callable[[str], None],
    trust: Choice | None,
) -> None:
    """Ask for nodes with room while `wanted()`; report their addresses, the best first, or the error. Never returns."""
    lines = LogLines()
    async with Resolver(daemons, trust=trust) as resolver:
        while True:
            if wanted():
                try:
                    result = await resolver.ask(QUESTION, service_name(cluster), until=bids(BIDS, timeout=WAIT))
                except NngkitError as error:
                    unknown = isinstance(error, ServiceNotFound)
                    why = f"no discovery daemon knows the cluster {cluster!r}" if unknown else str(error)
                    failed(why)
                    line = lines.add(why, trio.current_time())
                    if line is not None:
                        log.warning("%s", line)
                else:
                    found([answer.provider.address for answer in result.answers])
            await trio.sleep(AGAIN)
