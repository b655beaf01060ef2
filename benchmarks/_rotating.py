"""A realm whose key is replaced while a room serves peers that come, stay and go, and a name that is revoked.

What serves, its peers and the issuer are processes of their own. Each step of the rotation is killed in the place of
each of its renames, and made again; while passes take up what it has made, the issuer and one process that serves are
killed, and started again. Passes live for LIFE: they are renewed meanwhile, and connections end with theirs.
"""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import trio
from _restarted import Restarted, ports, said
from _rotating_rooms import PATIENCE, ROOMS, Exchange, Place

from _child import report
from nngkit.errors import ConfigError, NngkitError
from nngkit.testing import eventually
from nngkit.trust import Folder, Trust, passes
from nngkit.trust.policy import RIGHTS

DWELL: Final = 0.5  # seconds, at most, after a step, after a killed one, and until what was killed is started again
SPREAD: Final = 0.2  # seconds within which passes take up what a step has made: the kill hits in between
SETTLED: Final = 30.0  # seconds in which all passes have what a step has made, and the name to be revoked is served
LIFE: Final = 30.0  # seconds of a pass, of which a third goes by until it is renewed
CUT: Final = 2.5  # seconds from the revocation to the end: a name that is not refused in 2 s is seen
EVES: Final = 2.0  # connections a second of the name that is revoked, beside the one that stays
AT_ONCE: Final = 8  # connections of one exchange
AGAIN: Final = 0.05  # seconds after a failure
PARTS: Final = 10  # of a second, by which exchanges are counted
POLICY: Final = """\
realm = "farm"
version = 1
revoked = []

[role.everyone]
names = ["*"]
"""
MADE: Final = 3  # exit code: a step is made already


# ---- the processes ---------------------------------------------------------------------------------------------------


def _place(task: dict[str, Any]) -> Place:
    logging.getLogger("nngkit").setLevel(logging.ERROR)  # the issuer is away, and eve is refused, on purpose
    urls = {role: (first, second) for role, (first, second) in task["urls"].items()}
    return Place(Trust(task["pass"]), task["role"], urls, Path(task["folder"]))


def issue(task: dict[str, Any]) -> None:
    """`nngkit trust serve`, until killed."""
    from nngkit.cli.main import main

    report(ready=True)
    days = f"{LIFE / 86_400:.9f}"
    sys.exit(main(["trust", "serve", "--realm", task["realm"], "--listen", task["issuer"], "--days", days]))


async def serve(task: dict[str, Any]) -> None:
    """Serve the room until killed."""
    at = _place(task)
    async with ROOMS[task["room"]].serve(at):
        report(ready=True)
        await trio.sleep_forever()


class Peers:
    """Peers of one pass: ``in_flight`` exchanges at a time by one connection; ``joins`` a second for one exchange."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._at = _place(task)
        self._enter = ROOMS[task["room"]].enter
        self._in_flight, self._joins, self._pause = task["in_flight"], task["joins"], task["pause"]
        self._done: Counter[int] = Counter()
        self._joined: Counter[int] = Counter()
        self._why: Counter[str] = Counter()
        self._receipts: list[str] = []
        self._passes: set[str] = set()
        self._last = self._longest = 0.0
        self._served = task["served"]

    async def _one(self, exchange: Exchange) -> bool:
        began = time.monotonic()
        try:
            receipt = await exchange()
        except (NngkitError, trio.TooSlowError, AssertionError) as wrong:
            self._failed(wrong)
            await trio.sleep(AGAIN)
            return False
        self._succeeded(began, receipt)
        return True

    def _succeeded(self, began: float, receipt: str) -> None:
        self._last = now = time.monotonic()
        self._longest = max(self._longest, now - began)
        self._done[int(now * PARTS)] += 1
        self._passes.add(self._at.trust.own.serial)
        if self._served:
            Path(self._served).touch()
        if receipt:
            self._receipts.append(receipt)

    def _failed(self, wrong: BaseException) -> None:
        self._why[repr(wrong)[:300]] += 1

    async def _stay(self) -> None:
        async def repeat(exchange: Exchange) -> None:
            while True:
                await self._one(exchange)
                if self._pause:
                    await trio.sleep(self._pause)

        while True:
            try:
                async with self._enter(self._at) as exchange, trio.open_nursery() as nursery:
                    for _ in range(self._in_flight):
                        nursery.start_soon(repeat, exchange)
            except* (NngkitError, trio.TooSlowError) as wrong:
                self._failed(wrong.exceptions[0])
            await trio.sleep(AGAIN)

    async def _come_and_go(self, number: int) -> None:
        period = AT_ONCE / self._joins
        due = time.monotonic() + number * period / AT_ONCE
        while True:
            await trio.sleep(due - time.monotonic() if due > time.monotonic() else 0.0)
            due = max(due + period, time.monotonic())
            try:
                with trio.fail_after(2 * PATIENCE):
                    async with self._enter(self._at) as exchange:
                        if await self._one(exchange):
                            self._joined[int(time.monotonic() * PARTS)] += 1
            except* (NngkitError, trio.TooSlowError) as wrong:
                self._failed(wrong.exceptions[0])
                await trio.sleep(AGAIN)

    async def main(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM) as ended:
            async with trio.open_nursery() as nursery:
                if self._in_flight:
                    nursery.start_soon(self._stay)
                for number in range(AT_ONCE if self._joins else 0):
                    nursery.start_soon(self._come_and_go, number)
                with trio.fail_after(2 * PATIENCE):
                    while not self._done:  # noqa: ASYNC110  # an event would be set for each exchange
                        await trio.sleep(AGAIN)
                report(ready=True)
                async for _ in ended:
                    report(
                        done=list(self._done.items()),
                        joined=list(self._joined.items()),
                        why=self._why,
                        receipts=self._receipts,
                        passes=len(self._passes),
                        last=self._last,
                        longest=self._longest,
                    )


def ask(task: dict[str, Any]) -> None:
    """Be the peers of a pass until SIGTERM, and report their exchanges."""
    trio.run(Peers(task).main)


# ---- the measurement -------------------------------------------------------------------------------------------------


def _step(folder: Path, step: str, left: int) -> None:
    """Make a step of the rotation; be killed in the place of a rename, after ``left`` of them."""
    replace, renames = os.replace, itertools.count()

    def killing(*paths: Any) -> None:
        if next(renames) == left:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*paths)

    os.replace = killing  # type: ignore[assignment]
    try:
        getattr(Folder.open(folder), step)()
    except ConfigError as error:
        if not left or error.what != "rotate":
            raise
        sys.exit(MADE)  # the last one was killed after what makes it done


def _half_done(folder: Path, step: str, dwell: float) -> int:
    """Make a step of the rotation, killed in the place of each rename before; return the number of kills."""
    for number in itertools.count():
        process = multiprocessing.get_context("fork").Process(target=_step, args=(folder, step, number))
        process.start()
        process.join()
        if process.exitcode in (0, MADE):
            return number
        if process.exitcode != -signal.SIGKILL:
            raise SystemExit(f"{step}: exit code {process.exitcode}")
        time.sleep(dwell)
    raise AssertionError


def _settle(folder: Path, paths: Iterable[Path]) -> None:
    """Wait until all passes trust what the realm does, and are signed by it."""
    trusted, end = Folder.open(folder).realm.authorities, time.monotonic() + SETTLED
    while not all(path.read_text().partition("\n")[2].startswith(trusted) for path in paths):
        if time.monotonic() > end:
            raise SystemExit("the passes have not what the step has made")
        time.sleep(0.05)


def _rate(counts: Iterable[tuple[int, int]], begin: float, end: float) -> float:
    """Return the number a second of what was counted in whole parts of this time."""
    first, last = int(begin * PARTS) + 1, int(end * PARTS)
    return PARTS * sum(count for part, count in counts if first <= part < last) / (last - first)


def rotate(task: dict[str, Any]) -> None:
    """Measure one room. ``still``: seconds of the load without a rotation, before it.

    ``pause``: seconds between two exchanges of a connection that stays, and ten times as long between two that join.
    """
    room, folder = ROOMS[task["room"]], Path(task["processes"]).parent
    dwell = min(DWELL, task["still"])
    realm = folder / "realm"
    made = Folder.new(realm, "farm")
    lines = [f'{right} = ["{"" if right in ("publish", "subscribe") else "*"}"]\n' for right in RIGHTS]
    passes.write(realm / "policy.toml", POLICY + "".join(lines))
    made.sign()
    issuer_at, *free = (url.replace("tcp", "tls+tcp") for url in ports(1 + 2 * len(room.roles)))
    clients = [f"client.c{number}" for number in range(room.clients)]
    paths = {name: folder / name / "own.pass" for name in (*room.roles, *clients, "guest", "eve")}
    for name, path in paths.items():
        path.parent.mkdir()
        passes.write(path, made.realm.issue(name, days=LIFE / 86_400, issuer=issuer_at))
        for each in ("policy.toml", "policy.sig"):
            passes.write(path.with_name(each), (realm / each).read_text())
    shared = task | {
        "issuer": issuer_at,
        "realm": str(realm),
        "urls": dict(zip(room.roles, zip(free[::2], free[1::2], strict=True), strict=True)),
        "folder": str(folder),
        "role": "",
        "served": "",
    }
    with ExitStack() as stack:

        def process(function: str, name: str, **more: Any) -> Restarted:
            given = {"pass": str(paths[name])} if name in paths else {}
            made = Restarted(shared | given, f"_rotating:{function}", **more)
            stack.callback(made.kill)
            return made

        issuer = process("issue", "")
        serving = {role: process("serve", role, role=role) for role in room.roles}
        load = [process("ask", name, in_flight=room.in_flight, joins=0.0) for name in clients]
        most = 0.1 / task["pause"] if task["pause"] else room.joins
        load.append(process("ask", "guest", in_flight=0, joins=min(room.joins, most)))
        served = folder / "served"
        eve = process("ask", "eve", in_flight=1, joins=min(EVES, most), served=str(served))
        for several in ((issuer, *serving.values()), (*load, eve)):
            with ThreadPoolExecutor() as pool:
                list(pool.map(Restarted.start, several))
        began = time.monotonic()
        time.sleep(max(task["still"], 3 / PARTS))  # two whole parts at least
        rotating, kills = time.monotonic(), 0
        for number, step in enumerate(("begin", "use", "finish")):
            kills += 2 + _half_done(realm, step, dwell)
            time.sleep(random.uniform(0.0, SPREAD))
            hit = serving[room.hit[number % len(room.hit)]]
            for each in (issuer, hit):
                each.kill()
            time.sleep(dwell)
            with ThreadPoolExecutor() as pool:
                list(pool.map(Restarted.start, (issuer, hit)))
            _settle(realm, paths.values())
            time.sleep(dwell)
        served.unlink(missing_ok=True)  # a name that is not served before would seem to be cut at once
        eventually(served.exists, SETTLED, what="the name to be revoked is served")
        revoked = time.monotonic()
        Folder.open(realm).revoke("eve")
        time.sleep(CUT)
        for each in (*load, eve):
            each.process.terminate()
        *honest, refused = [said(each.process) for each in (*load, eve)]
        why = sum((Counter(each["why"]) for each in honest), Counter[str]())
        if why:
            sys.stderr.write(f"{task['room']}: {dict(why)}\n")
        lost = {}
        if room.missing is not None:
            receipts = [receipt for each in honest for receipt in each["receipts"]]
            lost["lost"] = trio.run(room.missing, _place(shared | {"pass": str(paths["guest"])}), receipts)
    done, joined = ([pair for each in honest for pair in each[kind]] for kind in ("done", "joined"))
    report(  # once all processes have ended: this one may be killed now
        per_second=_rate(done, rotating, revoked),
        still_per_second=_rate(done, began, rotating),
        joins=_rate(joined, rotating, revoked),
        calls=sum(count for _, count in done),
        failed=sum(why.values()),
        **lost,
        max_ms=max(each["longest"] for each in honest) * 1e3,
        times=kills,
        passes=sum(each["passes"] for each in honest),
        cut_ms=max(0.0, refused["last"] - revoked) * 1e3,
    )
