"""`nngkit doctor` without a URL: collects what daemons, services and doors say, and how they are reached from here.

Each daemon is asked for its providers, its rounds, and for INFO of its services; each published address is connected
to; each door is read. doctor_findings.py says what is wrong. It changes nothing, and is no peer of what it looks at.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final

import trio

from nngkit.cli.diagnosis import Address, Connected, Finding, Seen
from nngkit.cli.probe import Credentials, certificate_at, look, reach
from nngkit.cli.tools import doctor_findings as said
from nngkit.cli.tools import doctor_machine as machine
from nngkit.discovery.client import DaemonClient
from nngkit.discovery.provider import Status
from nngkit.discovery.questions.values import INFO, deadline
from nngkit.discovery.settings import ClientSettings
from nngkit.errors import BadMessage, ConfigError, NngkitError
from nngkit.protocols import TLS
from nngkit.release import __version__
from nngkit.trust import Trust, chosen, passes

AT_ONCE: Final = 32  # threads that connect
MOST: Final = 256  # published addresses that are looked at: two seconds for each that does not reply
AGAIN: Final = 1.1  # seconds until a door is read again: it keeps an answer for one
READ: Final = 64 << 20  # bytes of metrics


@dataclass
class Network:
    """Result: the findings, clocks and releases by whose they are, and whether anything answered."""

    findings: list[Finding] = field(default_factory=list)
    clocks: dict[str, float] = field(default_factory=dict)
    releases: dict[str, str] = field(default_factory=dict)
    views: list[said.View] = field(default_factory=list)
    answered: bool = False


async def examine(
    settings: ClientSettings,
    daemons: tuple[str, ...],
    doors: tuple[tuple[str, int], ...],
    timeout: float,
    tls: TLS | None,
) -> Network:
    """Examine daemons, what they know, and doors; `timeout`: seconds for each step."""
    network = Network()
    async with trio.open_nursery() as nursery:
        for address in daemons:
            nursery.start_soon(_daemon, network, address, settings.domain, timeout, tls)
        for place in doors:
            nursery.start_soon(_door, network, *place, timeout)
    network.views.sort(key=lambda view: daemons.index(view.address))
    told = said.views(network.views)
    published = await _published(network.views, timeout)
    own = chosen(None)
    if isinstance(own, Trust):
        ending = said.ends(f"the pass of {own.name}", own.own.until, time.time(), own.own.since)
        told += [ending] if ending else []
    told += said.clocks(network.clocks) + said.releases(__version__, network.releases)
    network.findings = [*told, *said.capped(published), *network.findings]
    return network


async def _daemon(network: Network, address: str, domain: str, timeout: float, tls: TLS | None) -> None:
    whose = f"the daemon {address}"
    try:
        async with DaemonClient(address, timeout=timeout, domain=domain, tls=tls) as client:
            await client.rounds(1)  # connected: the next one takes no longer than the way
            asked = time.time()
            rounds = await client.rounds()
            heard = time.time()
            rows = await client.snapshot(everything=True)
            infos = await client.ask(INFO, until=deadline(timeout))
            told = time.time()
    except NngkitError as error:
        seen = await trio.to_thread.run_sync(_look, address, timeout)
        network.findings.append(said.no_daemon(address, str(error), seen))
        return
    network.answered = True
    network.releases[whose] = rounds.release
    if rounds.clock is not None:
        network.clocks[whose] = said.off(rounds.clock, asked, heard)
    for answer in infos.answers:
        service = f"{answer.provider.name} at {answer.provider.address}"
        try:
            facts = answer.fields
        except BadMessage:
            continue
        network.releases[service] = str(facts.get("release", ""))
        if isinstance(clock := facts.get("clock"), float):
            network.clocks[service] = said.off(clock, heard, told)
    network.views.append(said.View(address, rows, rounds.rounds, rounds.silent, _on_network(address)))


def _on_network(daemon: str) -> bool:
    """Return True if other machines can reach the daemon."""
    try:
        place = Address.of(daemon)
    except ConfigError:
        return False
    if place.transport not in ("tcp", "ws"):
        return False
    return not said.loopback(place.host) or not all(map(said.loopback, machine.bound(place.port)))


async def _published(views: list[said.View], timeout: float) -> list[Finding]:
    """Connect to the published addresses."""
    rows = {row.provider.address: row for view in views for row in view.rows if row.state in said.LIVES}
    hidden = {  # the same address here is this machine's
        row.provider.address
        for view in views
        if not said.loopback(said.host_of(view.address))
        for row in view.rows
        if said.loopback(said.host_of(row.provider.address))
    }
    found: list[Finding] = []
    seen: list[Seen] = []
    limiter = trio.CapacityLimiter(AT_ONCE)

    async def one(row: Status) -> None:
        here, more = await trio.to_thread.run_sync(partial(_see, row, timeout), limiter=limiter)
        seen.append(here)
        found.extend(more)

    chosen_rows = [row for address, row in sorted(rows.items()) if address not in hidden]
    async with trio.open_nursery() as nursery:
        for row in chosen_rows[:MOST]:
            nursery.start_soon(one, row)
    if len(chosen_rows) > MOST:
        what = f"{len(chosen_rows) - MOST} of {len(chosen_rows)} published addresses were not looked at"
        found.append(Finding("warning", "left-out", what, "ask `nngkit doctor URL` for one of them"))
    elif chosen_rows and not found:
        found.append(Finding("ok", "published", f"{len(chosen_rows)} published addresses accept connections"))
    return [*sorted(found, key=lambda each: each.what), *said.unprotected(seen)]


def _look(address: str, timeout: float) -> Seen:
    try:
        place = Address.of(address)
    except ConfigError:
        return Seen(Address(address, "inproc", True, "", "", 0, ""))
    if place.tls or place.transport == "ws":
        return reach(place, timeout)
    return look(place, None, Credentials(), timeout)


def _see(row: Status, timeout: float) -> tuple[Seen, list[Finding]]:
    """Look at a published address."""
    seen = _look(row.provider.address, timeout)
    place = seen.address
    alone = seen.connected is Connected.REFUSED and machine.only_loopback(place.host, place.port)
    wrong = said.published(row, seen, only_loopback=alone)
    found = [wrong] if wrong else []
    if place.tls and seen.connected is Connected.YES and place.port:
        _, certificate = certificate_at(place, Credentials().context(check=False), timeout)
        if certificate:
            since, until = (each.timestamp() for each in passes.times(certificate))
            whose = f"the certificate of {row.provider.name} at {row.provider.address}"
            ending = said.ends(whose, until, time.time(), since)
            found += [ending] if ending else []
    return seen, found


async def _door(network: Network, host: str, port: int, timeout: float) -> None:
    """Read readiness and metrics of a daemon's door."""
    where = f"{f'[{host}]' if ':' in host else host}:{port}"
    asked = time.time()
    try:
        status, ready, date = await trio.to_thread.run_sync(_get, f"http://{where}/readyz", timeout)
    except OSError as error:
        why = getattr(error, "reason", None) or error
        advice = "start the daemon with --http, or check host and port"
        network.findings.append(Finding("problem", "no-door", f"no door answers at {where}: {why}", advice))
        return
    heard = time.time()
    network.answered = True
    if date:
        clock = parsedate_to_datetime(date).timestamp()
        network.clocks[f"the door {where}"] = said.off(clock, asked, heard, grain=1.0)
    if status != 200:
        what = f"{where} is not ready: {ready.decode(errors='replace').strip()[:200]}"
        network.findings.append(Finding("problem", "not-ready", what, "see its log"))
    first = later = await _metrics(where, timeout)
    if later is None or first is None:
        what, advice = f"{where} has no /metrics", "install nngkit[telemetry] there"
        network.findings.append(Finding("warning", "no-metrics", what, advice))
        return
    if said.losses(first):
        await trio.sleep(AGAIN)
        later = await _metrics(where, timeout) or first
    found = said.scraped(where, first, later, time.time())
    network.findings += found or [Finding("ok", "door", f"{where}: metrics without a finding")]


async def _metrics(where: str, timeout: float) -> said.Metrics | None:
    try:
        status, body, _ = await trio.to_thread.run_sync(_get, f"http://{where}/metrics", timeout)
    except OSError:
        return None
    return said.metrics_of(body.decode(errors="replace")) if status == 200 else None


def _get(url: str, timeout: float) -> tuple[int, bytes, str]:
    """Return status, body and Date of a page. Raises OSError."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout) as answer:
            return answer.status, answer.read(READ), answer.headers.get("Date", "")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(READ), error.headers.get("Date", "")
