"""A client whose metrics are read, and scrapes of a daemon with many providers, for telemetry.py."""

from __future__ import annotations

import http.client
import statistics
import threading
import time
from functools import partial
from typing import Any

import trio

from _child import Stopwatch, report
from nngkit import Client
from nngkit.discovery.daemon import Daemon
from nngkit.discovery.messages import MAX_RECORDS, SurveyReply, parse_survey_query
from nngkit.discovery.provider import Provider
from nngkit.discovery.settings import DaemonSettings
from nngkit.protocols import Respondent
from nngkit.telemetry import Metrics
from nngkit.testing import aeventually
from nngkit.web.door import Door
from nngkit.web.server import serve

WAIT = 60.0  # seconds for any one event
SCRAPE = 1.0  # seconds between two scrapes
ANY = "tcp://127.0.0.1:0"


async def ask(task: dict[str, Any]) -> None:
    """Call one at a time; with `on` a thread makes the text of the metrics every second."""
    async with Client("answer", addresses=task["url"]) as client:
        await client.wait_for_providers(timeout=WAIT)
        ended = threading.Event()
        if task["on"]:
            metrics = Metrics()
            metrics.watch(client)
            threading.Thread(target=_scrape, args=(metrics, ended), daemon=True).start()
        watch, body = Stopwatch(task), bytes(16)
        more = True
        while more:
            began = time.perf_counter()
            assert await client.request(body, timeout=10.0) == body
            more = watch.add(time.perf_counter() - began)
        ended.set()


def _scrape(metrics: Metrics, ended: threading.Event) -> None:
    while not ended.wait(SCRAPE):
        metrics.text()


async def scrape(task: dict[str, Any]) -> None:
    """Scrape a daemon that knows `providers` providers, again and again."""
    settings = DaemonSettings(listen=(ANY,), query=(ANY,), deadline=10.0, interval=3600.0, text=False)
    metrics = Metrics()
    async with Daemon(settings) as daemon, trio.open_nursery() as nursery:
        for first in range(0, task["providers"], MAX_RECORDS):
            count = min(MAX_RECORDS, task["providers"] - first)
            nursery.start_soon(_announce, daemon.addresses[0], first, count)
        await aeventually(lambda: sum(daemon.stats.discovery.up.values()) == task["providers"], WAIT)
        metrics.watch(daemon)
        door = Door("daemon", {}, metrics=metrics.text)
        server = await nursery.start(partial(serve, door))
        await trio.to_thread.run_sync(_measure, task, server.port, metrics)
        nursery.cancel_scope.cancel()


async def _announce(daemon: str, first: int, count: int) -> None:
    providers = tuple(
        Provider(f"service-{number}", f"tcp://10.0.{number >> 8}.{number & 255}:9000", id=f"{number:012x}")
        for number in range(first, first + count)
    )
    reply = SurveyReply(f"{first:012x}", providers).encode()
    async with Respondent(dial=daemon) as respondent:
        async for survey in respondent:
            if parse_survey_query(survey.body) is not None:
                await survey.areply(reply)


def _measure(task: dict[str, Any], port: int, metrics: Metrics) -> None:
    took: list[float] = []
    size, begun, used = 0, time.perf_counter(), time.process_time()
    while len(took) < 5 or time.perf_counter() - begun < task["seconds"]:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
        at = time.perf_counter()
        client.request("GET", f"/metrics?{len(took)}")
        size = len(client.getresponse().read())
        took.append(time.perf_counter() - at)
        client.close()
        time.sleep(1.05)  # what the door keeps is a second old
    cpu = (time.process_time() - used) / len(took)
    report(p50_us=statistics.median(took) * 1e6, cpu_us=cpu * 1e6, bytes=size, times=len(took))
