"""`nngkit discoverd --journal`: the rounds of a daemon, as records of a journal. Where discovery and journal meet.

Three streams, their values JSON, their key the service's name::

    discovery.rounds      one record a round: its figures, as `nngkit discover --rounds --json` has them
    discovery.providers   one a provider and round: as `nngkit discover --all --json` has it, and the round
    discovery.events      one a change: as `nngkit discoverd --json` prints it
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli.discovering import round_fields, status_fields
from nngkit.cli.output import json_line, utc

if TYPE_CHECKING:
    from nngkit.discovery.daemon import Daemon
    from nngkit.discovery.provider import Event, RoundFigures
    from nngkit.journal.recorder import Recorder

__all__ = ["Keeping"]

NAME: Final = "discovery"


class Keeping:
    """Puts what a daemon finds into a recorder. Never waits: what finds no room is dropped, and counted."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.daemon: Daemon | None = None  # set before its first round

    def round(self, figures: RoundFigures) -> None:
        """A round has ended."""
        daemon = self.daemon
        if daemon is None:
            return
        now = time.time()
        wall = now - daemon.discovery.now()
        which = {"daemon": daemon.discovery.id, "round": figures.number, "time": utc(now)}
        self._put("rounds", None, {**which, **round_fields(figures, wall)})
        for row in daemon.discovery.view():
            self._put("providers", row.provider.name, {**which, **status_fields(row, wall)})

    def event(self, event: Event) -> None:
        """A provider's state has changed."""
        from nngkit.cli.serving import event_fields

        daemon = self.daemon
        assert daemon is not None
        at = time.time() - (daemon.discovery.now() - event.time)
        self._put("events", event.name, {"daemon": daemon.discovery.id, **event_fields(event, at)})

    def _put(self, what: str, name: str | None, fields: dict[str, Any]) -> None:
        key = None if name is None else name.encode()
        self._recorder.put(json_line(fields).encode(), topic=f"{NAME}.{what}", protocol="survey", key=key)
