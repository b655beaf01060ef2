"""Recorded editing traces: parse and check a file into transactions with their parents. Pure.

The format is that of the public editing traces, JSON::

    {"startContent": "", "endContent": "hi!", "txns": [{"patches": [[0, 0, "hi"], [2, 0, "!"]]}]}

A patch is [position, deleted, inserted], in Unicode code points; other fields are ignored. Traces of several authors
have ``"kind": "concurrent"``: each transaction names its ``agent`` and the numbers of its ``parents``, and was typed
into the text that these and their ancestors make.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["BadTrace", "Patch", "Trace", "Txn", "check_lengths", "parsed", "unzipped"]

MOST_BYTES: Final = 1 << 30  # of JSON: the largest public traces have some 10 MB
MOST_AGENTS: Final = 1024

Patch = tuple[int, int, str]


class BadTrace(ValueError):
    """Invalid trace: the message says what is wrong, and where in the file."""


@dataclass(frozen=True, slots=True)
class Txn:
    """Patches of one agent, made in the text of its `parents` (numbers of earlier transactions)."""

    agent: int
    parents: tuple[int, ...]
    patches: tuple[Patch, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace: the text at its start and end, and its transactions. `concurrent`: of several authors."""

    start: str
    end: str
    txns: Sequence[Txn]
    agents: int
    concurrent: bool

    @property
    def edits(self) -> int:
        """Number of patches."""
        return sum(len(txn.patches) for txn in self.txns)


def unzipped(data: bytes) -> bytes:
    """Return the JSON of a file that may be gzipped. Raises BadTrace, also over 1 GiB."""
    if data[:2] != b"\x1f\x8b":
        return data
    out = bytearray()
    while data:  # a gzip file may have several members
        unzip = zlib.decompressobj(wbits=31)
        try:
            out += unzip.decompress(data, MOST_BYTES + 1 - len(out))
        except zlib.error as error:
            raise BadTrace(f"not a gzip file: {error}") from error
        if len(out) > MOST_BYTES:
            raise BadTrace(f"over {MOST_BYTES} bytes")
        if not unzip.eof:
            raise BadTrace("the gzip file is cut off")
        data = unzip.unused_data.lstrip(b"\0")
    return bytes(out)


def parsed(data: bytes) -> Trace:
    """Parse the bytes of a file. Raises BadTrace that names the transaction."""
    try:
        value = json.loads(unzipped(data))
    except UnicodeDecodeError as error:
        raise BadTrace(f"not UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise BadTrace("nested too deep") from error
    except ValueError as error:
        raise error if isinstance(error, BadTrace) else BadTrace(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadTrace("not a JSON object")
    kind = value.get("kind")
    if kind not in (None, "sequential", "concurrent"):
        raise BadTrace(f"kind: {kind!r} is neither 'concurrent' nor 'sequential'")
    txns = value.get("txns")
    if not isinstance(txns, list):
        raise BadTrace("txns: not a list of transactions")
    concurrent = kind == "concurrent"
    agents = _whole(value.get("numAgents", 1), "numAgents", 1, MOST_AGENTS) if concurrent else 1
    return Trace(
        _text(value.get("startContent", ""), "startContent"),
        _text(value.get("endContent"), "endContent"),
        [_txn(txn, number, agents, concurrent) for number, txn in enumerate(txns)],
        agents,
        concurrent,
    )


def _txn(txn: object, number: int, agents: int, concurrent: bool) -> Txn:
    where = f"txns[{number}]"
    if not isinstance(txn, dict):
        raise BadTrace(f"{where}: not an object")
    patches = txn.get("patches")
    if not isinstance(patches, list):
        raise BadTrace(f"{where}: patches: not a list")
    agent = 0
    parents: tuple[int, ...] = (number - 1,) if number else ()
    if concurrent:
        agent = _whole(txn.get("agent"), f"{where}: agent", 0, agents - 1)
        before = txn.get("parents")
        if not isinstance(before, list):
            raise BadTrace(f"{where}: parents: not a list")
        if number == 0 and before:
            raise BadTrace(f"{where}: parents: there is no transaction before it")
        parents = tuple(_whole(parent, f"{where}: parents", 0, number - 1) for parent in before)
    return Txn(agent, parents, tuple(_patches(patches, where)))


def _patches(patches: list[Any], where: str) -> Iterator[Patch]:
    for at, patch in enumerate(patches):
        here = f"{where}: patches[{at}]"
        if not isinstance(patch, list) or len(patch) < 3:
            raise BadTrace(f"{here}: not [position, deleted, inserted]")
        position, deleted = _whole(patch[0], here, 0), _whole(patch[1], here, 0)
        yield position, deleted, _text(patch[2], here)


def _whole(value: object, where: str, least: int, most: int = 2**53) -> int:
    if type(value) is not int or not least <= value <= most:
        raise BadTrace(f"{where}: {value!r:.60} is not a whole number from {least} to {most}")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise BadTrace(f"{where}: {'missing' if value is None else f'{value!r:.60} is not a string'}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadTrace(f"{where}: half a character (a lone surrogate) at {error.start}") from error
    return value


def check_lengths(trace: Trace) -> None:
    """Raise BadTrace if a patch of a trace of one author is beyond its text."""
    length = len(trace.start)
    for number, txn in enumerate(trace.txns):
        for at, patch in enumerate(txn.patches):
            length = checked(patch, length, number, at)


def checked(patch: Patch, length: int, number: int, at: int) -> int:
    """Return the length after `patch` of a text of `length`. Raises BadTrace."""
    position, deleted, inserted = patch
    if position + deleted > length:
        what = f"{deleted} code points from {position}" if deleted else f"position {position}"
        raise BadTrace(f"txns[{number}]: patches[{at}]: {what} in a text of {length}")
    return length - deleted + len(inserted)
