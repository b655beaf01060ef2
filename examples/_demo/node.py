"""Node of the demo's cluster, in one of two parts. It reports in JSON lines; SIGTERM ends it.

    voter     may be the host, does jobs, hears the client's messages
    client    submits a job every 20 ms and sends a message to all every 50 ms, until SIGTERM; then waits for results

A job is a number, and its result the square. The client never asks which node is host, or whether there is one.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from typing import Any

import trio

from _demo.cluster_board import JOB, MESSAGE_PACE, PACE
from nngkit import NngkitError
from nngkit.cluster import ClusterMessage, Host, JobRun, Member

LOOK = 0.02  # seconds between two looks at the role: the precision of the demo's figure
REPORT = 0.1  # seconds between two reports of how much was heard


def report(**fields: Any) -> None:
    print(json.dumps({"at": time.monotonic(), **fields}), flush=True)


async def tell_role(node: Host | Member) -> None:
    told: tuple[str, int, str | None] | None = None
    while True:
        role = node.role, node.term, node.host
        if role != told:
            report(role=role[0], term=role[1], host=role[2])
            told = role
        await trio.sleep(LOOK)


async def vote(name: str, voters: dict[str, str]) -> None:
    preference = -sorted(voters).index(name)  # the first one is the first host
    node = Host("demo", listen=voters[name], id=name, voters=voters, preference=preference)
    heard = 0

    @node.work("square", concurrency=2)
    async def square(job: JobRun) -> bytes:
        await trio.sleep(JOB)
        report(done=int(job.payload))
        return str(int(job.payload) ** 2).encode()

    @node.on("tick")
    async def tick(message: ClusterMessage) -> None:
        nonlocal heard
        heard += 1

    async with node, trio.open_nursery() as nursery:
        nursery.start_soon(tell_role, node)
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            nursery.start_soon(end_with, signals, nursery.cancel_scope)
            told = 0
            while True:
                if heard != told:
                    told = heard
                    report(heard=told)
                await trio.sleep(REPORT)


async def call(voters: dict[str, str]) -> None:
    node = Member("demo", dial=voters.values(), id="client")
    counts = {"submitted": 0, "sent": 0}
    stop = trio.Event()

    async def submit(number: int) -> None:
        began = time.monotonic()
        result = b""
        try:
            job = await node.submit("square", str(number).encode())
            result = await job.result()
        except NngkitError as error:
            report(job=number, seconds=time.monotonic() - began, ok=False, why=str(error))
            return
        report(job=number, seconds=time.monotonic() - began, ok=True, wrong=int(result) != number**2)

    async def send() -> None:
        while not stop.is_set():
            counts["sent"] += 1
            await node.send("tick", str(counts["sent"]).encode())
            await trio.sleep(MESSAGE_PACE)

    async with node:
        while len((await node.tree(timeout=None)).members) <= len(voters):  # noqa: ASYNC110
            await trio.sleep(LOOK)
        report(complete=True)
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async with trio.open_nursery() as work:
                work.start_soon(send)
                work.start_soon(set_when, signals, stop)
                due = trio.current_time()
                while not stop.is_set():
                    counts["submitted"] += 1
                    work.start_soon(submit, counts["submitted"])
                    due += PACE
                    with trio.move_on_at(due):
                        await stop.wait()
            report(**counts)
            await anext(signals)  # the others hear the last messages first


async def set_when(signals: Any, event: trio.Event) -> None:
    await anext(signals)
    event.set()


async def end_with(signals: Any, scope: trio.CancelScope) -> None:
    await anext(signals)
    scope.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One node of the demo's cluster.")
    parser.add_argument("name", help="one of the voters, or client")
    parser.add_argument("voters", type=json.loads, help="their addresses by name, as JSON")
    given = parser.parse_args()
    if given.name in given.voters:
        trio.run(vote, given.name, given.voters)
    else:
        trio.run(call, given.voters)
