"""A publisher whose subscribers have different rights, and the subscribers. A message that is dropped ends the run."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import trio

from _child import Meter, as_many_files_as_allowed, fail, report
from nngkit import Publisher
from nngkit.protocols import Sub
from nngkit.trust import Folder, Trust, passes
from nngkit.trust.trust import POLICY, SIGNATURE

CLASSES = 20  # of 50 subscribers each: all may have the topic that is published, and one that is not
MANY = 50
STEP = 8  # messages of one call, so that publisher and subscribers are not busy all the time ...
PAUSE = 0.1  # ... as seconds between two calls


async def publish(task: dict[str, Any]) -> None:
    """Publish to all of them, with or without a policy."""
    as_many_files_as_allowed()
    folder = Folder.new(tempfile.mkdtemp(dir=Path(task["processes"]).parent), "bench")
    roles = "".join(
        f'[role.r{number}]\nnames = ["class{number}"]\nsubscribe = ["all", "class{number}"]\n'
        for number in range(CLASSES)
    )
    (folder.path / POLICY).write_text(
        f'realm = "bench"\nversion = 1\n{roles}[role.hub]\nnames = ["hub"]\npublish = [""]\n'
    )
    folder.sign()
    if not task["policy"]:
        (folder.path / POLICY).unlink()
        (folder.path / SIGNATURE).unlink()
    names = ["hub", *(f"class{number}" for number in range(CLASSES))]
    for name in names:
        passes.write(folder.path / f"{name}.pass", folder.realm.issue(name))
    async with Publisher(task["url"], trust=Trust(folder.path / "hub.pass"), heartbeat=10.0) as publisher:
        report(url=publisher.address, folder=str(folder.path))
        await publisher.wait_for_peers(CLASSES * MANY, 60.0)
        meter = Meter(task)
        messages = [(b"all", bytes(task["size"]))] * STEP
        while True:
            publisher.publish_many(messages)
            await trio.sleep(PAUSE)
            if publisher.stats.dropped:
                fail(f"{publisher.stats.dropped} dropped")
            if not meter.add(STEP):
                return


def subscribe(task: dict[str, Any]) -> None:
    """Connect, and leave what is received to the receive queues."""
    as_many_files_as_allowed()
    with ExitStack() as stack:
        for number in range(CLASSES):
            sub = stack.enter_context(Sub(topics=b"", trust=Trust(Path(task["folder"], f"class{number}.pass"))))
            for _ in range(MANY):
                sub.dial(task["url"])
        time.sleep(1e6)
