"""Celery with Redis as a contender: empty jobs through one Redis server, done by worker processes.

`submit` is the submitting process; it starts the server and the workers, which load `app` from this module. Tuned for
empty jobs: no gossip, no heartbeats, no events, no rate limits, JSON, a prefetch of 64, redis-py with its parser in C,
and one single-threaded process for each worker ("solo"; "prefork" has as many processes below one worker). Jobs are
acknowledged before they run, Celery's default: one is lost with its worker. With ``late`` they are acknowledged after
their end, as nngkit's are. With ``results`` each result comes back to the submitter through Redis, and is checked;
without, a job counts once it has left the queue, and nothing comes back.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import ExitStack
from typing import Any

from _redis import redis
from _tied import TIED
from celery import Celery
from redis import Redis

from _child import Meter, fail, report
from _contenders import BOUND, HERE

WAIT = 60.0  # seconds until the workers are up, and for any one result
BATCH = 500  # jobs between two looks at results; two batches are in flight, as 1,000 jobs are with nngkit
QUEUE = 2000  # jobs in the queue without results, before the submitter waits
SETTINGS = "NNGKIT_BENCH_CELERY"  # environment variable of the workers: port, results, late

app = Celery("bench")


def _configure(port: int, results: bool, late: bool) -> None:
    url = f"redis://127.0.0.1:{port}/0"
    app.conf.update(
        broker_url=url,
        result_backend=url if results else None,
        task_ignore_result=not results,
        task_acks_late=late,
        task_serializer="json",
        result_serializer="json",
        accept_content=["json"],
        worker_prefetch_multiplier=64,
        worker_disable_rate_limits=True,
        worker_send_task_events=False,
        task_send_sent_event=False,
        broker_connection_retry_on_startup=True,
        result_expires=60,  # seconds: the results of one measurement, not of a day, in the server's memory
    )


@app.task(name="empty")
def empty(number: int) -> int:
    return number


def _worker(pool: str, number: int, concurrency: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-W", "ignore", "-m", "celery", "--quiet", "--app", "_celery_jobs", "worker"]
    words += ["--pool", pool, "--concurrency", str(concurrency), "--hostname", f"w{number}@bench"]
    words += ["--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    null = subprocess.DEVNULL
    return subprocess.Popen([*TIED, *words], cwd=HERE, start_new_session=True, stdout=null, stderr=null)


def _end(worker: subprocess.Popen[bytes]) -> None:
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait(BOUND)


def _descendants(pid: int) -> list[int]:
    """Return the ids of a process and all that it has started."""
    found, left = list[int](), [pid]
    while left:
        found.append(left.pop())
        for thread in os.listdir(f"/proc/{found[-1]}/task"):
            with open(f"/proc/{found[-1]}/task/{thread}/children") as children:
                left.extend(map(int, children.read().split()))
    return found


def submit(task: dict[str, Any]) -> None:
    """Submit empty jobs to `workers` processes; count their results, or with ``results`` False those that are taken."""
    report(url="")
    with ExitStack() as stack:
        port, server = stack.enter_context(redis())
        settings = (port, task["results"], task.get("late", False))
        _configure(*settings)
        os.environ[SETTINGS] = " ".join(str(int(one)) for one in settings)
        pool, count = task.get("pool", "solo"), task["workers"]
        alone = [(number, 1) for number in range(count)] if pool == "solo" else [(0, count)]
        workers = [_worker(pool, number, concurrency) for number, concurrency in alone]
        for worker in workers:
            stack.callback(_end, worker)
        client = stack.enter_context(Redis(port=port))
        _wait_for(client, len(workers))
        pids = [server, *(pid for worker in workers for pid in _descendants(worker.pid))]
        with open(task["processes"], "a") as listed:
            listed.writelines(f"{pid}\n" for pid in pids)
        meter = Meter(task)
        meter.check = stack.close  # before the report: this process is killed after it
        if task["results"]:
            _with_results(meter)
        else:
            _without_results(meter, client)


def _wait_for(client: Redis, workers: int) -> None:
    """Wait until each worker blocks in its queue."""
    end = time.monotonic() + WAIT
    while sum(each["cmd"] == "brpop" for each in client.client_list()) < workers:
        if time.monotonic() > end:
            fail("the Celery workers do not start")
        time.sleep(0.05)


def _with_results(meter: Meter) -> None:
    sent = 0
    batches: deque[list[Any]] = deque()
    while True:
        while len(batches) < 2:
            batches.append([empty.delay(number) for number in range(sent, sent + BATCH)])
            sent += BATCH
        batch = batches.popleft()
        first = sent - BATCH * (len(batches) + 1)
        # one by one: a ResultSet's join costs half as much again
        for number, result in enumerate(batch, first):
            if (found := result.get(timeout=WAIT)) != number:
                fail(f"{found} instead of {number}")
        if not meter.add(BATCH):
            return


def _without_results(meter: Meter, client: Redis) -> None:
    sent = done = 0
    while True:
        for _ in range(BATCH // 10):
            empty.delay(sent)
            sent += 1
        # waiting, and given to a worker that has not acknowledged them
        while (left := client.llen("celery") + client.hlen("unacked")) > QUEUE:
            time.sleep(0.001)
        taken, done = sent - left - done, sent - left
        if not meter.add(taken):
            return


if SETTINGS in os.environ:  # a worker
    _port, _results, _late = map(int, os.environ[SETTINGS].split())
    _configure(_port, bool(_results), bool(_late))
