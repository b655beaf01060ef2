"""Histories of the pure modules of the command, of devices and of measurements, for test_decisions.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple
from itertools import pairwise, product
from random import Random
from typing import Any, Final
from unittest.mock import patch

from nngkit.cli import exit_codes
from nngkit.cli.cat.error_texts import nng_reason, posix_reason
from nngkit.cli.cat.splitting import Delimited, Malformed, Records
from nngkit.cli.diagnosis import NUMBERS, Address, Connected, Seen, TlsTrouble, Upgrade, diagnose
from nngkit.cli.doc import differences
from nngkit.cli.doc.editor.rows import DELETIONS, MOVES, TEXTS, Other, Rows, pressed
from nngkit.cli.doc.values import change_fields, from_json, part_text
from nngkit.cli.ports import say_chosen
from nngkit.cli.tools.traffic import Traffic
from nngkit.devices.rings import Place, Reflection, find_ring
from nngkit.documents.engine.codepoints import Delete, Insert, Keep
from nngkit.documents.engine.interface import MISSING, ArrayChange, MapChange, Part, TextChange
from nngkit.errors import BadMessage, Closed, ConfigError, NngkitError, NotFound, TimedOut, Unreachable
from nngkit.histogram import Histogram, milliseconds
from nngkit.silence import Silence

REASONS: Final = (
    *("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "ALERT_UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED"),
    *("CLOSED", "SSLV3_ALERT_HANDSHAKE_FAILURE", "SILENT", "OTHER"),
)
URLS: Final = (
    *("tcp://h:1", "tls+tcp://h:1", "wss://h/p", "ws://h:1/p", "ipc:///tmp/x", "abstract://x", "tcp4://1.2.3.4:5"),
    *("tls+tcp6://[::1]:5", "wss6://h:1", "unix://x", "ws://h:0", "tcp://:9"),
)
SAID: Final = (
    *(
        b"",
        b"\0SP\0\0\x50\0\0",
        b"\0SP\0\0\x51\0\0rest",
        b"\0SP\0\0\x50\0\1",
        b"\0SP\0\0\x07\0\0",
        b"\0SP",
        b"HTTP/1.1 400",
    ),
    *(b"\xff\0\0\0\0\0\0\0\x01", b"\x15\x03\x01", b"\x16\x03\x01", b"SSH-2.0-x\r\n" + bytes(40)),
)


def diagnoses(seed: int) -> Iterator[Any]:
    """Diagnose evidence of every kind: all findings, with their texts and advice."""
    addresses = []
    for url in URLS:
        try:
            addresses.append(Address.of(url))
            yield astuple(addresses[-1])
        except ConfigError as error:
            yield str(error)
    some = addresses[seed::3]
    for address, connected in product(some, Connected):
        yield told(Seen(address, connected, "why"), None)
    secure = [address for address in addresses if address.tls]
    for reason, spoke, shown in product(REASONS, (True, False), (True, False)):
        yield told(Seen(secure[seed], tls=TlsTrouble(reason, "text", None, spoke), shown=shown), "push")
    for code in (2, 9, 10, 18, 19, 20, 21, 62, 64, 5):
        yield told(Seen(secure[seed], tls=TlsTrouble("x", "text", code)), None)
    for address, said, verified, speaks_tls, closed in product(some, SAID, (True, False), (True, False), (True, False)):
        yield told(Seen(address, greeting=said, verified=verified, speaks_tls=speaks_tls, closed=closed), "pull")
        yield told(Seen(address, answer=said, closed=closed), "pull")
    web = next(address for address in addresses if address.transport == "ws")
    for status, greeting in product((None, 101, 200, 400, 404, 426, 501, 500), SAID[:2]):
        yield told(Seen(web, upgrades=(Upgrade("pull", status), Upgrade("bus", 503)), greeting=greeting), "push")
    for mine, peer in product((None, *NUMBERS), NUMBERS):
        yield told(Seen(web, upgrades=(Upgrade(peer, 101),)), mine)


def told(seen: Seen, mine: str | None) -> Any:
    """Return a diagnosis as plain values."""
    found = diagnose(seen, mine)
    return [astuple(finding) for finding in found.findings], found.peer, found.exit_code, found.ok


def edits(seed: int) -> Iterator[Any]:
    """Compare texts that differ in letters, in lines, or nearly everywhere; join and rebase the edits."""
    rng = Random(seed)
    for case in range(160):
        old = "".join(rng.choices("ab\nö", k=rng.randrange(30)))
        new = list(old)
        for _ in range(rng.randrange(6)):
            at = rng.randrange(len(new) + 1)
            new[at : at + rng.randrange(3)] = rng.choices("abx\n", k=rng.randrange(4))
        text = "".join(new)
        with patch.object(differences, "MOST", rng.choice((0, 2, 4, 600))):
            made = differences.edits(old, text)
            yield made, differences.matches(old, text), differences.joined(old, made)
        theirs: list[Any] = []
        at = 0
        while at < len(old):
            step = rng.choice((Keep, Keep, Insert, Delete))
            count = min(rng.randrange(1, 5), len(old) - at)
            theirs.append(Insert("yz"[:count]) if step is Insert else step(count))
            at += 0 if step is Insert else count
        yield differences.rebased(made, tuple(theirs[: rng.choice((len(theirs), case % 4))]))


LETTERS: Final = "ab\n\tö漢😀\u0301\x1b\u200d\u202e🇩 \xa0\x7f"


def rows(seed: int) -> Iterator[Any]:
    """Show texts on screens of any width, with cursors of others, and press keys."""
    rng = Random(seed)
    before: Rows | None = None
    for _ in range(120):
        text = "".join(rng.choices(LETTERS if rng.random() < 0.7 else "ab \n", k=rng.randrange(40)))
        if before is not None and rng.random() < 0.5:
            text = before.text + text[:3]
        made = Rows(text, rng.choice((1, 2, 3, 5, 10, 24)), before)
        before = made
        others = [
            Other(rng.randrange(-1, len(text) + 1), rng.choice(("Ada", "漢" * 9, "A\x1bda")), style)
            for style in ("red", "blue")[: rng.randrange(3)]
        ]
        yield made.starts, [made.column(at) for at in range(len(text) + 1)]
        yield [made.drawn(row, others) for row in range(len(made.starts))]
        for _ in range(8):
            at = rng.randrange(len(text) + 1)
            yield made.moved(at, rng.choice((-4, -1, 1, 4)), rng.randrange(12))
            yield pressed(text, at, rng.choice([*MOVES, *DELETIONS, *TEXTS, "c-t"]), rng.choice(("", "x\r\ny\0")))


def changes(seed: int) -> Iterator[Any]:
    """Report changes of documents as JSON and as text."""
    rng = Random(seed)
    for _ in range(60):
        delta = tuple(
            rng.choice((Keep(rng.randrange(1, 4)), Insert(rng.choice(("hé", "x" * 38, "x" * 39))), Delete(2)))
            for _ in range(rng.randrange(5))
        )
        values = (MISSING, None, 1, b"\0", "text", [float("inf")])
        keys = {key: (rng.choice(values), rng.choice(values)) for key in "abc"[: rng.randrange(4)]}
        lists = tuple(Insert([1, b"x"]) if isinstance(each, Insert) else each for each in delta)
        for odd in ({"$bytes": "YQ="}, {"$bytes": "YWI="}, {"$number": "NaN"}, {"$number": 1}, {"$object": {"a": 1}}):
            try:
                yield repr(from_json(odd))
            except ValueError as error:
                yield str(error)
        parts: list[Part] = [TextChange(("body", 0), delta), ArrayChange(("list",), lists), MapChange(("map",), keys)]
        yield change_fields(parts, rng.choice((None, "tcp://h:1")), "Ada", "noon"), [part_text(part) for part in parts]


def traffic(seed: int) -> Iterator[Any]:
    """Count messages of a few topics and peers."""
    rng, now = Random(seed), 5.0
    made = Traffic(now, (b"a", b"ab", b"", b"\x1b") if seed else (), words=seed != 1)
    for _ in range(120):
        message = rng.choice((b"a", b"ab", b"\x1b", b"c d", b"e|", b"f" * 40, b"", b"\xff\t"))
        made.add(message + bytes(rng.choice((0, 0, 7))), rng.choice((None, "p", "q")), now)
        if rng.random() < 0.3:
            yield [astuple(row) for row in (made.total, *made.rows(now))]
        now += rng.choice((0.0, 0.5, 2.0))


def split(seed: int) -> Iterator[Any]:
    """Split input that comes in pieces of any size, some of it malformed."""
    rng = Random(seed)
    for case in range(120):
        records = [rng.randbytes(rng.choice((0, 1, 5, 300))) for _ in range(rng.randrange(5))]
        wire = b"".join(
            rng.choice((b"\xc5" + len(one).to_bytes(2, "big"), b"\xdb" + len(one).to_bytes(4, "big"))) + one
            for one in records
        )
        wire += rng.choice(
            (
                b"",
                b"\xa3abc",
                b"\xbf" + bytes(31),
                b"\xc4",
                b"\xc4\x05ab",
                b"\x90",
                b"\xc6\x40\0\0\1",
                b"\xc6\x40\0\0\0",
            )
        )
        made: Delimited | Records = Records()
        if case % 2:
            made = Delimited(rng.choice((b"\n", b"ab", b"aab")))
            wire = bytes(rng.choices(b"ab\n", k=30))
        edges = [0, *sorted(rng.sample(range(len(wire) + 1), min(len(wire), 4))), len(wire)]
        for a, b in pairwise(edges):
            try:
                yield made.feed(wire[a:b])
            except Malformed as error:
                yield str(error)
                break
        try:
            yield made.finish(), made.finish()
        except Malformed as error:
            yield str(error)


ERRORS: Final[tuple[NngkitError, ...]] = (
    *(
        TimedOut("recv", 1.0),
        Closed("x"),
        NotFound("x"),
        BadMessage("x", "y"),
        ConfigError("listen", "tcp://h:0: a port from 1"),
    ),
    *(ConfigError("dial", "no transport"), ConfigError("dial", "x is not an address"), ConfigError("x", "needs tls")),
    *(
        Unreachable("tcp://h:1", reason)
        for reason in (
            *("cannot dial: address in use", "timed out"),
            *("cannot listen: other", "cannot listen: not an address of this host"),
        )
    ),
)


def codes(seed: int) -> Iterator[Any]:
    """Return exit codes and texts of errors, alone and in groups."""
    rng = Random(seed)
    for error in ERRORS:
        yield exit_codes.exit_code(error)
        for url in (
            "tcp://h:0",
            "tcp://1.2.3.4:5",
            "tcp://eth0:5",
            "tcp://:5",
            "tcp://h:65536",
            "tcp://1.2:65535",
            "x",
        ):
            yield nng_reason(error, url), posix_reason(error, url)
    for _ in range(30):
        found: BaseException = rng.choice(ERRORS)
        for _ in range(rng.randrange(3)):
            more = rng.sample((*ERRORS, ValueError("x")), rng.randrange(3))
            found = BaseExceptionGroup("some", [found, *more])
        yield repr(exit_codes.only(found))
    lines: list[str] = []
    say_chosen(lines.append, ["tcp://h:0", "tcp://h:09", "ws://h:0/x", "ipc://a:0"], ["a", "b", "c", "d"])
    yield lines


REFLECTIONS: Final[tuple[Reflection, ...]] = ("no", "others", "same")


def rings(seed: int) -> Iterator[Any]:
    """Look for rings among devices."""
    rng = Random(seed)
    urls = (
        "tcp://h:1",
        "tcp4://127.0.0.1:2",
        "tcp://*:2",
        "ws://h:1/a",
        "ws://h:1",
        "ipc://x",
        "unix://x",
        "tcp://localhost:2",
    )
    for _ in range(300):
        places = []
        for _ in range(rng.randrange(1, 6)):
            front, dials, back, dials_back = (tuple(rng.sample(urls, rng.choice((0, 1, 1)))) for _ in range(4))
            reflects = rng.choices(REFLECTIONS, (8, 1, 1))[0]
            places.append(Place(front, dials, back, dials_back, rng.random() < 0.4, reflects))
        yield find_ring(places)


def heartbeats(seed: int) -> Iterator[Any]:
    """Play peers that are heard, fall silent and return. Times are multiples of 1/2 s: many meet a bound."""
    rng, now = Random(seed), 0.0
    made = Silence[str]()
    for _ in range(400):
        pipe = rng.randrange(4)
        match rng.choice(("expect", "heard", "check", "check", "check")):
            case "expect" if rng.random() < 0.3:
                made.expect(f"p{pipe}", rng.choice((0.5, 2.0, float("inf"))))
            case "heard" if pipe and rng.random() < 0.4:
                yield made.heard(pipe, f"p{pipe}", now)
            case "check":
                yield (
                    now,
                    [
                        astuple(each)
                        for each in made.check({n: f"p{n}" for n in range(4) if seed == 0 or rng.random() < 0.96}, now)
                    ],
                )
        now += rng.choice((0.5, 1.0, 1.0, 1.0, 2.0, 2.5)[: 6 if seed else 5])


def measured(seed: int) -> Iterator[Any]:
    """Measure seconds of any length, one by one and many at once."""
    rng = Random(seed)
    made = Histogram()
    yield made.fields(0.5), made.mean, made.at(0.5)
    for _ in range(60):
        some = [rng.choice((0.0, 1e-9, 1e-6, 0.00123, 0.5, 12.3, 1e5)) for _ in range(rng.randrange(4))]
        if rng.random() < 0.5:
            made.add_many(some)
        else:
            for each in some:
                made.add(each)
        shares = [round(made.at(share), 9) for share in (0.0, 0.01, 0.5, 0.99, 1.0)]
        yield made.count, round(made.mean, 6), shares, [float(f"{each:.6g}") for each in (made.least, made.most)]
    yield (
        [milliseconds(each) for each in (None, 0.0, 0.0005, 0.009999, 0.01, 0.0999, 0.1, 5.0)],
        sorted(made.fields(0.5, 0.999)),
    )
