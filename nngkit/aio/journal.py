"""The recorder for asyncio programs."""

from __future__ import annotations

from typing import ParamSpec, TypeVar

from nngkit.aio._base import Aio, awaited
from nngkit.hosted import HostedProperty, hosted_property, loop_call, signature_of
from nngkit.journal import recorder as _recorder

__all__ = ["Recorder"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class Recorder(Aio[_recorder.Recorder]):
    """Recorder of one partition of a journal: see nngkit.Recorder."""

    _of = _recorder.Recorder

    @signature_of(_recorder.Recorder)
    def __init__(self) -> None: ...

    put = loop_call(_recorder.Recorder.put)
    store = awaited(_recorder.Recorder.store)
    flush = awaited(_recorder.Recorder.flush)
    wait_for_room = awaited(_recorder.Recorder.wait_for_room)
    recorded = loop_call(_recorder.Recorder.recorded)
    record = awaited(_recorder.Recorder.record)
    stats: HostedProperty[_recorder.RecorderStats] = hosted_property(_recorder.Recorder.stats)
