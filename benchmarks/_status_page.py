"""A status page that is watched while services come and go, for status_page.py.

The page is not changed for it: a script that runs before it listens to the same events, and looks in each frame
whether the tiles show what they told.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import trio
from _tied import TIED

from _child import quantile, report

sys.path.insert(0, str(Path(__file__).parent.parent))  # the browser is the tests'
from nngkit import Service
from nngkit.discovery.messages import MAX_RECORDS, SurveyReply, parse_survey_query
from nngkit.discovery.provider import Provider
from nngkit.protocols import Respondent
from tests.web.browsers import chromium

WAIT = 60.0  # seconds for any one event
ANY = "tcp://127.0.0.1:0"
ANNOUNCERS = 3  # processes
COMING = 100  # services that come and go
FILTERS = ("s", "e", "r", "v", "1", "2")
HOOK = """
window.bench = { changes: [], long: [], open: 0 };
new PerformanceObserver((list) => bench.long.push(...list.getEntries().map((one) => [one.startTime, one.duration])))
  .observe({ type: "longtask", buffered: true });
const rows = new Map();
const waiting = new Map();                                  // by name: the newest change that is not shown
const channel = new MessageChannel();
const after = [];
channel.port1.onmessage = () => after.shift()();
window.painted = (then) => { after.push(then); channel.port2.postMessage(0); };  // then: when it is drawn
const now = () => performance.timeOrigin + performance.now();
const tiles = new Map();
function tile(name) {
  if (!tiles.get(name)?.isConnected) {
    for (const one of document.querySelectorAll("#tiles .service")) tiles.set(one.textContent, one.closest("li"));
  }
  return tiles.get(name);
}
function shows(name) {
  const own = [...(rows.get(name)?.values() || [])];
  const up = own.filter((row) => row.state === "up").length;
  return tile(name)?.querySelector(".count").textContent === `${up} of ${own.length} up`;
}
function look() {
  const shown = [];
  for (const [name, change] of waiting) {
    if (!shows(name)) continue;
    waiting.delete(name);
    shown.push(change);
  }
  if (shown.length) painted(() => {
    const at = now();
    for (const { since, arrived } of shown) bench.changes.push([at - since, at - arrived]);
  });
  if (waiting.size) requestAnimationFrame(look);
}
const Source = window.EventSource;
window.EventSource = class extends Source {
  constructor(url) {
    super(url);
    this.addEventListener("message", (event) => {
      const arrived = now();
      const part = JSON.parse(event.data).services;
      if (!part) return;
      const idle = !waiting.size;
      for (const key of part.gone || []) for (const own of rows.values()) own.delete(key);
      for (const [key, row] of Object.entries(part.set || {})) {
        if (!rows.has(row.name)) rows.set(row.name, new Map());
        rows.get(row.name).set(key, row);
        if (bench.counts && row.name.startsWith("coming")) waiting.set(row.name, { since: row.since * 1000, arrived });
      }
      if (idle && waiting.size) setTimeout(() => requestAnimationFrame(look), 0);
    });
  }
};
"""
TYPE = """
const [key, done] = arguments;
const field = document.getElementById("filter");
const began = performance.now();
field.value = key === "" ? "" : field.value + key;
field.dispatchEvent(new Event("input", { bubbles: true }));
requestAnimationFrame(() => painted(() => done(performance.now() - began)));
"""
SCROLL = """
const [steps, done] = arguments;
const tiles = document.getElementById("tiles");
const times = [];
let last = performance.now();
function step() {
  requestAnimationFrame(() => {
    const at = performance.now();
    times.push(at - last);
    last = at;
    if (times.length === steps) { tiles.scrollTop = 0; done(times); return; }
    tiles.scrollTop += tiles.clientHeight * 0.9;
    step();
  });
}
step();
"""


@contextmanager
def daemon() -> Iterator[tuple[int, str, str]]:
    """Run `nngkit discoverd`; yield its process id, its address for surveys and its URL."""
    words = ("discoverd", "--listen", ANY, "--query", ANY, "--no-history", "--http", "0")
    command = [*TIED, sys.executable, "-m", "nngkit", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            told = ""
            while not (url := re.search(r"answers HTTP at (\S+)", told)) or "surveys at" not in told:
                line = process.stderr.readline()
                assert line, told
                told += line
            listens = re.search(r"surveys at (\S+?),", told)
            assert listens is not None
            yield process.pid, listens[1], url[1]
        finally:
            process.kill()


@contextmanager
def child(function: str, **task: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a function of this module in a process of its own."""
    words = [*TIED, sys.executable, str(Path(__file__).with_name("_child.py")), f"_status_page:{function}"]
    with subprocess.Popen([*words, json.dumps(task)], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def announce(task: dict[str, Any]) -> None:
    """Announce services from `first` to `end`, MAX_RECORDS by a respondent, for ever."""
    async with trio.open_nursery() as nursery:
        for first in range(task["first"], task["end"], MAX_RECORDS):
            nursery.start_soon(_answer, task["daemon"], first, min(task["end"], first + MAX_RECORDS))


async def _answer(daemon: str, first: int, end: int) -> None:
    zones = ("", "ny", "ldn")
    providers = tuple(
        Provider(
            f"service-{number}",
            f"tcp://10.0.{number >> 8}.{number & 255}:9000",
            f"{number:012x}",
            zone=zones[number % 3],
        )
        for number in range(first, end)
    )
    reply = SurveyReply(f"{first:012x}", providers).encode()
    async with Respondent(dial=daemon) as respondent:
        async for survey in respondent:
            if parse_survey_query(survey.body) is not None:
                await survey.areply(reply)


async def change(task: dict[str, Any]) -> None:
    """Have `coming` services; each in turn goes or comes, `rate` times a second, for ever."""

    async def run(place: int, gone: trio.Event) -> None:
        name, address = f"coming-{place:03}", f"tcp://127.0.0.1:{10_000 + place}"
        async with Service(name, address, discovery=task["daemon"], id=f"{place:012x}"):
            await gone.wait()

    there: dict[int, trio.Event] = {}
    number, begin = 0, trio.current_time()
    async with trio.open_nursery() as nursery:
        while True:
            await trio.sleep_until(begin + number / task["rate"])
            place = number * 7 % task["coming"]  # 7: neighbours do not change together
            number += 1
            if (gone := there.pop(place, None)) is not None:
                gone.set()
            else:
                there[place] = trio.Event()
                nursery.start_soon(run, place, there[place])


def watch(task: dict[str, Any]) -> None:
    """Open the page of a daemon, and measure it for `seconds`."""
    with ExitStack() as stack:
        pid, listens, url = stack.enter_context(daemon())
        resting = task["services"] - min(COMING, task["services"] // 2)
        coming = task["services"] - resting
        each = -(-resting // ANNOUNCERS)
        for first in range(0, resting, each):
            stack.enter_context(child("announce", daemon=listens, first=first, end=min(first + each, resting)))
        until = time.monotonic() + WAIT
        while _total(url) < resting:
            assert time.monotonic() < until, "the services are not known"
            time.sleep(0.2)
        driver = stack.enter_context(chromium())
        driver.set_script_timeout(WAIT)
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": HOOK})
        at = time.monotonic()
        driver.get(url)
        counted = (
            "return Number(/[\\d,]+/.exec(document.getElementById('total').textContent || '0')[0].replace(/,/g, ''))"
        )
        while driver.execute_script(counted) < resting:
            assert time.monotonic() - at < WAIT, "the page does not show them"
            time.sleep(0.05)
        driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        opened = time.monotonic() - at
        stack.enter_context(child("change", daemon=listens, rate=task["rate"], coming=coming))
        time.sleep(min(coming / task["rate"] * 1.2, task["seconds"]) + 0.5)  # all of them have come once
        script = driver.execute_script
        script("bench.counts = true; bench.long = []")
        time.sleep(task["seconds"] + 1.0)
        script("bench.counts = false")
        typed = [driver.execute_async_script(TYPE, key) for _ in range(3) for key in (*FILTERS, "")]
        scrolled = driver.execute_async_script(SCROLL, 60)
        tasks = [took for _, took in script("return bench.long")]
        changes = script("return bench.changes")
        if shot := os.environ.get("NNGKIT_BENCH_SCREENSHOT"):
            driver.save_screenshot(shot)
        memory = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        assert memory is not None
        shown, drawn = ([change[place] for change in changes] for place in (0, 1))
        report(
            p50_ms=quantile(shown, 0.5),
            p95_ms=quantile(shown, 0.95),
            drawn_ms=quantile(drawn, 0.95),
            typed_ms=quantile(typed, 0.95),
            scrolled_ms=quantile(scrolled, 0.95),
            long_ms=max(tasks, default=0.0),
            open_ms=opened * 1e3,
            now_mib=int(memory[1]) / 1024,
            times=len(changes),
        )


def _total(url: str) -> int:
    with urllib.request.urlopen(f"{url}v1/services?limit=0", timeout=WAIT) as response:
        return int(json.load(response)["total"])
