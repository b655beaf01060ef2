"""Zenoh for Python: two peers on loopback, one connection, no scouting and no router.

Pipelines use congestion control that blocks, as nothing may be lost; publishers drop under congestion, Zenoh's default.
Subscribers use their default handlers, as in the documentation.
"""

from __future__ import annotations

import itertools
import json
import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import zenoh
import zenoh.shm
from _filled import mark, sum_all
from _prefixes import REST, Received, change, prefix, prefixes, send_at_pace, send_each
from _presence import PAUSE, times
from _restarted import WAIT, Restarted

from _child import fail, report
from _numbered import STEP, Audience, ask_all, numbered, receive_all, send_all

KEY = "bench"
ALIVE = "alive"


def _listening(task: dict[str, Any]) -> Any:
    """Open a session that listens on a port found to be free: Zenoh does not report which one it uses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"tcp/127.0.0.1:{server.getsockname()[1]}"
    session = _session(task, listen=url)
    task["url"] = url
    return session


def _session(task: dict[str, Any], **endpoints: str) -> Any:
    shared_memory = bool(task.get("shared_memory"))
    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    # otherwise messages over 3 KiB go through shared memory instead of TCP
    config.insert_json5("transport/shared_memory/enabled", json.dumps(shared_memory))
    for end in ("listen", "connect"):
        config.insert_json5(f"{end}/endpoints", json.dumps([endpoints[end]] if end in endpoints else []))
    return zenoh.open(config)


def _wait_for(matching: Any) -> None:
    while not matching.matching_status.matching:
        time.sleep(0.001)


def push(task: dict[str, Any]) -> None:
    with _session(task, connect=task["url"]) as session:
        publisher = session.declare_publisher(KEY, congestion_control=zenoh.CongestionControl.BLOCK)
        _wait_for(publisher)
        send_all(publisher.put, task)


def pull(task: dict[str, Any]) -> None:
    with _listening(task) as session:
        recv = session.declare_subscriber(KEY).recv
        report(url=task["url"])

        def once() -> bytes:
            came: bytes = recv().payload.to_bytes()
            return came

        receive_all(once, task)


def reply(task: dict[str, Any]) -> None:
    with _listening(task) as session:
        queries = session.declare_queryable(KEY)
        report(url=task["url"])
        for query in queries:
            with query:
                query.reply(KEY, query.payload)


def ask(task: dict[str, Any]) -> None:
    with _session(task, connect=task["url"]) as session:
        querier = session.declare_querier(KEY)
        _wait_for(querier)

        def once(body: bytes) -> bytes:
            (answer,) = querier.get(payload=body)
            came: bytes = answer.ok.payload.to_bytes()
            return came

        ask_all(once, task)


def publish(task: dict[str, Any]) -> None:
    message = numbered(task["size"])
    with _listening(task) as session:
        report(url=task["url"])
        publisher = session.declare_publisher(KEY)
        while len(session.info.peers_zid()) < task["subscribers"]:
            time.sleep(0.01)
        for number in itertools.count(1):
            publisher.put(message(number))


def subscribe(task: dict[str, Any]) -> None:
    """Subscribe with a session and a thread for each subscriber."""
    audience = Audience(task)

    def read(place: int) -> None:
        with _session(task, connect=task["url"]) as session:
            recv = session.declare_subscriber(KEY).recv
            while True:
                audience.add(place, [recv().payload.to_bytes()])

    for place in range(task["subscribers"]):
        threading.Thread(target=read, args=(place,), daemon=True).start()
    while audience.look():
        time.sleep(audience.PAUSE)


def publish_frames(task: dict[str, Any]) -> None:
    """Publish frames in buffers of Zenoh's shared memory, which Python can only fill as a whole."""
    frame = bytearray(task["size"])
    with _listening(task) as session:
        report(url=task["url"])
        provider = zenoh.shm.ShmProvider.default_backend(1 << 30)
        policy = zenoh.shm.BlockOn(zenoh.shm.GarbageCollect())
        publisher = session.declare_publisher(KEY, congestion_control=zenoh.CongestionControl.BLOCK)
        while len(session.info.peers_zid()) < task["others"]:
            time.sleep(0.01)
        _wait_for(publisher)
        for number in itertools.count():
            mark(frame, number)
            buffer = provider.alloc(task["size"], policy)
            buffer[:] = frame
            publisher.put(buffer)


def subscribe_frames(task: dict[str, Any]) -> None:
    with _session(task, connect=task["url"]) as session:
        recv = session.declare_subscriber(KEY).recv
        sum_all(lambda: recv().payload.to_bytes(), task)  # noqa: PLW0108 - it receives each time


def publish_topics(task: dict[str, Any]) -> None:
    with _session(task, connect=task["url"]) as session:
        rest = len(REST)
        last = prefix({"slash": True}, task["prefixes"] - 1).decode()
        _wait_for(session.declare_publisher(last))
        send_at_pace(send_each(lambda message: session.put(message[:-rest].decode(), message)), task)


def subscribe_topics(task: dict[str, Any]) -> None:
    """Receive from a publisher of many keys, with a subscriber for each and one queue for all of them."""
    arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    with _listening(task) as session:
        callback = lambda sample: arrived.put(sample.payload.to_bytes())  # noqa: E731 - Zenoh wants no other object
        kept = [session.declare_subscriber(each.decode(), callback) for each in sorted(prefixes(task))]
        report(url=task["url"])
        received = Received(task)
        while received.add([arrived.get() for _ in range(STEP)]):
            pass
        assert kept


def change_topics(task: dict[str, Any]) -> None:
    with _listening(task) as session:
        declared: dict[bytes, Any] = {}

        def add(key: bytes) -> None:
            declared[key] = session.declare_subscriber(key.decode(), lambda sample: None)

        change(add, lambda key: declared.pop(key).undeclare(), task)


def announce(task: dict[str, Any]) -> None:
    """Declare `count` liveliness tokens, named after `first` and the following numbers."""
    with _session(task, connect=task["url"]) as session:
        numbers = range(task["first"], task["first"] + task["count"])
        tokens = [session.liveliness().declare_token(f"{ALIVE}/{number}") for number in numbers]
        report(ready=len(tokens))
        threading.Event().wait()


def killed_of(task: dict[str, Any]) -> None:
    """Kill one session with a token among `services` others, `rounds` times; report when a peer has noticed."""
    alive: set[str] = set()
    changed = threading.Condition()

    def came(sample: Any) -> None:
        with changed:
            (alive.add if sample.kind == zenoh.SampleKind.PUT else alive.discard)(str(sample.key_expr))
            changed.notify_all()

    def wait(condition: Callable[[], bool]) -> float:
        began = time.perf_counter()
        with changed:
            if not changed.wait_for(condition, WAIT):
                fail("Zenoh: a change of liveliness did not arrive")
        return time.perf_counter() - began

    found, gone = [], []
    with ExitStack() as stack:
        session = stack.enter_context(_listening(task))
        report(url=task["url"])
        session.liveliness().declare_subscriber(f"{ALIVE}/*", came, history=True)
        crowd = Restarted(task, "_zenoh:announce", first=0, count=task["services"])
        stack.callback(crowd.kill)
        crowd.start()
        wait(lambda: len(alive) == task["services"])
        victim = Restarted(task, "_zenoh:announce", first=1 << 20, count=1)
        stack.callback(victim.kill)
        key = f"{ALIVE}/{1 << 20}"
        for _ in range(task["rounds"]):
            victim.start()
            found.append(wait(lambda: key in alive))
            time.sleep(PAUSE)
            victim.process.kill()
            gone.append(wait(lambda: key not in alive))
            victim.kill()
    report(**times(found, gone))
