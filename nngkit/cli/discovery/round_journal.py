"""`nngkit discoverd --journal`: the rounds of a daemon as records of a journal. Connects discovery to the journal.

Three topics; values are JSON, keys the service's name::

    discovery.rounds      a record for each round: its figures, as `nngkit discover --rounds --json` prints them
    discovery.providers   a record for each provider and round: as `nngkit discover --all --json`, and the round
    discovery.events      a record for each change of state: as `nngkit discoverd --json` prints it
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli.discovery.fields import event_fields, round_fields, status_fields
from nngkit.cli.streams.output import json_line, utc

if TYPE_CHECKING:
    from nngkit.discovery.daemon import Daemon
    from nngkit.discovery.provider import Event, RoundFigures
    from nngkit.journal.recorder import Recorder

NAME: Final = "discovery"


class RoundJournal:
    """Append a daemon's rounds and events to a recorder. Never waits: the recorder drops and counts the overflow."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.daemon: Daemon | None = None  # set before its first round

    def round(self, figures: RoundFigures) -> None:
        """Record the end of a round."""
        daemon = self.daemon
        if daemon is None:
            return
        now = time.time()
        wall = now - daemon.discovery.now()
        which = {"daemon": daemon.discovery.id, "round": figures.number, "time": utc(now)}
        self._put("rounds", None, {**which, **round_fields(figures, wall)})
        for status in daemon.discovery.view():
            self._put("providers", status.provider.name, {**which, **status_fields(status, wall)})

    def event(self, event: Event) -> None:
        """Record a provider's change of state."""
        daemon = self.daemon
        assert daemon is not None
        at = time.time() - (daemon.discovery.now() - event.time)
        self._put("events", event.name, {"daemon": daemon.discovery.id, **event_fields(event, at)})

    def _put(self, topic: str, name: str | None, fields: dict[str, Any]) -> None:
        key = None if name is None else name.encode()
        self._recorder.put(json_line(fields).encode(), topic=f"{NAME}.{topic}", protocol="survey", key=key)
