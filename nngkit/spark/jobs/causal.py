"""Causal order of a document's updates, and which of them may be merged first. Pure.

An update is number `first` to `last` of its stream (one peer from one start to the next) in that document, and depends
on `deps`, the updates its author had seen. The engine fails on an update before its dependencies, and a recorder may
have received them in any order. So updates are applied in the recorded order, each once its dependencies are applied.

    >>> a, b = EditStream(b"aaaaaaaa", 1), EditStream(b"bbbbbbbb", 1)
    >>> reply, first = Update(b, 1, 1, {a: 1}, b"world"), Update(a, 1, 1, {}, b"hello")
    >>> [each.update for each in in_order([reply, first], {}).ready]
    [b'hello', b'world']

A merge is an update without a stream: a peer's whole state, made for a document at `deps`, which it brings to
`versions`. It waits for `deps` and counts as `versions`; updates it covers are not applied again. The merge itself is
always applied, as it may contain unnumbered content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from nngkit.documents.versions import EPOCHS_KEPT, EditStream, Oldest, Versions, covers, merge


class Update(NamedTuple):
    """Update of one stream, possibly several merged; without a stream, a merge."""

    stream: EditStream | None
    first: int
    last: int
    deps: Mapping[EditStream, int]
    update: bytes
    versions: Mapping[EditStream, int] = MappingProxyType({})


class Ordered(NamedTuple):
    """`ready` in causal order; `held` has missing dependencies; `versions` is the state after `ready`."""

    ready: list[Update]
    held: list[Update]
    versions: Versions


def in_order(updates: Iterable[Update], have: Mapping[EditStream, int]) -> Ordered:
    """Order the updates applicable to a document at `have`; those that it has already are in neither list.

    A version vector lists a limited number of streams (versions.prune). When nothing else is applicable, streams too
    old to be listed count as present, as they do with peers.
    """
    versions = dict(have)
    oldest: Oldest | None = None
    ready: list[Update] = []
    waiting = list(updates)
    while waiting:
        still: list[Update] = []
        for each in waiting:
            stream = each.stream
            if stream is None:
                if _is_here(each.deps, versions, oldest):
                    versions = merge(versions, each.versions)
                    ready.append(each)
                else:
                    still.append(each)
                continue
            at = versions.get(stream, 0)
            if each.last <= at:
                continue
            if each.first <= at + 1 and (not each.deps or _is_here(_others(each), versions, oldest)):
                versions[stream] = each.last
                ready.append(each)
            else:
                still.append(each)
        if len(still) < len(waiting):
            oldest = None
        elif oldest is not None or len(versions) < EPOCHS_KEPT:
            break
        else:
            oldest = Oldest(versions)
        # Sorted from now on: otherwise a reversed stream would take a pass for each of its updates.
        waiting = sorted(still, key=lambda each: (each.stream is not None, each.stream or (), each.first))
    return Ordered(ready, waiting, versions)


def _is_here(needed: Mapping[EditStream, int], versions: Mapping[EditStream, int], oldest: Oldest | None) -> bool:
    """Return True if `versions` covers `needed`; with `oldest`, streams too old to be listed count as covered."""
    if oldest is None:
        return covers(versions, needed)
    return all(
        versions.get(stream, 0) >= seq or (stream not in versions and oldest.excludes(stream))
        for stream, seq in needed.items()
    )


def _others(each: Update) -> Mapping[EditStream, int]:
    """Return its dependencies on other streams; on its own stream it depends on all earlier numbers."""
    if each.stream in each.deps:
        return {stream: seq for stream, seq in each.deps.items() if stream != each.stream}
    return each.deps
