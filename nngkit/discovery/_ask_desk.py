"""Questions that callers have a daemon ask, for callers that services cannot dial.

The caller's request is answered once the survey has ended. A caller that lost its connection meanwhile asks again with
the same id, and is answered by the survey that runs already. Results are kept for 5 s, for their further pages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from nngkit import tracing
from nngkit.background import Background
from nngkit.discovery.queries import RefusalKind, RefusedReply
from nngkit.discovery.questions.messages import AskQuery, pages, parse_ask_query
from nngkit.discovery.questions.values import Outcome
from nngkit.discovery.service_discovery import ServiceDiscovery
from nngkit.errors import BadMessage, NngkitError, TooLarge

OF_ONE: Final = 16  # questions in progress of one connection
OF_ALL: Final = 128  # and of all
ANSWERS: Final = 8 * 1024 * 1024  # bytes of the answers to one question
KEPT: Final = 32 * 1024 * 1024  # bytes of the pages that are kept; the oldest are dropped first
KEEP: Final = 5.0  # seconds


@dataclass(eq=False)
class _Asked:
    """A question in progress, or its result: encoded pages by the `after` that requests them."""

    pipe: int
    done: trio.Event = field(default_factory=trio.Event)
    pages: dict[int, bytes] = field(default_factory=dict)
    refused: bytes | None = None
    size: int = 0


class AskDesk:
    """Asks questions of callers, by `discovery`. Its tasks run in `background`."""

    def __init__(self, discovery: ServiceDiscovery, background: Background) -> None:
        self._discovery = discovery
        self._background = background
        self._running: dict[str, _Asked] = {}
        self._ended: OrderedDict[str, _Asked] = OrderedDict()
        self._size = 0

    async def answer(self, body: bytes, pipe: int, peer: str | None) -> bytes | None:
        """Return the encoded reply to a caller's request on the connection `pipe`; None if it is another query."""
        try:
            ask = parse_ask_query(body, peer)
        except (BadMessage, TooLarge) as error:
            return self._refusal("bad message", str(error))
        if ask is None:
            return None
        asked = self._running.get(ask.id) or self._ended.get(ask.id)
        if asked is None:
            if ask.after:
                return self._refusal("unavailable", "this result is not kept any more: ask again")
            mine = sum(each.pipe == pipe for each in self._running.values())
            if mine >= OF_ONE or len(self._running) >= OF_ALL:
                return self._refusal("unavailable", "too many questions in progress")
            asked = self._running[ask.id] = _Asked(pipe)
            self._background.start(self._ask, ask, asked)
        await asked.done.wait()
        page = asked.refused or asked.pages.get(ask.after)
        return page or self._refusal("bad message", f"no page begins after {ask.after}")

    async def _ask(self, ask: AskQuery, asked: _Asked) -> None:
        try:
            self._encode(await self._outcomes(ask), asked)
        except NngkitError as error:  # too large with the daemon's own fields, or closed
            asked.refused = self._refusal("unavailable", str(error))
        finally:
            asked.done.set()
            del self._running[ask.id]
        self._ended[ask.id] = asked
        self._size += asked.size
        while self._size > KEPT:
            self._size -= self._ended.popitem(last=False)[1].size
        await trio.sleep(KEEP)
        if self._ended.get(ask.id) is asked:
            self._size -= self._ended.pop(ask.id).size

    async def _outcomes(self, ask: AskQuery) -> tuple[Outcome, ...]:
        if (spans := tracing.spans) is None:
            return await self._discovery.outcomes(ask, ANSWERS)
        with spans.answering("ask", ask.name, ask.headers) as answering:
            found = await self._discovery.outcomes(ask, ANSWERS)
            answering.found(answered=sum(each.kind == "answered" for each in found))
        return found

    def _encode(self, outcomes: Sequence[Outcome], asked: _Asked) -> None:
        for after, page in pages(self._discovery.id, outcomes):
            asked.pages[after] = page.encode()
        asked.size = sum(map(len, asked.pages.values()))

    def _refusal(self, kind: RefusalKind, why: str) -> bytes:
        return RefusedReply(self._discovery.id, kind, why).encode()
