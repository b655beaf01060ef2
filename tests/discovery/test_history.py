"""The history of a daemon: what it keeps, forgets and tells, and what it says where it cannot be kept."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import pytest
import trio

from nngkit.discovery import Daemon, DaemonClient, DaemonSettings, Service
from nngkit.discovery.history import PAGE, SLACK, Change, History
from nngkit.errors import Broken, ConfigError
from nngkit.testing import aeventually

ANY = "tcp://127.0.0.1:0"
SETTINGS = DaemonSettings(listen=(ANY,), query=(ANY,), interval=0.1, deadline=0.5)


def change(number: int, name: str = "pay") -> Change:
    return Change(1000.0 + number, name, f"tcp://10.0.0.1:{number % 60_000 + 1}", "p1", "up", "down", "pipe lost")


def test_changes_are_read_from_a_time_on_by_name_and_in_pages(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    history.add(change(number) for number in range(2 * PAGE + 5))
    history.add([change(2000, "rent")])
    found: list[Change] = []
    after: int | None = 0
    while after is not None:
        rows, after = history.read(1001.0, "pay", after)
        assert len(rows) <= PAGE
        found += rows
    assert found == [change(number) for number in range(1, 2 * PAGE + 5)]
    assert history.read(0.0, "rent") == ([change(2000, "rent")], None)
    assert os.stat(tmp_path / "history.sqlite").st_mode & 0o777 == 0o600
    history.close()
    again = History(tmp_path / "history.sqlite")
    assert again.read(2990.0) == ([change(2000, "rent")], None)
    again.close()


def test_the_oldest_are_forgotten(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite", most=100)
    for start in range(0, 5000, 500):
        history.add(change(number) for number in range(start, start + 500))
    rows, _ = history.read(0.0)
    assert rows[-1].at - rows[0].at <= PAGE
    assert 1000.0 + 5000 - rows[0].at <= 100 + SLACK + 500
    history.close()


@pytest.mark.parametrize("broken", ["format", "damaged", "missing folder"])
def test_a_file_that_cannot_be_used_is_an_error_in_words(broken: str, tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    if broken == "format":
        base = sqlite3.connect(path)
        base.execute("PRAGMA user_version = 7")
        base.close()
    elif broken == "damaged":
        path.write_bytes(b"no database at all" * 100)
    else:
        path = tmp_path / "none" / "history.sqlite"
    with pytest.raises(ConfigError, match="history"):
        History(path)


async def test_a_daemon_keeps_its_changes_and_tells_them(tmp_path: Path) -> None:
    for lives in (1, 2):  # what the first one kept is there for the second
        history = History(tmp_path / "history.sqlite")
        async with Daemon(SETTINGS, history=history) as daemon, DaemonClient(daemon.query_addresses[0]) as client:
            async with Service("pay", "tcp://127.0.0.1:9", discovery=daemon.addresses[0], sigterm=False):
                await aeventually(lambda: "pay" in daemon.discovery.snapshot())
            async with Service("rent", "tcp://127.0.0.1:9", discovery=daemon.addresses[0], sigterm=False):
                await aeventually(lambda: "rent" in daemon.discovery.snapshot())

            async def states(name: str | None) -> list[str]:
                return [each.state for each in await client.history(60.0, name)]

            with trio.fail_after(15.0):
                while True:
                    if (await states("pay")).count("down") == lives:
                        break
                    await trio.sleep(0.05)
            assert (await states("pay")).count("up") == lives
            assert len(await states(None)) > len(await states("pay"))
            assert all(0.0 <= each.age < 60.0 for each in await client.history(60.0))
        history.close()


async def test_a_daemon_without_a_history_says_so() -> None:
    async with Daemon(SETTINGS) as daemon, DaemonClient(daemon.query_addresses[0]) as client:
        with pytest.raises(Broken, match="this daemon keeps no history"):
            await client.history(60.0)


async def test_a_history_that_fails_is_logged_once_and_the_daemon_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    history = History(tmp_path / "history.sqlite")
    history.close()  # as if its disk had failed
    async with Daemon(SETTINGS, history=history) as daemon, DaemonClient(daemon.query_addresses[0]) as client:
        for name in ("pay", "rent"):
            async with Service(name, "tcp://127.0.0.1:9", discovery=daemon.addresses[0], sigterm=False):
                await aeventually(lambda name=name: name in daemon.discovery.snapshot())  # type: ignore[misc]
                await aeventually(lambda: "changes are not kept" in caplog.text)
        with pytest.raises(Broken):
            await client.history(60.0)
    assert caplog.text.count("changes are not kept") == 1


async def test_changes_that_found_no_free_thread_before_the_end_are_kept(tmp_path: Path) -> None:
    history, threads, taken = History(tmp_path / "history.sqlite"), trio.to_thread.current_default_thread_limiter(), []
    async with Daemon(SETTINGS, history=history) as daemon:
        while threads.available_tokens:
            taken.append(object())
            threads.acquire_on_behalf_of_nowait(taken[-1])
        async with Service("pay", "tcp://127.0.0.1:9", discovery=daemon.addresses[0], sigterm=False):
            await aeventually(lambda: threads.statistics().tasks_waiting > 0)
    for each in taken:
        threads.release_on_behalf_of(each)
    assert "up" in [row.state for row in history.read(0.0, "pay")[0]]
    history.close()


def test_times_are_of_the_wall_clock(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    history.add([change(0)._replace(at=time.time())])
    assert len(history.read(time.time() - 5.0)[0]) == 1
    history.close()
