"""Jobs of a cluster that HTTP clients submit: by a member that does none itself, and remembers what it has submitted.

A job is known at the gateway that it was submitted through, to the name that has submitted it. Jobs that have ended are
forgotten after `KEPT` seconds, and the oldest of them sooner if there are too many.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import trio

from nngkit.cluster import Endpoint, Job
from nngkit.errors import NngkitError
from nngkit.web.gateway.problems import Problem, problem_of
from nngkit.web.gateway.waits import Waits

KEPT: Final = 600.0  # seconds for which the end of a job can be read
MOST: Final = 10_000  # jobs, those that have not ended among them
MOST_RESULTS: Final = 64 << 20  # bytes of results
TIDY: Final = 1.0  # seconds between two looks at what has ended
NUMBERS: Final = ("priority", "tries")
SECONDS: Final = ("visibility", "deadline", "delay", "timeout")


@dataclass(slots=True)
class _Kept:
    job: Job
    owner: str | None
    ended: float | None = None  # when that was seen
    size: int = 0  # bytes of its result, then


class Jobs:
    """Jobs that were submitted through a gateway."""

    def __init__(self, node: Endpoint, waits: Waits) -> None:
        self._node = node
        self._waits = waits
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    async def submit(
        self, kind: str, payload: bytes, options: dict[str, Any], owner: str | None, timeout: float
    ) -> dict[str, Any]:
        """Submit a job; return what is said of it. Raises Problem, NngkitError."""
        if not self._room():
            raise Problem(503, "busy", f"{MOST} jobs that were submitted here have not ended", ran=False)
        with trio.move_on_after(timeout) as scope:
            job = await self._node.submit(kind, payload, **options)
        if scope.cancelled_caught:
            raise Problem(503, "unavailable", f"the cluster has not accepted the job within {timeout:g} s")
        kept = self._kept.get(job.id)
        if kept is None or kept.job is not job:
            self._kept[job.id] = kept = _Kept(job, owner)
        return await self._shown(kept)

    async def look(self, id: str, owner: str | None, wait: float) -> dict[str, Any]:
        """Return what is known of a job, once it has ended, or after `wait` seconds. Raises Problem."""
        kept = self._find(id, owner)
        if wait and not kept.job.done:
            with self._waits.at_most(wait):
                await _end(kept.job)
        return await self._shown(kept)

    async def cancel(self, id: str, owner: str | None) -> dict[str, Any]:
        """Ask for the end of a job. Raises Problem."""
        kept = self._find(id, owner)
        kept.job.cancel()
        return await self._shown(kept)

    def _find(self, id: str, owner: str | None) -> _Kept:
        number = int(id) if id.isascii() and id.isdigit() and len(id) < 20 else 0
        kept = self._kept.get(number)
        if kept is None or kept.owner != owner:  # the job of another is no secret to be confirmed
            raise Problem(404, "not-found", "no such job was submitted here, or it ended long ago")
        return kept

    async def _shown(self, kept: _Kept) -> dict[str, Any]:
        job = kept.job
        fields: dict[str, Any] = {"id": str(job.id), "kind": job.kind}
        if not job.done:
            return {**fields, "state": "accepted", "progress": job.progress}
        try:
            result = await job.result()
        except NngkitError as failure:
            return {**fields, "state": "failed", "problem": problem_of(failure).fields()}
        try:
            return {**fields, "state": "done", "result": result.decode()}
        except UnicodeDecodeError:
            return {**fields, "state": "done", "result": base64.b64encode(result).decode(), "encoding": "base64"}

    async def forget(self) -> None:
        """Forget what ended long ago, and the oldest results over the cap; for ever."""
        while True:
            await trio.sleep(TIDY)
            now, size = trio.current_time(), 0
            for number, kept in reversed(list(self._kept.items())):
                if kept.job.done:
                    if kept.ended is None:
                        kept.ended = now
                        with suppress(NngkitError):
                            kept.size = len(await kept.job.result())
                    size += kept.size
                    if now - kept.ended > KEPT or size > MOST_RESULTS:
                        del self._kept[number]

    def _room(self) -> bool:
        """Return True if another job can be kept, in place of the oldest that has ended if need be."""
        if len(self._kept) < MOST:
            return True
        oldest = next((number for number, kept in self._kept.items() if kept.job.done), None)
        if oldest is None:
            return False
        del self._kept[oldest]
        return True


async def _end(job: Job) -> None:
    try:
        await job.result()
    except NngkitError:
        return  # how it failed is said as its state
