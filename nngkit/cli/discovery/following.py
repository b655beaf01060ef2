"""Following of the daemons' merged view by a command: first the state, then each change.

A resolver keeps the view (nngkit/discovery/resolver.py). A change of many providers is many events: `settled` waits
until there has been none for a while.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from nngkit.background import Background
from nngkit.cli.discovery.daemons import settings_of
from nngkit.cli.discovery.watched import Watched
from nngkit.cli.silence import with_cause
from nngkit.cli.tls import tls_or_variables
from nngkit.discovery.resolver import Resolver
from nngkit.errors import Full, Unreachable

if TYPE_CHECKING:
    from nngkit.discovery.provider import Event

LOOK: Final = 0.02  # seconds between looks at which daemons have answered: it is no event
CATCH_UP: Final = 1.0  # seconds to wait for the events of what the daemons answered
LONGEST: Final = 10  # times the quiet time that a change may be held back while others follow


class Following:
    """The view of a resolver, and its events. `on_event` is called for each, `on_restart` when the view begins anew."""

    def __init__(
        self, resolver: Resolver, name: str | None, say: Callable[[str], None], on_event: Callable[[Event], None]
    ) -> None:
        self._resolver = resolver
        self._say = say
        self._on_event = on_event
        self._changed = trio.Event()
        self.view = Watched(name)

    async def run(self) -> None:
        """Apply events for ever."""
        while True:
            try:
                async with aclosing(self._resolver.events()) as events:
                    async for event in events:
                        if self.view.apply(event):
                            self._on_event(event)
                            self._changed.set()
                return
            except Full as behind:
                self._say(f"the view changes faster than it is read: {behind}; the current state follows")
                self.view.clear()

    @property
    def fresh(self) -> bool:
        """True while a daemon answers."""
        return self._resolver.fresh

    async def answered(self, timeout: float) -> None:
        """Wait until all daemons have answered, at most `timeout` seconds. Raises Unreachable if none has."""
        daemons = self._resolver.daemons
        with trio.move_on_after(timeout):
            while not all(map(self._resolver.answers, daemons)):  # noqa: ASYNC110 (an answer is no event)
                await trio.sleep(LOOK)
        if not self.fresh:
            silent = Unreachable(", ".join(daemons), f"no discovery daemon answered within {timeout:g} s")
            raise await with_cause(silent, daemons)
        with trio.move_on_after(CATCH_UP):  # their answers reach this view as events, a moment later
            await trio.sleep(LOOK)
            while not self._caught_up():  # noqa: ASYNC110
                await trio.sleep(LOOK)

    def _caught_up(self) -> bool:
        wanted = {
            name: {provider.key for provider in providers}
            for name, providers in self._resolver.snapshot().items()
            if self.view.name in (None, name)
        }
        usable = self.view.usable()
        return wanted == {name: {event.provider.key for event in usable[name]} for name in usable if usable[name]}

    async def answered_at_last(self, timeout: float) -> None:
        """Wait as `answered` does, and then for the first daemon as long as it takes."""
        try:
            await self.answered(timeout)
        except Unreachable as error:
            self._say(f"{error}; still trying")
            while not self.fresh:  # noqa: ASYNC110
                await trio.sleep(10 * LOOK)

    async def settled(self, quiet: float) -> None:
        """Wait for a change, and until there was none for `quiet` seconds, or LONGEST times that has passed."""
        await self._changed.wait()
        with trio.move_on_after(LONGEST * quiet):
            while self._changed.is_set():
                self._changed = trio.Event()
                with trio.move_on_after(quiet):
                    await self._changed.wait()
        self._changed = trio.Event()

    def consider_all(self) -> None:
        """Take the current view as seen: `settled` waits for a later change."""
        self._changed = trio.Event()


@asynccontextmanager
async def following(
    arguments: argparse.Namespace, say: Callable[[str], None], on_event: Callable[[Event], None]
) -> AsyncIterator[Following]:
    """Follow the daemons of the options while the block runs."""
    settings = settings_of(arguments)
    tls = tls_or_variables(arguments, settings.certificates, "dial", *settings.daemons)
    timeout = max(arguments.timeout, LOOK)
    async with (
        Resolver(settings.daemons, domain=settings.domain, timeout=timeout, tls=tls) as resolver,
        Background() as tasks,
    ):
        follow = Following(resolver, arguments.name, say, on_event)
        tasks.start(follow.run)
        yield follow
