"""`nngkit record --stream audit=trust`: decisions of the program's trust as records. Connects trust to the journal.

The key is the name of the peer, the value JSON::

    {"time": "2026-11-27T20:16:48.000Z", "room": "connections", "who": "desk.ada", "what": "connect tls+tcp://...",
     "refused": "right"}

`refused` is a code of nngkit/trust/refusals.py, "" for a peer that was let in.
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import trio

from nngkit.cli.streams.output import json_line, picked, utc

if TYPE_CHECKING:
    from nngkit.journal.recorder import Recorder
    from nngkit.trust import Decision, Trust

PROTOCOL: Final = "trust"


class Decisions:
    """Appends decisions to a recorder, inside a `with` block under trio. The recorder drops and counts an overflow."""

    def __init__(self, trust: Trust, recorder: Recorder, topic: str) -> None:
        self.trust = trust
        self._recorder = recorder
        self._topic = topic

    def __enter__(self) -> Self:
        self._token = trio.lowlevel.current_trio_token()
        self._end = self.trust.watch(self._decided)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _decided(self, decision: Decision) -> None:
        with suppress(trio.RunFinishedError):  # on any thread, perhaps under a socket's lock
            self._token.run_sync_soon(self._put, decision)

    def _put(self, decision: Decision) -> None:
        fields = {"time": utc(decision.at), **picked(decision, "room who what refused")}
        self._recorder.put(
            json_line(fields).encode(), topic=self._topic, protocol=PROTOCOL, key=decision.who.encode() or None
        )
