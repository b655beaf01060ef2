"""Dask distributed as a contender: empty jobs through one scheduler process, done by worker processes.

`submit` is the client's process; it starts the scheduler and the workers. Tuned for empty jobs: `Client.map` and
`gather` of 500 at a time, no dashboard, no nannies, no work stealing, no profiler, no logs of transitions, as many jobs
at a worker as there are. A job's result stays at its worker until it is gathered: it is lost with it, and then the job
is done again. Nothing survives the scheduler.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from _tied import TIED

from _child import Meter, fail, report
from _contenders import BOUND, HERE

WAIT = 60.0  # seconds until the workers are up
BATCH = 500  # jobs of one `map`; two are in flight, as 1,000 jobs are with nngkit
SETTINGS = {  # of the configuration, as environment variables of all processes
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION": "inf",
    "DASK_DISTRIBUTED__SCHEDULER__EVENTS_LOG_LENGTH": "0",
    "DASK_DISTRIBUTED__SCHEDULER__TRANSITION_LOG_LENGTH": "0",
    "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "0",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "2s",
}


def _empty(number: int) -> int:
    return number


def _started(role: str, *options: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-W", "ignore", "-m", f"distributed.cli.dask_{role}", "--no-dashboard", *options]
    null = subprocess.DEVNULL
    # in this folder: they import this module for the job
    return subprocess.Popen([*TIED, *words], cwd=HERE, stdout=null, stderr=null)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(BOUND)


def submit(task: dict[str, Any]) -> None:
    """Submit empty jobs to `workers` processes, and count their results."""
    report(url="")
    os.environ |= SETTINGS  # before the first import
    from distributed import Client

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # that the scheduler is gone at the end
    with ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench")), "scheduler.json")
        processes = [_started("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))]
        end = time.monotonic() + WAIT
        while not file.exists():
            if time.monotonic() > end:
                fail("Dask's scheduler does not start")
            time.sleep(0.05)
        options = ("--scheduler-file", str(file), "--nthreads", "1", "--no-nanny")
        processes += [_started("worker", *options) for _ in range(task["workers"])]
        for process in processes:
            stack.callback(_end, process)
        with open(task["processes"], "a") as listed:
            listed.writelines(f"{process.pid}\n" for process in processes)
        client = Client(scheduler_file=str(file), timeout=WAIT)
        stack.callback(client.close, timeout=1.0)
        client.wait_for_workers(task["workers"], timeout=WAIT)
        meter, sent = Meter(task), 0
        meter.check = stack.close  # before the report: this process is killed after it
        batches: deque[tuple[int, list[Any]]] = deque()
        while True:
            while len(batches) < 2:
                # not pure: equal calls are different jobs, which costs a random key instead of a hash
                batches.append((sent, client.map(_empty, range(sent, sent + BATCH), pure=False)))
                sent += BATCH
            first, futures = batches.popleft()
            if client.gather(futures) != list(range(first, first + BATCH)):
                fail("wrong results")
            del futures  # the scheduler forgets them
            if not meter.add(BATCH):
                return
