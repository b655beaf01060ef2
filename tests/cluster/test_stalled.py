"""A node whose loop stalls: what came meanwhile is older than the time that has passed."""

from __future__ import annotations

import logging
import time

import pytest
import trio

from nngkit.cluster import Host
from nngkit.cluster.frames import Greeting, greeting_frame
from nngkit.cluster.node import greetings as links
from nngkit.protocols import Bus
from nngkit.testing import eventually

ROUNDS = 8  # trio runs tasks that become ready at once in random order: half of them found the time first
LONG = 0.1  # seconds for a greeting, here


class Stalling(Host):
    """Host whose loop stands still, as that of a process without a processor, while a neighbour greets."""

    def link_up(self, link: int, peer: str, dialed: str | None, who: str | None = None) -> None:
        super().link_up(link, peer, dialed, who)
        time.sleep(2 * LONG)


@pytest.mark.slow
async def test_a_greeting_that_came_during_a_stall_is_in_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(links, "GREETING", LONG)
    caplog.set_level(logging.WARNING, "nngkit.cluster")
    for number in range(ROUNDS):
        async with Stalling("c", listen="tcp://127.0.0.1:0") as host:
            await trio.to_thread.run_sync(_join, host.address, number)
    assert [record.message for record in caplog.records if "greeted" in record.message] == []


def _join(address: str, number: int) -> None:
    with Bus(dial=address, recv_timeout=5.0) as neighbour:
        eventually(lambda: neighbour.pipes)
        neighbour.send(greeting_frame(Greeting("c", f"m{number}", number + 1, voter=False)))
        neighbour.recv()  # the host's greeting
