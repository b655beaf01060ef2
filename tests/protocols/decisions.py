"""Histories of the pure modules of protocols, for test_decisions.py."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import memmove
from random import Random
from typing import Any, Final
from zlib import crc32

from nngkit.errors import BadMessage, NngkitError, TooLarge
from nngkit.protocols import Pattern
from nngkit.protocols import batch as batches
from nngkit.protocols import sp as sps
from nngkit.protocols._topics.topics import Routes, Topics
from nngkit.protocols._wire.race import Race, interleaved, limit_of
from nngkit.protocols._wire.tcp_info import Answers, TCPInfo, is_gone, look, next_look, parse
from nngkit.protocols._wire.ws_frames import MASKED, scan
from nngkit.protocols.routing import Lanes, Rotation, share
from nngkit.protocols.websocket import Machine
from tests.protocols.sp_machines import frame as sp_frame
from tests.protocols.websocket_machines import frame as plain_frame
from tests.protocols.websocket_machines import joined

ALL: Final = 1 << 62
SIZES: Final = (0, 125, 126, 65_535, 65_536)  # bounds of the length's encoding
KEY: Final = b"\x01\x80\x7f\xff"


def brief(bodies: list[bytes]) -> Any:
    """Return what tells lists of bodies apart, in short."""
    return len(bodies), crc32(b"|".join(bodies)), sum(map(len, bodies))


def frame(first: int, body: bytes, key: bytes | None) -> bytes:
    """Return a frame; masked as one integer, which is quicker than byte by byte."""
    if key is None or len(body) < 16:
        return plain_frame(first, body, key)
    whole = int.from_bytes(body, "big") ^ int.from_bytes((key * (len(body) // 4 + 1))[: len(body)], "big")
    head = plain_frame(first, body, None)[: -len(body)]
    return head[:1] + bytes((head[1] | MASKED,)) + head[2:] + key + whole.to_bytes(len(body), "big")


def chunks(rng: Random, data: bytes, sizes: tuple[int, ...]) -> Iterator[bytes]:
    """Yield the data in chunks of random sizes."""
    at = 0
    while at < len(data):
        size = rng.choice(sizes)
        yield data[at : at + size]
        at += size


def sp(seed: int) -> Iterator[Any]:
    """Play a stream of SP, of runs and single messages, that is received in chunks of any size, and in place."""
    rng = Random(seed)
    for case in range(24):
        ipc, in_place, most = case % 2 == 1, case % 3 == 1, rng.choice((1, 7, 32, 33, 100, ALL))
        machine = sps.Machine(sps.PULL, limit=70_000, ipc=ipc, in_place=in_place)
        bodies: list[bytes] = []
        while len(bodies) < 150:
            size = rng.choice((0, 1, 5, 16, 1023, 1024, 1025, 16_383, 16_384, 70_000, 70_064))
            bodies += [rng.randbytes(size)] * (rng.choice((1, 31, 32, 33, 64, 66)) if size < 2000 else 1)
        wire = sps.hello(sps.PUSH) + b"".join(sp_frame(body, ipc) for body in bodies)
        if case % 4 == 3:
            wire += sp_frame(bytes(70_065), ipc) if rng.random() < 0.5 else b"\2" * 9
        out: list[bytes] = []
        try:
            for chunk in chunks(rng, wire, (3, 100, 700, 5000, 40_000) if case % 5 else (1 << 20,)):
                place = machine.place()
                if place is not None and rng.random() < 0.7:
                    body, there = place
                    part = min(len(body) - there, len(chunk))
                    memmove(id(body) + sps._BODY + there, chunk, part)
                    machine.fill(part, chunk[part:])
                else:
                    machine.feed(chunk)
                machine.take(out, most)
                at = machine.place()
                yield (
                    (*brief(out), machine.begun, machine.more, machine.open, machine.fed, machine.count),
                    (
                        at and (len(at[0]), at[1]),
                        len(machine._data) - machine._pos < machine._have or len(machine._data),
                    ),
                )
                out.clear()
                while machine.more:
                    machine.take(out, most)
        except (BadMessage, TooLarge) as error:
            yield str(error), *brief(out), machine.count
        yield machine.end(), [brief(sps.Machine(sps.PUSH, ipc=ipc).frames(bodies[:count])) for count in (1, 2, 40, 150)]


def websocket(seed: int) -> Iterator[Any]:
    """Play streams of WebSocket frames of all kinds, some invalid, that are received in chunks of any size."""
    rng = Random(seed)
    for case in range(24):
        machine: Machine = joined(limit=70_000, large=rng.choice((10, 32_768)))[case % 2]
        machine._mask = lambda size: (KEY * size)[:size]
        key = KEY if case % 2 else None
        most = rng.choice((1, 7, 100, ALL))
        wire = b""
        for _ in range(40):
            size = rng.choice((0, 1, 16, 125, 126, 2047, 2048, 16_384, 65_535, 65_536, 70_064))
            body = rng.randbytes(size)
            match rng.randrange(9):
                case 0:
                    wire += frame(rng.choice((0x89, 0x8A)), body[:125], key)
                case 1:
                    cut = size // 3
                    wire += frame(2, body[:cut], key) + frame(0x89, b"ping", key) + frame(0x80, body[cut:], key)
                case _:
                    wire += frame(0x82, body, key) * (rng.choice((1, 3, 4, 16, 17, 40, 150)) if size < 2000 else 1)
        if case % 3 == 2:
            first, body = rng.choice(
                ((0x82, bytes(70_065)), (0x81, b"x"), (0x80, b""), (0x88, b"\x03\xe8"), (0x89, bytes(126)))
            )
            wire += frame(first, body, key)
        sizes_sent = [len(b"".join(machine.frames([bytes(size)]))) for size in SIZES]
        assert sizes_sent == [machine.wire_size(size) for size in SIZES]
        yield sizes_sent
        out: list[bytes] = []
        try:
            for chunk in chunks(rng, wire, (3, 100, 700, 5000, 40_000) if case % 5 else (1 << 20,)):
                machine.feed(chunk)
                machine.take(out, most)
                sizes = len(machine._data), len(machine._parts), machine._have
                yield *brief(out), machine.begun, machine.more, machine.fed, machine.count, sizes, machine.ended
                out.clear()
                while machine.more and rng.random() < 0.9:
                    machine.take(out, most)
        except (BadMessage, TooLarge) as error:
            yield str(error), *brief(out), machine.count
        yield [(each[:2], len(each)) for each in machine.to_send], machine.end(), machine.ended


def scanned(seed: int) -> Iterator[Any]:
    """Scan runs of binary frames from any place, cut off at any place, up to any number."""
    rng = Random(seed)
    for case in range(400):
        key = KEY if case % 2 else None
        data = b""
        for _ in range(rng.randrange(1, 5)):
            size = rng.choice((0, 1, 16, 125, 126, 127, 300, 65_536))
            data += frame(0x82, rng.randbytes(size), key) * (rng.choice((1, 2, 5, 20, 40)) if size < 400 else 1)
        data += rng.choice(
            (b"", b"", frame(0x89, b"p", key), frame(0x82, b"", None if key else KEY), b"\x82\xfe\0\x7d")
        )
        data = data[: rng.choice((len(data), len(data), rng.randrange(len(data) + 1)))]
        items: list[bytes] = [b"before"] * rng.randrange(2)
        most, limit = rng.choice((1, 2, 7, 33, ALL)), rng.choice((125, 126, 300, 70_000))
        found = scan(data, 0, most, items, limit, MASKED if key else 0)
        yield case, len(data), found, brief(items)


def topics(seed: int) -> Iterator[Any]:
    """Play subscriptions of many kinds, with the structures that hold them."""
    rng = Random(seed)
    made, known = Topics(), list[bytes]()
    kinds = ("orders.%d.", "a%d", "%06d", "x.y.%d.", "%d/" + "b" * 300 + ".", "c" * 20 + "%d")[seed : seed + 4]
    for growing in (260, -250, 130, -140):
        for step in range(abs(growing)):
            if known and (rng.random() < 0.2) == (growing > 0):
                made.remove(known.pop(rng.randrange(len(known))))
            else:
                kind = kinds[0] if rng.random() < 0.9 else rng.choice(kinds)
                prefix = (kind % rng.randrange(3000)).encode()
                if made.add(prefix):
                    known.append(prefix)
            if step % 7 == 0:
                inside = made.prefixes
                wide = [(group.kind, len(group.members)) for group in inside._wide]
                trie = None if inside._trie is None else len(inside._trie)
                moves = [(move.group.kind, move.joins, len(move.members)) for move in inside._moves]
                messages = [each + b".5" for each in known[-9:]] + [b"orders.1", b"", b"a77"]
                longest = [inside.longest(each) for each in messages]
                yield len(inside), wide, len(inside._few), trie, moves, brief(list(made.select(messages))), longest
    tokens = ("*", "a", "b", "ab", "c")
    routes = Routes[str]()
    for _ in range(40):
        text = ".".join([rng.choice(tokens) for _ in range(rng.randrange(1, 5))] + [">"] * rng.randrange(2))
        pattern = Pattern(text, end=rng.choice((None, " ")))
        yield made.add(pattern), pattern.literal
        routes.add(pattern, text)
        routes.add(rng.choice((b"a.", b"b", b"ab.a", b"a.b.c")), "prefix")
        for _ in range(4):
            message = ".".join(rng.choice(("a", "b", "ab", "c", "")) for _ in range(rng.randrange(1, 6))).encode()
            best = made.patterns.best(message)
            yield message, made.match(message), best and (best.text, best.end), routes.find(message + b" a")
        if rng.random() < 0.4:
            gone = rng.choice(made.patterns.members())
            yield made.remove(gone), made.remove(gone), gone in made, len(made.patterns._tokens)
    for pattern in made.patterns.members():
        made.remove(pattern)
    yield len(made.patterns), len(made.patterns._tokens)


def turns(seed: int) -> Iterator[Any]:
    """Play peers that come, take their turns and leave, with priorities."""
    rng = Random(seed)
    rotation, present, full = Rotation[str](), list[str](), [False]
    lanes = Lanes[str](lambda peer: int(peer) % 3, lambda: present, lambda: full[0])
    for step in range(200):
        peer = str(rng.randrange(6))
        for each in (rotation, lanes):
            match step % 5:
                case 0 | 1:
                    each.add(peer)
                case 2:
                    each.turn(peer)
                case 3:
                    each.discard(peer) if rng.random() < 0.5 else None
            yield each.first(), list(each), peer in each, len(each)
        full[0] = rng.random() < 0.3
        present[:] = rng.sample("012345", rng.randrange(6))
        yield lanes.best(), [lanes.may_take(each) for each in "012345"]
        yield share(step % 9, rng.randrange(5))


def races(seed: int) -> Iterator[Any]:
    """Play tries of a dialer. Times are multiples of 1/8 s: many meet a bound."""
    rng = Random(seed)
    for _ in range(40):
        race, now = Race(rng.randrange(5), rng.choice((0.0, 0.125)), limit_of(rng.randrange(9))), 0.0
        running: list[int] = []
        for _ in range(25):
            step = race.step(now)
            running += step.start
            said: Any = None
            if running and rng.random() < 0.4:
                index = running.pop(rng.randrange(len(running)))
                if rng.random() < 0.1:
                    said = race.connected(index)
                else:
                    race.failed(index, now)
            yield now, list(step.start), list(step.stop), said, race.over, None if race.over else race.due
            now += rng.choice((0.0, 0.125, 0.25, 0.5, 2.0))
        yield interleaved([rng.randrange(9) for _ in range(8)], lambda number: number % 3)


def silences(seed: int) -> Iterator[Any]:
    """Play looks at the TCP_INFO of a connection."""
    rng = Random(seed)
    timeout = (2.5, 5.0, 10.0)[seed]
    answers: Answers | None = None
    now, quiet, out, came = 0.0, 0.0, (1 << 32) - 4, 7
    for step in range(400):
        if rng.random() < 0.15:
            quiet = 0.0
        came += rng.random() < 0.1
        out += rng.choice((0, 0, 1))
        raw = bytearray(rng.randbytes(256))
        raw[0] = rng.choice((1, 1, 1, 1, 7, 8))
        fields = (
            rng.choice((0, 0, 1)),
            int(quiet * 1000),
            int(quiet * 1000) + rng.choice((0, 125)),
            out % (1 << 32),
            came,
        )
        for place, value in zip((24, 52, 56, 136, 140, 144), (*fields, rng.choice((0, 9))), strict=True):
            raw[place : place + 4] = value.to_bytes(4, "little")
        raw[228:232] = rng.choice((0, 9)).to_bytes(4, "little")
        info = parse(bytes(raw)[: rng.choice((256, 256, 231, 232, 147, 148, 100))])
        if step % 50 == 0:
            answers = None
        if info is not None:
            answers = look(answers, info, now, timeout)
            yield info, info.asks_by_keepalive, info.waits_for_window, answers
            yield next_look(answers, info, timeout), is_gone(answers, info, timeout)
        else:
            yield None
        passed = rng.choice((0.25, 0.5, 1.0, 4.0))
        now += passed
        quiet += passed
    yield TCPInfo(0.0, 0, 0, None, 0, 0)


def batch(seed: int) -> Iterator[Any]:
    """Pack and unpack batches of equal and other sizes, some of them damaged."""
    rng = Random(seed)
    for case in range(300):
        size = rng.choice((0, 1, 23, 24, 255, 256, 300, 65_535, 65_536))
        count = rng.choice((1, 2, 23, 24, 33, 64, 70)) if size < 400 else rng.randrange(1, 3)
        items = [rng.randbytes(size) for _ in range(count)]
        if case % 4 == 0:
            items.append(rng.randbytes(rng.choice((0, 1, 24))))
        packed = batches.pack_topic(b"t" * (case % 3), items)
        yield batches.count_topic(packed), crc32(packed)
        topic, rest = batches.split_topic(packed)
        place = rng.randrange(min(6, len(rest)))
        damaged = rest[:place] + bytes((rest[place] ^ (1 << rng.randrange(8)),)) + rest[place + 1 :]
        for body in (rest, damaged, rest[:-1], rest + b"\0"):
            try:
                yield topic, brief(batches.unpack(body, largest=rng.choice((size - 1, size, 1 << 20))))
            except NngkitError as error:
                yield type(error).__name__, str(error)[:40]
