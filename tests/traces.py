"""Generated editing traces, in the format of the public ones.

Each author writes in a separate part of the text, so the end is known without a CRDT: the parts, concatenated.
"""

from __future__ import annotations

import random
from typing import Any

__all__ = ["at_the_same_place", "by_one", "by_several"]

LETTERS = "abc ö\n漢😀\u0301ß"


def by_one(seed: int, edits: int, start: str = "") -> dict[str, Any]:
    """Return a trace of one author, who types and deletes at random, sometimes in several patches at once."""
    rng = random.Random(seed)
    text, txns = start, []
    for _ in range(edits):
        patches = []
        for _ in range(rng.choice([1, 1, 1, 2])):
            text, patch = _patch(rng, text)
            patches.append(patch)
        txns.append({"time": "2026-01-01T00:00:00Z", "patches": patches})
    return {"startContent": start, "endContent": text, "txns": txns}


def _patch(rng: random.Random, text: str) -> tuple[str, list[Any]]:
    at = rng.randrange(len(text) + 1)
    deleted = min(rng.choice([0, 0, 0, 1, 3]), len(text) - at)
    inserted = "".join(rng.choice(LETTERS) for _ in range(rng.choice([0, 1, 4]) if deleted else rng.choice([1, 1, 4])))
    return text[:at] + inserted + text[at + deleted :], [at, deleted, inserted]


def by_several(seed: int, authors: int, edits: int, branching: bool = False) -> dict[str, Any]:
    """Return a trace of several authors, each behind the others. `branching`: of one author, in many branches."""
    rng = random.Random(seed)
    walls = [f"<{number}>" for number in range(authors - 1)]
    parts = [[""] for _ in range(authors)]  # each part after each of its changes
    numbers = [[0] for _ in range(authors)]  # the transactions that changed it
    seen = [[0] * authors for _ in range(authors)]  # by author: the last change seen of each part
    knows: dict[int, list[int]] = {0: [0] * authors}
    txns: list[dict[str, Any]] = [_txn(0, (), [[0, 0, "".join(walls)]])]
    for _ in range(edits):
        author = rng.randrange(authors)
        if rng.random() < 0.3:
            other = seen[rng.randrange(authors)]
            seen[author] = [max(mine, theirs) for mine, theirs in zip(seen[author], other, strict=True)]
        view = [part[at] for part, at in zip(parts, seen[author], strict=True)]
        before = sum(len(part) + len(wall) for part, wall in zip(view[:author], walls, strict=False))
        text, (at, deleted, inserted) = _patch(rng, view[author])
        parents = _newest({numbers[part][at] for part, at in enumerate(seen[author])}, knows)
        parts[author].append(text)
        numbers[author].append(len(txns))
        seen[author] = [*seen[author]]
        seen[author][author] += 1
        knows[len(txns)] = seen[author]
        txns.append(_txn(0 if branching else author, parents, [[at + before, deleted, inserted]]))
    end = "".join(part[-1] + wall for part, wall in zip(parts, [*walls, ""], strict=True))
    for txn in txns:
        for parent in txn["parents"]:
            txns[parent]["numChildren"] += 1
    return {"kind": "concurrent", "endContent": end, "numAgents": 1 if branching else authors, "txns": txns}


def _txn(agent: int, parents: Any, patches: list[Any]) -> dict[str, Any]:
    return {"parents": sorted(parents), "numChildren": 0, "agent": agent, "patches": patches}


def _newest(numbers: set[int], knows: dict[int, list[int]]) -> set[int]:
    """Return the numbers that are no ancestor of another one."""

    def before(one: int, other: int) -> bool:
        return one != other and all(a <= b for a, b in zip(knows[one], knows[other], strict=True))

    return {one for one in numbers if not any(before(one, other) for other in numbers if other != one)}


def at_the_same_place(*texts: str, end: str) -> dict[str, Any]:
    """Return a trace of concurrent insertions at the start of a text, and a merge of them."""
    txns = [_txn(0, (), [[0, 0, "."]])]
    txns += [_txn(agent, (0,), [[0, 0, text]]) for agent, text in enumerate(texts)]
    txns.append(_txn(0, range(1, len(texts) + 1), [[0, 0, ""]]))
    return {"kind": "concurrent", "endContent": end, "numAgents": len(texts), "txns": txns}
