"""Transfers of large updates in chunks arrive unchanged or not at all."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from nngkit.documents.sync.messages import CHUNKS, MOST_CHUNKS, Chunk, Chunks, Manifest
from nngkit.documents.sync.transfers import CHUNK, KEPT, MOST_KEPT, Assembly, Transfers
from nngkit.documents.versions import EditStream
from nngkit.errors import BadMessage, TooLarge

ADA = EditStream(b"adaadaad", 1)
NAME = b"n" * 16
LIMIT = 1 << 30


def data(size: int, seed: int = 1) -> bytes:
    return Random(seed).randbytes(size)


def offer(transfers: Transfers, update: bytes, *, name: bytes = NAME, now: float = 0.0) -> Manifest:
    manifest = transfers.offer(update, name=name, now=now)
    assert isinstance(manifest, Manifest)
    return manifest


def fetch(transfers: Transfers, assembly: Assembly, now: float = 0.0) -> bytes:
    for indexes in assembly.wanted():
        assert len(indexes) <= CHUNKS
        assembly.take(Chunks(ADA, NAME, transfers.chunks(assembly.manifest.transfer, indexes, now)))
    return assembly.whole()


@pytest.mark.parametrize("size", [0, 1, CHUNK])
def test_small_update_is_not_a_transfer(size: int) -> None:
    assert Transfers().offer(data(size), name=NAME, now=0.0) == data(size)


@pytest.mark.parametrize("size", [CHUNK + 1, 2 * CHUNK, 9 * CHUNK + 5])
def test_large_update_is_transferred_unchanged(size: int) -> None:
    transfers = Transfers()
    manifest = offer(transfers, data(size))
    assert len(manifest.chunks) == -(-size // CHUNK)
    assert fetch(transfers, Assembly(manifest, limit=LIMIT)) == data(size)


def test_update_is_split_once_for_several_peers() -> None:
    transfers = Transfers()
    first = offer(transfers, data(3 * CHUNK))
    assert transfers.offer(data(3 * CHUNK), name=b"m" * 16, now=1.0) is first


def test_an_update_that_is_offered_again_is_kept_from_then_on() -> None:
    transfers = Transfers()
    offer(transfers, data(CHUNK + 1))
    offer(transfers, data(CHUNK + 1), now=KEPT - 1)
    assert transfers.chunks(NAME, (0,), 2 * KEPT - 2)
    assert transfers.chunks(NAME, (1,), 3 * KEPT - 3)  # so does a request
    assert not transfers.chunks(NAME, (0,), 4 * KEPT)


def test_too_large_update_is_not_offered() -> None:
    class Giant(bytes):
        def __len__(self) -> int:
            return CHUNK * MOST_CHUNKS + 1

    with pytest.raises(TooLarge):
        Transfers().offer(Giant(), name=NAME, now=0.0)


def test_too_large_manifest_is_rejected_before_fetching() -> None:
    with pytest.raises(TooLarge, match="ada"):
        Assembly(Manifest(NAME, LIMIT + 1, CHUNK, b"w" * 32, (b"1" * 32,) * MOST_CHUNKS), limit=LIMIT, peer="ada")


@pytest.mark.parametrize("how", ["another's bytes", "cut short", "another chunk", "a chunk too many"])
def test_chunk_with_a_wrong_hash_rejects_the_whole_reply(how: str) -> None:
    transfers = Transfers()
    manifest = offer(transfers, data(3 * CHUNK))
    good = transfers.chunks(NAME, (0, 1, 2), 0.0)
    bad = {
        "another's bytes": Chunk(1, data(CHUNK, seed=2)),
        "cut short": Chunk(1, good[1].data[:-1]),
        "another chunk": Chunk(1, good[0].data),
        "a chunk too many": Chunk(3, good[1].data),
    }[how]
    assembly = Assembly(manifest, limit=LIMIT, peer="ada")
    with pytest.raises(BadMessage, match="ada"):
        assembly.take(Chunks(ADA, NAME, (good[0], bad)))
    assert list(assembly.wanted()) == [(0, 1, 2)]
    assert fetch(transfers, assembly) == data(3 * CHUNK)


def test_assembled_update_must_match_the_manifest() -> None:
    transfers = Transfers()
    manifest = offer(transfers, data(3 * CHUNK))
    chunks = Chunks(ADA, NAME, transfers.chunks(NAME, (0, 1, 2), 0.0))
    for wrong in (replace(manifest, size=manifest.size - 1), replace(manifest, sha256=b"w" * 32)):
        assembly = Assembly(wrong, limit=LIMIT, peer="ada")
        with pytest.raises(BadMessage, match="incomplete"):
            assembly.whole()
        assembly.take(chunks)
        with pytest.raises(BadMessage, match="does not match the manifest"):
            assembly.whole()


def test_unknown_transfer_is_empty_and_invalid_index_is_rejected() -> None:
    transfers = Transfers()
    assert transfers.chunks(NAME, (0,), 0.0) == ()
    offer(transfers, data(2 * CHUNK))
    with pytest.raises(BadMessage):
        transfers.chunks(NAME, (2,), 0.0)


def test_transfer_is_kept_after_its_last_use() -> None:
    transfers = Transfers()
    offer(transfers, data(2 * CHUNK))
    assert transfers.chunks(NAME, (0,), KEPT - 1)
    assert transfers.chunks(NAME, (1,), 2 * KEPT - 2)
    assert transfers.chunks(NAME, (1,), 3 * KEPT) == ()


def test_least_recently_used_transfers_are_dropped() -> None:
    transfers = Transfers()
    for number in range(MOST_KEPT):
        offer(transfers, data(CHUNK + 1, number), name=bytes([number] * 16), now=number / 100)
    transfers.chunks(bytes(16), (0,), 1.0)
    offer(transfers, data(CHUNK + 1, 99), name=NAME, now=1.0)
    assert transfers.chunks(bytes(16), (0,), 1.0)
    assert transfers.chunks(bytes([1] * 16), (0,), 1.0) == ()


def test_single_transfer_may_exceed_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nngkit.documents.sync.transfers.MOST_BYTES", 3 * CHUNK)
    transfers = Transfers()
    offer(transfers, data(2 * CHUNK, 1), name=b"1" * 16)
    offer(transfers, data(5 * CHUNK, 2), name=b"2" * 16)
    assert transfers.chunks(b"1" * 16, (0,), 0.0) == ()
    assert transfers.chunks(b"2" * 16, (0,), 0.0)
