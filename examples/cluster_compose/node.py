"""A node of the cluster: a voter, if NODE_ID is among VOTERS, or a member that does jobs.

::

    NODE_ID=a VOTERS="a=tcp://127.0.0.1:7000" LISTEN=tcp://127.0.0.1:7000 python3 examples/cluster_compose/node.py

prints its role whenever that changes, the host also the tree, and runs until SIGTERM or Ctrl-C. README.md lists the
variables. Each member does jobs of the kind "square"; one with SUBMIT submits one each second and prints the results.
"""

from __future__ import annotations

import os
import signal
import sys

import trio

from nngkit import NngkitError
from nngkit.cluster import Host, JobRun, Member

NAME = os.environ.get("NODE_ID", "")
CLUSTER = os.environ.get("CLUSTER", "nine")
LISTEN = os.environ.get("LISTEN", "tcp://0.0.0.0:7000")
TOKEN = os.environ.get("TOKEN")
FANOUT = os.environ.get("FANOUT", "2")
STORE = os.environ.get("STORE")
SUBMIT = os.environ.get("SUBMIT", "")
DRAIN = 4.0  # seconds for a goodbye: docker waits for 10 by default


def node(voters: dict[str, str]) -> Host | Member:
    if NAME in voters:
        return Host(CLUSTER, listen=LISTEN, id=NAME, voters=voters, store=STORE, token=TOKEN, fanout=int(FANOUT))
    member = Member(CLUSTER, dial=voters.values(), listen=LISTEN, id=NAME, token=TOKEN, fanout=int(FANOUT))

    @member.work("square", concurrency=2)
    async def square(job: JobRun) -> bytes:
        await trio.sleep(0.2)
        return str(int(job.payload) ** 2).encode()

    return member


async def tell(node: Host | Member) -> None:
    """Print the role of the node when it changes; at the host, the tree."""
    told = ""
    while True:
        news = f"{NAME}: {node.role} of term {node.term}, below {node.parent}"
        if node.role == "host":
            news = "\n".join([f"{NAME}: host of term {node.term}", *(await node.tree()).lines()])
        if news != told:
            print(news, flush=True)
            told = news
        await trio.sleep(1)


async def submit(node: Host | Member) -> None:
    for number in range(1_000_000):
        job = await node.submit("square", str(number).encode(), key=f"square {number}")
        print(f"{NAME}: {number} squared is {(await job.result()).decode()}", flush=True)
        await trio.sleep(1)


async def main() -> None:
    voters = dict(entry.split("=", 1) for entry in os.environ.get("VOTERS", "").split())
    async with node(voters) as this, trio.open_nursery() as nursery:
        nursery.start_soon(tell, this)
        if SUBMIT:
            nursery.start_soon(submit, this)
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            await anext(signals)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True), trio.move_on_after(DRAIN):
            await this.drain()  # children and jobs go to others first


try:
    trio.run(main)
except (NngkitError, ValueError) as error:  # an invalid setting, a port in use
    sys.exit(f"node.py: {error}")
