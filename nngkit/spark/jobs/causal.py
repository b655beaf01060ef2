"""In which order a document's updates may be applied, and which may be merged before they are. Pure.

An update is number `first` to `last` of its stream (one peer from one start to the next) in that document, and depends
on what its author had seen: `deps`. The engine does not survive an update that comes before what it depends on, and
who recorded the traffic may well have got them so. So: in the order they came, but each only when its time has come.

    >>> a, b = EditStream(b"aaaaaaaa", 1), EditStream(b"bbbbbbbb", 1)
    >>> reply, first = Update(b, 1, 1, {a: 1}, b"world"), Update(a, 1, 1, {}, b"hello")
    >>> [each.update for each in in_order([reply, first], {}).ready]
    [b'hello', b'world']

A merge is an update without a stream: what a peer gave as a whole, for a document that had `deps`, and brought it to
`versions`. It waits for the one and counts as the other, and what it covers is not applied once more; itself it always
is, as it may bring what has no number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from nngkit.documents.versions import EPOCHS_KEPT, EditStream, Oldest, Versions, covers, merge

__all__ = ["Ordered", "Update", "in_order", "runs"]

MOST_MERGED: Final = 64  # updates: what merging costs grows faster than their number


class Update(NamedTuple):
    """One, or several of one stream merged; or, without a stream, a merge."""

    stream: EditStream | None
    first: int
    last: int
    deps: Mapping[EditStream, int]
    update: bytes
    versions: Mapping[EditStream, int] = MappingProxyType({})


class Ordered(NamedTuple):
    """`ready` in an order to apply; `held` depends on what is missing; `versions` is what there is after `ready`."""

    ready: list[Update]
    held: list[Update]
    versions: Versions


def in_order(updates: Iterable[Update], have: Mapping[EditStream, int]) -> Ordered:
    """What can be applied to a document that has `have`; what it has already is left out of both lists.

    A vector lists so many streams and no more (versions.prune). So where nothing goes on any more, what is too old to
    be listed counts as being there, as it does with the peers.
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
        # Sorted from now on: a stream that came backwards would else take a pass for each of its updates.
        waiting = sorted(still, key=lambda each: (each.stream is not None, each.stream or (), each.first))
    return Ordered(ready, waiting, versions)


def runs(updates: Iterable[Update]) -> Iterator[list[Update]]:
    """Rows of neighbours that may be merged into one without anybody having to wait for what did not wait before.

    Of one stream, without a hole, and none depends on others than the first one does: A1 A2 may wait for nobody, but if
    A2 depends on B1 and B1 on A1, A1 and A2 as one would wait for B1, and B1 for them.
    """
    run: list[Update] = []
    for each in updates:
        if run:
            last = run[-1]
            follows = each.stream is not None and each.stream == last.stream and each.first == last.last + 1
            if not (follows and len(run) < MOST_MERGED and covers(run[0].deps, _others(each))):
                yield run
                run = []
        run.append(each)
    if run:
        yield run


def _is_here(needed: Mapping[EditStream, int], versions: Mapping[EditStream, int], oldest: Oldest | None) -> bool:
    """Whether all of it is; with `oldest`: or is too old to be listed."""
    if oldest is None:
        return covers(versions, needed)
    return all(
        versions.get(stream, 0) >= seq or (stream not in versions and oldest.excludes(stream))
        for stream, seq in needed.items()
    )


def _others(each: Update) -> Mapping[EditStream, int]:
    """What it depends on of other streams: of its own, all before it, which its numbers say."""
    if each.stream in each.deps:
        return {stream: seq for stream, seq in each.deps.items() if stream != each.stream}
    return each.deps
