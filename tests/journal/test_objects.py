"""A journal in an object store: moto's S3 server, which compares versions, behind faults of the network."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from nngkit.errors import ConfigError, Damaged
from nngkit.journal import compact, open_journal, read, rebuild_manifest
from nngkit.journal.files import ABSENT, Changed
from nngkit.journal.manifest import Manifest, save_manifest
from nngkit.journal.storage import open_storage
from nngkit.journal.writing.partition import Partition
from nngkit.testing import eventually
from tests.journal.partitions import entry, stored

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]  # importing moto takes a second or two

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Faulty:
    """WSGI application in front of the store, which mistreats the next writes: busy, lost answer, twice, late."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.faults: list[str] = []
        self.seen: list[tuple[str, str]] = []  # method and path

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        self.seen.append((method, environ["PATH_INFO"]))
        if method != "PUT" or not self.faults:
            return self.app(environ, start)
        fault = self.faults.pop(0)
        if fault == "busy":
            return self._busy(environ, start)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        answer: list[Any] = []
        data = b""

        def started(*words: Any) -> None:
            answer.append(words)

        for _ in range(2 if fault == "twice" else 1):
            data = b"".join(self.app({**environ, "wsgi.input": BytesIO(body)}, started))
        if fault == "late":
            time.sleep(0.5)
        if fault == "lost answer":
            start("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        start(*answer[-1])
        return [data]

    def _busy(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start("503 Slow Down", [("Content-Length", "0")])
        return [b""]


class Store:
    def __init__(self, port: int, faulty: Faulty) -> None:
        self.faulty = faulty
        words = "access_key_id=a&secret_access_key=b&region=us-east-1"
        self.query = f"endpoint=http://127.0.0.1:{port}&{words}"

    def uri(self, path: str) -> str:
        return f"s3://bucket/{path}?{self.query}"


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    faulty = Faulty(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, faulty, threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    import boto3  # type: ignore[import-untyped]

    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="bucket")
    yield Store(server.server_port, faulty)
    server.shutdown()
    thread.join()


def sealed(partition: Partition, count: int) -> bool:
    return partition.stats.segments >= count


def recorded(uri: str, spool: Path, count: int, first: int = 0, **options: Any) -> None:
    partition = Partition.open(uri, 0, spool=spool, segment_bytes=1, **options)
    for number in range(count):
        stored(partition, [entry(b"%d" % (first + 3 * number + each)) for each in range(3)])
        eventually(partial(sealed, partition, number + 1))
    partition.close()


def values(uri: str) -> list[bytes]:
    return [each.value for each in read(uri)]


def test_journal_is_sealed_read_merged_and_retired_in_a_bucket(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = store.uri("whole")
    recorded(uri, tmp_path / "spool", 70)
    expected = [b"%d" % each for each in range(210)]
    assert values(uri) == expected
    monkeypatch.setattr("nngkit.journal.writing.merging.STAY", 0.0)
    done = compact(uri, spool=tmp_path / "spool")
    assert done.before == 70
    assert done.after < 8
    assert values(uri) == expected
    recorded(uri, tmp_path / "spool", 2, first=210)
    assert values(uri) == [*expected, *(b"%d" % each for each in range(210, 216))]
    names = set(open_storage(uri).names("partition-00000"))
    manifest = open_journal(uri).manifest(0)
    assert {each.file for each in manifest.segments} <= names
    assert not [name for name in names if name.endswith((".tmp", ".orphan"))]


def test_sealing_lists_nothing_and_writes_each_segment_once(store: Store, tmp_path: Path) -> None:
    uri = store.uri("counted")
    partition = Partition.open(uri, 0, spool=tmp_path, segment_bytes=1)
    stored(partition, [entry(b"0")])
    eventually(lambda: partition.stats.segments == 1)
    store.faulty.seen.clear()
    stored(partition, [entry(b"1")])
    eventually(lambda: partition.stats.segments == 2)
    segment = open_journal(uri).segments(0)[1].file
    place = "/bucket/counted/partition-00000"
    asked = [each for each in store.faulty.seen if each[0] != "GET"]
    assert asked[:4] == [
        ("HEAD", f"{place}/{segment}"),  # is it there?
        ("PUT", f"{place}/{segment}"),
        ("HEAD", f"{place}/{segment}"),  # has all of it arrived?
        ("PUT", f"{place}/manifest.json"),
    ]
    assert ("GET", "/bucket") not in store.faulty.seen
    partition.close()


@pytest.mark.parametrize("fault", ["busy", "lost answer", "twice", "late"])
def test_bucket_that_answers_late_twice_or_503(store: Store, tmp_path: Path, fault: str) -> None:
    uri = store.uri(fault.replace(" ", "-"))
    partition = Partition.open(uri, 0, spool=tmp_path, segment_bytes=1)
    for number in range(6):
        store.faulty.faults = [fault] if number % 2 else ["", fault]  # at the segment, or at the manifest
        stored(partition, [entry(b"%d" % number)])
        eventually(partial(sealed, partition, number + 1), 30)
    partition.close()
    assert partition.failure is None
    assert values(uri) == [b"%d" % each for each in range(6)]


def test_of_two_owners_one_is_refused_and_nothing_is_overwritten(store: Store, tmp_path: Path) -> None:
    uri = store.uri("owners")
    partition = Partition.open(uri, 0, spool=tmp_path / "a", segment_bytes=1)
    stored(partition, [entry(b"first")])
    eventually(lambda: partition.stats.segments == 1)
    with pytest.raises(ConfigError, match="partition 0 belongs to"):
        Partition.open(uri, 0, spool=tmp_path / "b")
    storage = open_storage(uri)
    other = Manifest(0, "another-owner", tag=storage.read("partition-00000/manifest.json")[1])
    save_manifest(storage, other)  # as if it had been opened there at the same moment
    stored(partition, [entry(b"second")])
    eventually(lambda: partition.failure is not None)
    assert "belongs to another-owner now" in str(partition.failure)
    with pytest.raises(ConfigError, match="belongs to another-owner now"):
        save_manifest(storage, partition.manifest)
    assert open_journal(uri).manifest(0).owner == "another-owner"
    partition.close()


def test_two_writers_of_a_file_one_is_told(store: Store) -> None:
    storage = open_storage(store.uri("files"))
    first = storage.replace("a", b"1", ABSENT)
    with pytest.raises(Changed, match="another process has replaced it"):
        storage.replace("a", b"2", ABSENT)
    second = storage.replace("a", b"3", first)
    with pytest.raises(Changed):
        storage.replace("a", b"4", first)
    assert storage.read("a") == (b"3", second)
    with pytest.raises(FileNotFoundError, match="s3://bucket/files/b"):
        storage.read("b")


def test_lost_manifest_and_lost_segment(store: Store, tmp_path: Path) -> None:
    uri = store.uri("lost")
    recorded(uri, tmp_path, 3)
    storage = open_storage(uri)
    storage.remove("partition-00000/manifest.json")
    with pytest.raises(Damaged, match=r"s3://bucket/lost/partition-00000/manifest.json: damaged: the file is missing"):
        values(uri)
    assert len(rebuild_manifest(uri, spool=tmp_path).adopted) == 3
    assert len(values(uri)) == 9
    segment = open_journal(uri).segments(0)[1]
    storage.remove(f"partition-00000/{segment.file}")
    with pytest.raises(Damaged, match=segment.file):
        values(uri)


def test_large_segment_is_uploaded_in_parts(store: Store, tmp_path: Path) -> None:
    uri = store.uri("large")
    partition = Partition.open(uri, 0, spool=tmp_path, segment_bytes=1 << 30)
    chance = random.Random(1)
    stored(partition, [entry(chance.randbytes(1 << 20)) for _ in range(12)])
    store.faulty.seen.clear()
    store.faulty.faults = ["", "busy", "", "lost answer"]
    partition.close()
    parts = [path for method, path in store.faulty.seen if method == "PUT" and path.endswith(".parquet")]
    assert len(parts) >= 3 + 2
    assert open_journal(uri).segments(0)[0].bytes > 12 << 20
    assert len(values(uri)) == 12


def test_settings_of_a_uri_are_in_no_message(store: Store, tmp_path: Path) -> None:
    uri = store.uri("settings")
    recorded(uri, tmp_path / "spool", 1)
    storage = open_storage(uri)
    with pytest.raises(ConfigError) as without_spool:
        Partition.open(uri, 0)
    with pytest.raises(ConfigError) as unknown:
        open_storage(f"{uri}&nonsense=secret")
    with pytest.raises(FileNotFoundError) as missing:
        storage.read("none")
    for error in (without_spool, unknown, missing):
        assert "s3://bucket/settings" in str(error.value)
        assert "secret_access_key" not in str(error.value)
