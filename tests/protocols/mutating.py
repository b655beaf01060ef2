"""Mutated SP streams for nngkit.protocols.sp; run by test_sp_robustness, and by hand.

    python -m tests.many_histories sp 10000     # 64 mutated streams each

A batch is one valid stream and many mutations of it: flipped bits, a cut at every byte, insertions, removals,
repetitions, replaced lengths. Each mutated stream is fed in random pieces and taken by random numbers of messages, in
both framings, with and without reception in place. Checks for each input:

1. Only BadMessage and TooLarge are raised. 2. Messages and fault are those of ``parsed``, a plain parser that gets the
whole stream at once. 3. Messages that end before the first mutated byte are those that were sent. 4. Once all complete
messages are taken, the machine holds at most one message of the limit, its head, and the last piece.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from ctypes import memmove
from dataclasses import dataclass, field
from itertools import accumulate

from nngkit.errors import BadMessage, TooLarge
from nngkit.protocols.sp import HEADROOM, HELLO, IN_PLACE, LARGE, PULL, PUSH, RUN, Machine, hello

BODY = bytes.__basicsize__ - 1  # offset of the content in a bytes object
BATCH = 64  # mutations of one stream: making it costs as much as several of them
CHAINED = 3 * LARGE  # bytes of buffers for messages that may follow one received in place
LIMITS = (60, 300, 2 * LARGE)  # bytes; the last one allows bodies that are received in place

Outcome = tuple[list[bytes], type[Exception] | None]


def parsed(wire: bytes, limit: int, ipc: bool) -> Outcome:
    """Return the messages of a whole stream to a PULL, and the type of the error that ends it."""
    if len(wire) < HELLO:
        return [], None
    if wire[:HELLO] != hello(PUSH):
        return [], BadMessage
    messages: list[bytes] = []
    head = 9 if ipc else 8
    at = HELLO
    while len(wire) - at >= head:
        if ipc and wire[at] != 1:
            return messages, BadMessage
        size = int.from_bytes(wire[at + head - 8 : at + head], "big")
        if size > limit + HEADROOM:
            return messages, TooLarge
        if len(wire) - at - head < size:
            break
        messages.append(wire[at + head : at + head + size])
        at += head + size
    return messages, None


def give(machine: Machine, piece: bytes) -> None:
    """Feed ``piece`` to ``machine`` as a socket does that receives in place if the machine offers a place.

    Into buffers for further messages too, if it offers them and ``piece`` is not longer.
    """
    place = machine.place()
    if place is None:
        machine.feed(piece)
        return
    body, filled = place
    part = min(len(body) - filled, len(piece))
    memmove(id(body) + BODY + filled, piece, part)
    rest, chain = piece[part:], machine.chain(CHAINED)
    if len(rest) > sum(map(len, chain)):
        machine.fill(part, rest)
        return
    for buffer in chain:
        memmove(id(buffer) + BODY, rest, min(len(buffer), len(rest)))
        rest = rest[len(buffer) :]
    machine.fill(len(piece), chain=chain)


def held(machine: Machine) -> int:
    """Return the bytes that ``machine`` keeps."""
    body = machine._body
    return len(machine._data) + sum(map(len, (*machine._parts, *machine._whole, body or b"")))


# ---- streams ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stream:
    """A valid stream: ``heads`` are the positions of the frames, ``ends`` the positions after them."""

    messages: list[bytes]
    limit: int
    ipc: bool
    in_place: bool
    wire: bytes
    heads: list[int]
    ends: list[int]


def stream(chance: random.Random) -> Stream:
    """Return a stream to a PULL: a few short messages, runs of equal lengths, or some received in place."""
    limit, ipc, in_place = chance.choice(LIMITS), chance.random() < 0.5, chance.random() < 0.5
    shape = chance.random()
    if shape < 0.1:
        sizes = [chance.randrange(4)] * chance.randrange(RUN, 3 * RUN)
        sizes[chance.randrange(len(sizes))] = chance.randrange(4)
    elif shape < 0.2 and limit >= LARGE:
        large = LARGE + chance.randrange(-1, 9)
        sizes = [chance.randrange(9), *[large] * chance.randrange(1, 6), chance.randrange(9)]
        if chance.random() < 0.3:
            sizes[chance.randrange(len(sizes))] = LARGE
    else:
        sizes = [chance.randrange(25) for _ in range(chance.randrange(6))]
    messages = [chance.randbytes(size) for size in sizes]
    sender = Machine(PUSH, ipc=ipc)
    buffers = sender.frames(messages) if messages else []
    ends = list(accumulate((sender.wire_size(size) for size in sizes), initial=HELLO))
    return Stream(messages, limit, ipc, in_place, b"".join((*sender.to_send, *buffers)), ends[:-1], ends[1:])


# ---- mutations: each returns the mutated bytes, and how many at the start are untouched ------------------------------

Mutation = Callable[[Stream, random.Random], tuple[bytes, int]]


def position(one: Stream, chance: random.Random) -> int:
    """Return a position in the stream, half of the time in the head of a frame."""
    if one.heads and chance.random() < 0.5:
        return chance.choice(one.heads) + int(chance.random() * 9)
    return int(chance.random() * len(one.wire))


def flip(one: Stream, chance: random.Random) -> tuple[bytes, int]:
    wire = bytearray(one.wire)
    at = first = min(position(one, chance), len(wire) - 1)
    wire[at] ^= 1 << int(chance.random() * 8)
    while chance.random() < 0.3:
        at = int(chance.random() * len(wire))
        wire[at] ^= 1 << int(chance.random() * 8)
        first = min(first, at)
    return bytes(wire), first


def cut(one: Stream, chance: random.Random) -> tuple[bytes, int]:
    at = position(one, chance)
    return one.wire[:at], at


def insert(one: Stream, chance: random.Random) -> tuple[bytes, int]:
    at = position(one, chance)
    return one.wire[:at] + chance.randbytes(1 + int(chance.random() * 12)) + one.wire[at:], at


def remove(one: Stream, chance: random.Random) -> tuple[bytes, int]:
    at = position(one, chance)
    return one.wire[:at] + one.wire[at + 1 + int(chance.random() * 12) :], at


def repeat(one: Stream, chance: random.Random) -> tuple[bytes, int]:
    a, b = position(one, chance), position(one, chance)
    a, b = (a, b) if a < b else (b, a)
    return one.wire[:b] + one.wire[a:], b


def lengthen(one: Stream, chance: random.Random) -> tuple[bytes, int]:
    if not one.heads:
        return one.wire, len(one.wire)
    which = int(chance.random() * len(one.heads))
    at = one.heads[which] + one.ipc
    size, top = len(one.messages[which]), one.limit + HEADROOM
    sizes = (0, size - 1, size + 1, one.limit, top, top + 1, LARGE, IN_PLACE, IN_PLACE + 1, 1 << 63, (1 << 64) - 1)
    new = max(0, chance.choice(sizes))
    return one.wire[:at] + new.to_bytes(8, "big") + one.wire[at + 8 :], at


def leave(one: Stream, chance: random.Random) -> tuple[bytes, int]:
    return one.wire, len(one.wire)


MUTATIONS: tuple[Mutation, ...] = (flip, flip, cut, insert, remove, repeat, lengthen, lengthen, leave)


# ---- the run ---------------------------------------------------------------------------------------------------------


def pieces(wire: bytes, chance: random.Random) -> list[bytes]:
    """Return ``wire`` in pieces: one, a few, or single bytes."""
    kind = chance.random()
    if kind < 0.2:
        return [wire]
    if kind < 0.25 and len(wire) < 100:
        return [wire[at : at + 1] for at in range(len(wire))]
    cuts = sorted([int(chance.random() * len(wire)) for _ in range(1 + int(chance.random() * 5))])
    return [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]


def received(one: Stream, parts: list[bytes], most: int, eager: bool) -> Outcome:
    """Return the messages that a machine makes of ``parts``, and the type of its error.

    ``eager``: take after each piece, and check that little is kept; else feed everything first.
    """
    machine = Machine(PULL, limit=one.limit, ipc=one.ipc, in_place=one.in_place)
    out: list[bytes] = []
    room = one.limit + HEADROOM + 9
    taken = 0
    try:
        for part in parts:
            give(machine, part)
            while eager and machine.more:
                machine.take(out, most)
                got = len(out) - taken
                assert got <= most, "more messages than were asked for"
                assert got or not machine.more, "a caller that loops while there is more would loop for ever"
                taken += got
            if eager:
                kept = held(machine)
                assert kept <= room + len(part), f"{kept} bytes are kept after {len(part)}"
        while machine.more:
            machine.take(out, most)
    except (BadMessage, TooLarge) as fault:
        assert machine.count == len(out), "count is not what was handed out"
        return out, type(fault)
    assert (machine.count, machine.fed) == (len(out), len(parts))
    return out, None


@dataclass
class Tally:
    """Outcomes of many inputs."""

    inputs: int = 0
    messages: int = 0
    faults: dict[type[Exception] | None, int] = field(default_factory=dict)


def batch(chance: random.Random, tally: Tally, count: int = BATCH) -> None:
    """Try ``count`` mutations of one stream."""
    one = stream(chance)
    at = int(chance.random() * len(one.wire))
    for number in range(count):
        if number % 8:
            wire, whole = chance.choice(MUTATIONS)(one, chance)
        else:
            at = (at + 1) % len(one.wire)  # byte for byte
            wire, whole = one.wire[:at], at
        parts = pieces(wire, chance)
        most = 1 << 62 if chance.random() < 0.3 else 1 + int(chance.random() ** 3 * 80)
        try:
            out, fault = received(one, parts, most, chance.random() < 0.8)
            assert (out, fault) == parsed(wire, one.limit, one.ipc), f"got {len(out)} messages, then {fault}"
            sure = bisect_right(one.ends, whole)
            assert out[:sure] == one.messages[:sure], "messages before the mutation are lost or changed"
        except Exception as error:
            sizes = [len(part) for part in parts]
            raise AssertionError(
                f"{error!r}: limit {one.limit}, ipc {one.ipc}, in_place {one.in_place}, most {most}, "
                f"pieces {sizes}, stream {wire.hex()}"
            ) from error
        tally.messages += len(out)
        tally.faults[fault] = tally.faults.get(fault, 0) + 1
    tally.inputs += count


def mutate(count: int, seed: int = 0) -> Tally:
    """Try at least ``count`` mutated streams. Raises AssertionError with the input that fails."""
    tally = Tally()
    number = 0
    while tally.inputs < count:
        try:
            batch(random.Random(f"{seed}/{number}"), tally)
        except AssertionError as error:
            error.add_note(f"seed {seed}, batch {number}")
            raise
        number += 1
    return tally
