"""Readers of bytes, given bytes that are a little wrong, say what was recorded: see tests/driving.py."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from nngkit.documents.engine import codepoints, yjs_update
from nngkit.documents.engine.codepoints import Delete, Insert, Keep, Positions
from nngkit.documents.engine.yjs_update import Pairs, uint
from nngkit.documents.records import Entry, Merge, Record, Saved
from nngkit.documents.store import page_scan, row_format
from nngkit.documents.store.row_format import Facts, Head
from nngkit.documents.versions import EditStream
from nngkit.envelope import MAX_DEPTH
from tests.driving import Drive, driven, names, recorded

EDGES: Final = (127, 128, 2**14, 2**31 - 2, 2**31 - 1, 2**31, 2**53 - 1, 2**53, 2**56)


def damaged(drive: Drive, data: bytes) -> bytes:
    """Return bytes with one fault, or none."""
    rng, out = drive.rng, bytearray(data)
    at = rng.randrange(len(out)) if out else 0
    match rng.randrange(8):
        case 0 if out:
            out[at] = (out[at] + rng.choice((-1, 1))) % 256
        case 1 if out:
            out[at] ^= 1 << rng.randrange(8)
        case 2:
            del out[at:]
        case 3:
            out[at:at] = bytes([rng.choice((0, 1, 127, 128, 255))])
        case 4:
            del out[at : at + 1]
    return bytes(out)


def update_of(drive: Drive) -> bytes:
    """Return an update of few clients, of which nearly all is as it should be."""
    rng = drive.rng

    def number(*usual: int) -> bytes:
        return uint(rng.choice(EDGES) if rng.random() < 0.004 else rng.choice(usual))

    def text() -> bytes:
        some = "".join(rng.choice(("a", "b", "é", "😀")) for _ in range(rng.choice((0, 1, 2, 3, 3)))).encode()
        return uint(len(some)) + some

    def value(depth: int = 0) -> bytes:
        kind = rng.choice((127, 126, 121, 120, 125, 124, 123, 122, 119, 118, 117, 116, 115))
        match kind:
            case 125:
                return bytes([kind, *rng.choice(((1,), (0x80, 1), (0xFF, 0xFF, 2)))])
            case 124:
                return bytes([kind]) + bytes(4)
            case 123 | 122:
                return bytes([kind]) + rng.choice((bytes(8), b"\x7f" + b"\xff" * 7, b"\x7f" + b"\xff" * 6 + b"\xfe"))
            case 119 | 116:
                return bytes([kind]) + text()
            case 118:
                pairs = [text() + value(depth + 1) for _ in range(rng.randint(0, 2) if depth < 3 else 0)]
                return bytes([kind]) + uint(len(pairs)) + b"".join(pairs)
            case 117:
                values = [value(depth + 1) for _ in range(rng.randint(0, 2) if depth < 3 else 0)]
                return bytes([kind]) + uint(len(values)) + b"".join(values)
        return bytes([kind])

    def item() -> bytes:
        kind = rng.choice((0, 1, 3, 4, 4, 4, 6, 7, 8, 8, 10, *(range(12) if rng.random() < 0.05 else ())))
        flags = rng.choice((0x80, 0x80, 0x40, 0xC0, 0x00, 0x20, 0xA0))
        out = bytes([kind | flags])
        if kind in (0, 10):
            return bytes([kind]) + number(1, 2, 3)
        for flag in (0x80, 0x40):
            if flags & flag:
                out += number(1, 2, 3) + number(0, 0, 1, 2, 3)
        if not flags & 0xC0:
            out += b"\x01" + text() if rng.random() < 0.5 else b"\x00" + number(1, 2) + number(0, 1, 2, 3)
            out += text() if flags & 0x20 else b""
        match kind:
            case 1:
                return out + number(1, 2)
            case 3 | 4:
                return out + text()
            case 6:
                return out + text() + text()
            case 7:
                return out + number(0, 1, 2, 2, 3)
            case 8:
                values = [value() for _ in range(rng.choice((1, 1, 2, 0)))]
                return out + uint(len(values)) + b"".join(values)
        return out

    clients = rng.sample((1, 2, 3, 400), rng.choice((0, 1, 2, 3)))
    out = uint(len(clients))
    for client in clients:
        items = [item() for _ in range(rng.choice((1, 1, 2, 3)))]
        out += uint(len(items)) + number(client) + number(0, 0, 1, 2) + b"".join(items)
    out += (deleted := uint(rng.choice((0, 0, 1))))
    if deleted != b"\0":
        out += number(1, 2, 3) + uint(2) + number(0, 1, 3) + number(1, 2) + number(2, 4) + number(1, 3)
    return out + (b"!" if rng.random() < 0.02 else b"")


def updates(drive: Drive) -> None:
    """Read updates of Yjs and state vectors, and look for what they lack and cut."""
    drive.remembers = False
    rng, pairs = drive.rng, Pairs()
    for _ in range(1500):
        data = update_of(drive)
        if rng.random() < 0.2:
            data = damaged(drive, data)
        state = {client: rng.randint(0, 4) for client in rng.sample((1, 2, 3), rng.randint(0, 3))}
        try:
            parsed = yjs_update.parse(data)
        except ValueError as error:
            drive.note(data, type(error), str(error))
        else:
            items = {
                client: [(each.clock, each.end, [at for at in range(-1, 12) if each.splits(at)]) for each in found]
                for client, found in parsed.pairs.items()
            }
            drive.note(data, parsed.ends, parsed.starts, parsed.needs, items, [list(cuts) for cuts in parsed.cuts])
            drive.call(yjs_update.missing, parsed, state)
            drive.call(pairs.cut, parsed, state)
            pairs.note(parsed, state)
            drive.call(yjs_update.in_ascii, data)
            if rng.random() < 0.05:
                pairs = Pairs()
        vector = [rng.choice((1, 2, 300, *EDGES)) if rng.random() < 0.3 else 1 for _ in range(4)]
        drive.call(yjs_update.read_state, damaged(drive, b"\x02" + b"".join(map(uint, vector))))
        drive.step()


def rows(drive: Drive) -> None:
    """Read rows of a store."""
    rng = drive.rng
    ada, bob = EditStream(b"a" * 8, 1), EditStream(b"b" * 8, 1 << 40)

    def versions() -> dict[EditStream, int]:
        return {stream: rng.randint(1, 5) for stream in rng.sample((ada, bob), rng.randint(0, 2))}

    def record() -> Record:
        return Record(ada, rng.randint(1, 9), rng.choice((b"", b"update")), versions())

    pairs: tuple[tuple[Callable[[], bytes], Callable[[bytes], Any]], ...] = (
        (lambda: row_format.encode_facts(Facts(b"o" * 8, 3, b"f", rng.randint(0, 9), 7)), row_format.decode_facts),
        (lambda: row_format.encode_head(Head("n", *(rng.randint(0, 300) for _ in range(10)))), row_format.decode_head),
        (lambda: row_format.encode_saved(Saved("n", 1.5, 9, versions()), 4), row_format.decode_saved),
        (lambda: row_format.encode_record(record(), 7), row_format.decode_record),
        (lambda: row_format.encode_record(record(), 7), row_format.entry_of),
        (lambda: row_format.encode_merge(Merge(b"m", versions()), rng.choice((None, versions())), 7),
         row_format.decode_record),
        (lambda: row_format.encode_merge(Merge(b"m", versions()), rng.choice((None, versions())), 7),
         row_format.base_of),
        (lambda: row_format.encode_content(b"c" * rng.randint(0, 3), versions()), row_format.decode_content),
    )  # fmt: skip
    for _ in range(800):
        encode, decode = rng.choice(pairs)
        data = encode()
        drive.note(data)
        drive.call(decode, damaged(drive, data))
        entries = [Entry(ada, 1, rng.randint(0, 4000) / 1000, 3), Entry(None, 0, 5.0, 6)][: rng.randint(0, 2)]
        assert row_format.decode_history(row_format.encode_history(entries)) == entries
        place, number = rng.randint(0, 3), rng.choice((0, 1, (1 << 40) - 1))
        key = row_format.key(place, number)
        assert row_format.unkey(key) == (place, number)
        table = rng.choice(row_format.TABLES)
        drive.call(row_format.unseal, table, key, damaged(drive, row_format.seal(table, key, data)))
        drive.step()


def positions(drive: Drive) -> None:
    """Edit a text of small blocks, and look how it is cut."""
    rng = drive.rng
    with patch.object(codepoints, "BLOCK", 4), patch.object(codepoints, "GROUP", 3):
        made = Positions("aé😀b" * rng.randint(0, 20))
        for _ in range(300):
            size = len(made)
            first, second = sorted((rng.randint(0, size), min(size, rng.randint(0, size) + rng.choice((0, 40)))))
            match rng.randrange(5):
                case 0 | 1 if size < 150:
                    drive.call(made.insert, first, "".join(rng.choices("aé😀", k=rng.choice((0, 1, 1, 2, 9, 17)))))
                case 2:
                    drive.call(made.delete, first, rng.choice((first, min(size, first + 3), second)))
                case 3:
                    text = made.text(first, second)
                    keep, gone = len(made.text(0, first).encode()), len(text.encode())
                    drive.call(made.follow, (Keep(keep), Delete(gone), Insert("é")) if gone else (Insert("!"),))
                case _:
                    drive.call(made.to_index, rng.randint(0, made.size + 1))
            drive.note(str(made), len(made), made.size, [made.to_bytes(at) for at in (0, min(3, len(made)), len(made))])
            drive.note([(group.blocks, group.sizes) for group in made._groups])  # the cut is what makes it fast
            drive.step()


DRIVES: Final = {"updates": (updates, 4), "rows": (rows, 2), "positions": (positions, 3)}


@pytest.mark.parametrize("name", names(DRIVES))
def test_readers_say_what_was_recorded(name: str) -> None:
    assert driven(DRIVES, name) == recorded(name)


@pytest.mark.parametrize("log", [False, True])
def test_rows_of_all_sizes_are_found_without_their_tree(log: bool) -> None:
    sizes = (0, 1, 110, 111, 112, 113, 114, 4000, *range(4044, 4062), 4500, 8130, *range(8140, 8150), 12_300, 70_000)
    keys = (0, 1, 127, 128, 1 << 14, 1 << 21, (1 << 56) - 1, 1 << 56, (1 << 63) - 1)
    wanted = set()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.sqlite")
        database = sqlite3.connect(path, isolation_level=None)
        database.execute(f"pragma page_size = {page_scan.PAGE}")
        database.execute(f"pragma journal_mode = {'wal' if log else 'delete'}")
        database.execute("pragma wal_autocheckpoint = 0")
        database.execute("create table records (key integer primary key, body blob not null)")
        table = row_format.RECORDS
        header = b"\x03\x00\x00" + table.tag  # of a row with NULL in place of bytes, which no program has written
        wanted.add((8000, header))
        database.execute("insert into records values (?, ?)", (8000, row_format.seal(table, 8000, header)))
        for place, size in enumerate(sizes):
            for key in (1000 + place, keys[place] if place < len(keys) else 5000 + place):
                content = bytes([place + 1]) * size
                wanted.add((key, content))
                database.execute("insert into records values (?, ?)", (key, row_format.seal(table, key, content)))
        files = path.read_bytes(), Path(f"{path}-wal").read_bytes() if log else b""
        database.close()
    assert {(key, content) for each, key, content in page_scan.rows(*files) if each == table} >= wanted


@pytest.mark.parametrize("level", [b"\x75\x01", b"\x76\x01\x01k"])
def test_values_are_nested_up_to_the_limit(level: bytes) -> None:
    def update(levels: int) -> bytes:
        return b"\x01\x01\x01\x00\x08\x01\x01t\x01" + level * levels + b"\x7e\x00"

    yjs_update.parse(update(MAX_DEPTH))
    with pytest.raises(ValueError, match=f"nested more than {MAX_DEPTH} deep"):
        yjs_update.parse(update(MAX_DEPTH + 1))
