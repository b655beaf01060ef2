"""Checks after a kill: jobs neither lost nor committed twice, messages once and in order, documents equal."""

from __future__ import annotations

import json
import time
from typing import Any

import trio
from _cluster_fleet import Fleet, Node


class Audit:
    """The jobs that hosts have accepted, by key, and their results, as nodes tell them until they die."""

    def __init__(self, fleet: Fleet) -> None:
        self.accepted: dict[str, None] = {}
        self.results: dict[str, str] = {}
        fleet.on_event(self._take)

    def _take(self, event: dict[str, Any]) -> None:
        if event["event"] == "accepted":
            self.accepted[event["key"]] = None
        elif event["event"] == "result":
            self.results[event["key"]] = event["result"]

    def begin(self) -> None:
        """Forget the jobs so far."""
        self.accepted.clear()
        self.results.clear()

    async def jobs(self, fleet: Fleet, node: Node, told: dict[str, float], seconds: float) -> list[str]:
        """Wait for the results; submit all jobs again under their keys, and compare. Return what is wrong.

        A key that has been used gets the result of the first job, which says when that was done. A job that is done
        only now was lost; a result that is not the submitter's was committed beside that one.
        """
        alive = tuple(f"{each.name}-" for each in fleet.alive)
        problems: list[str] = []
        with trio.move_on_after(seconds):
            while any(key.startswith(alive) and key not in self.results for key in self.accepted):  # noqa: ASYNC110
                await trio.sleep(0.02)
        waiting = [key for key in self.accepted if key.startswith(alive) and key not in self.results]
        problems += [f"job {key} has no end after {seconds:g} s" for key in waiting[:5]]
        began = time.monotonic()
        asked = await node.ask("results", kind="sleep", keys=list(self.accepted), timeout=seconds, limit=4 * seconds)
        again = asked["results"]
        told["jobs"] = len(self.accepted)
        for key in self.accepted:
            first, now = self.results.get(key), again[key]
            if not now.startswith("["):
                told["lost"] += 1
                problems.append(f"job {key}: {now}, first {first}")
            elif json.loads(now)[3] > began:
                told["lost"] += 1
                problems.append(f"job {key} was lost, first {first}")
            elif first is not None and first != now:
                told["doubled"] += 1
                problems.append(f"job {key} has two results: {first} and {now}")
        return problems[:10]


async def heard_faults(fleet: Fleet, sent: dict[str, dict[str, Any]], seconds: float) -> list[str]:
    """Wait until each live node has the messages of all others; return those missing, and what came wrong."""
    missing: list[str] = []
    end = trio.current_time() + seconds
    while True:
        replies = await fleet.each("heard")
        missing = []
        for name, reply in replies.items():
            last = {(origin, epoch): number for origin, epoch, _, number in reply["heard"]}
            for origin, each in sent.items():
                got = last.get((origin, each["epoch"]), 0)
                if origin != name and got < each["sent"]:
                    missing.append(f"{name} has {got} of {each['sent']} messages of {origin}")
        if not missing or trio.current_time() > end:
            break
        await trio.sleep(0.1)
    return missing + [f"{name}: {fault}" for name, reply in replies.items() for fault in reply["faults"]]


async def content_faults(fleet: Fleet, sent: dict[str, dict[str, Any]], seconds: float) -> list[str]:
    """Wait until the documents and the shared objects of all live nodes are equal, with all edits of live nodes."""
    end = trio.current_time() + seconds
    while True:
        replies = await fleet.each("content")
        problems = _differences(replies, sent)
        if not problems or trio.current_time() > end:
            return problems
        await trio.sleep(0.1)


def _differences(replies: dict[str, dict[str, Any]], sent: dict[str, dict[str, Any]]) -> list[str]:
    digests: dict[str, list[str]] = {}
    shared: dict[str, list[str]] = {}
    problems = []
    for name, reply in sorted(replies.items()):
        digests.setdefault(reply["digest"], []).append(name)
        shared.setdefault(str(reply["shared"]), []).append(name)
        for origin, each in sent.items():
            got = reply["edits"].get(f"{origin}-{each['epoch']}", 0)
            if got != each["edits"]:
                problems.append(f"{name} has {got} of {each['edits']} edits of {origin}")
    for what, by in (("documents", digests), ("shared objects", shared)):
        if len(by) > 1:
            rows = "; ".join(f"{key}: {len(names)} nodes, {names[0]} ..." for key, names in by.items())
            problems.append(f"{what} differ: {rows}")
    return problems
