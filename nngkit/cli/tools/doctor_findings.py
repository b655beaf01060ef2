"""Findings about a network, from the evidence of `nngkit doctor` without a URL. Pure.

::

    clocks({"daemon tcp://ny:5556": 61.0})       # [problem clock]: seconds that its clock is ahead of ours
    scraped("127.0.0.1:9100", metrics_of(text), now)

doctor_network.py collects the evidence of daemons, services and doors, doctor_machine.py that of this machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nngkit.cli.diagnosis import Address, Connected, Finding, Seen, diagnose, problem, problems
from nngkit.discovery.provider import RoundFigures, State, Status

Metrics = dict[tuple[str, str], float]  # by name and labels

SKEW: Final = 2.0  # seconds between two clocks: above, times of records and logs are in another order than the events
VALIDITY: Final = 300.0  # and above these new passes are refused: they begin 5 minutes before they are issued
SHOWN: Final = 8  # findings of one kind; the rest is counted
DAY: Final = 86400.0
PART: Final = 0.1  # of the life of a pass: issuers renew it far earlier
FULL: Final = 0.01  # of a file system that is free: below, a problem
NEARLY_FULL: Final = 0.05  # and below this a warning
DESCRIPTORS: Final = 0.8  # as in the alerts
BEHIND: Final = 1000  # records, as in the alerts
LIVES: Final = (State.UP, State.SUSPECT, State.DRAINING)
LOSSES: Final = {
    "nngkit_protocols_dropped_total": "messages dropped by sockets",
    "nngkit_fanout_publisher_dropped_total": "messages dropped for slow subscribers",
    "nngkit_fanout_subscriber_dropped_total": "messages dropped by a slow subscriber",
    "nngkit_web_hub_slow_total": "clients of the gateway cut off, as they were slow",
}
_SAMPLE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class View:
    """View of one daemon: its providers, its last rounds, and how many connections have not answered yet.

    Times of both are on one clock. `network`: it listens on more than loopback.
    """

    address: str
    rows: tuple[Status, ...]
    rounds: tuple[RoundFigures, ...]
    silent: int = 0
    network: bool = False


@dataclass(frozen=True, slots=True)
class Disk:
    """A folder: free and all bytes and files of its file system; `writable` by this user."""

    path: str
    free: int
    size: int
    files_free: int
    files: int
    writable: bool


def off(clock: float, asked: float, heard: float, grain: float = 0.0) -> float:
    """Return the seconds that a clock is ahead, at least, if it was read between `asked` and `heard` of ours.

    `grain`: seconds that it was cut to.
    """
    return clock - heard if clock > heard else min(0.0, clock + grain - asked)


def clocks(offsets: Mapping[str, float]) -> list[Finding]:
    """Return a finding for each clock that is off by over SKEW; the keys say whose it is."""
    found = []
    for whose, ahead in offsets.items():
        if abs(ahead) > SKEW:
            way = "ahead of" if ahead > 0 else "behind"
            harm = "passes may be refused" if abs(ahead) > VALIDITY else "times of logs and records mislead"
            what = f"the clock of {whose} is {_span(abs(ahead))} {way} this one: {harm}"
            found.append(problem("clock", what, "run an NTP client on both machines (chronyc tracking)"))
    return capped(found) or ([_ok("clock", f"{len(offsets)} clocks are within {SKEW:g} s")] if offsets else [])


def releases(here: str, there: Mapping[str, str]) -> list[Finding]:
    """Return what differs among the releases of nngkit; `there`: by whose it is, "" for one that does not say."""
    others = {whose: release for whose, release in there.items() if release != here}
    if not others:
        return [_ok("release", f"nngkit {here} everywhere")] if there else []
    named = [f"{release or 'an older one'} at {whose}" for whose, release in others.items()]
    what = f"nngkit {here} here, {_several(named)}"
    return [Finding("warning", "release", what, "see docs/upgrading.md for what they can say to each other")]


def views(found: Sequence[View]) -> list[Finding]:
    """Return what daemons say, and where they disagree."""
    findings = []
    for view in found:
        states = Counter(row.state.value for row in view.rows)
        told = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
        findings.append(_ok("daemon", f"{view.address} answers; providers: {told}"))
        findings += capped(_silent(view))
        findings += capped(_loopback(view))
    return findings + capped(_disagreements(found))


def _silent(view: View) -> list[Finding]:
    found = []
    if view.silent:
        what = f"{view.silent} connections of {view.address} have answered no survey yet"
        advice = "they are stopped, or no services: `ss -tnp` on their machines names them; at a start ask again"
        found.append(Finding("warning", "half-open", what, advice))
    for row in view.rows:
        if row.state is State.SUSPECT and row.pipes:
            what = f"{_named(row)} is connected to {view.address}, and has missed {row.misses} surveys"
            found.append(problem("half-open", what, "its process is stopped or blocked: see its log, restart it"))
    return found


def _loopback(view: View) -> list[Finding]:
    return [
        problem(
            "loopback-published",
            f"{_named(row)} is published to all callers of {view.address}, and only its own machine can dial it",
            "have it listen at an address of the network (--listen tcp://0.0.0.0:PORT, or NNGKIT_SERVICE_HOST)",
        )
        for row in view.rows
        if view.network and row.state is not State.DOWN and loopback(host_of(row.provider.address))
    ]


def _disagreements(found: Sequence[View]) -> list[Finding]:
    """Return the providers that one daemon knows, and another not after a whole round since."""
    differ = []
    for one in found:
        for row in one.rows:
            if row.state is not State.UP:
                continue
            for other in found:
                if other is one or not any(each.started > row.since for each in other.rounds):
                    continue
                theirs = next((each for each in other.rows if each.provider.key == row.provider.key), None)
                if theirs is None or theirs.state in (State.DOWN, State.SUSPECT):
                    state = "unknown" if theirs is None else theirs.state.value
                    what = f"{_named(row)} is up at {one.address}, and {state} at {other.address}"
                    advice = "give it both daemons (--discovery), and check that it can connect to them"
                    differ.append(problem("disagree", what, advice))
    return differ


def published(row: Status, seen: Seen, *, only_loopback: bool) -> Finding | None:
    """Return what is wrong with the address that a service is published under; `seen` from here. None: nothing.

    `only_loopback`: the address is this machine's, and its port listens on loopback alone.
    """
    named = _named(row)
    match seen.connected:
        case Connected.NOT_FOUND:
            what = f"{named} has a host name that has no address here ({seen.detail})"
            return problem("unresolved", what, "publish a numeric address, or add the name to the DNS of callers")
        case Connected.REFUSED if only_loopback:
            what = f"{named} is published, and its port listens at 127.0.0.1 alone"
            return problem("loopback-only", what, "have it listen at the published address, or at 0.0.0.0")
        case Connected.REFUSED:
            what = f"{named} answers its daemon, and nothing listens at its address"
            return problem("refused", what, "it is published under a wrong host or port: compare NNGKIT_SERVICE_PORT")
        case Connected.TIMED_OUT:
            what = f"{named} answers its daemon, and connections to its address time out"
            return problem("firewall", what, "a firewall drops the packets: admit its port, or listen at another")
        case Connected.YES if not (seen.greeting or seen.address.tls or seen.address.transport == "ws"):
            worst = problems(diagnose(seen, None).findings)
            code = "half-open" if worst and worst[0].code == "silent" else worst[0].code if worst else ""
            return problem(code, f"{named}: {worst[0].what}", worst[0].advice) if worst else None
        case Connected.YES:
            return None
        case _:
            return problem("unreachable", f"{named} cannot be reached: {seen.detail}", "check routes and firewalls")


def unprotected(seen: Iterable[Seen]) -> list[Finding]:
    """Return a warning for the listeners that let strangers of the network in."""
    open_ = {each.address.url for each in seen if each.greeting and not loopback(each.address.host)}
    if not open_:
        return []
    what = f"listeners without a pass or TLS, which the network can reach: {_several(sorted(open_))}"
    return [Finding("warning", "unprotected", what, "give each a pass (docs/trust.md), or keep strangers off it")]


def no_daemon(address: str, error: str, seen: Seen) -> Finding:
    """Return why a daemon did not answer."""
    worst = problems(diagnose(seen, "req").findings)
    if worst:
        return problem("no-daemon", f"no discovery daemon answers at {address}: {worst[0].what}", worst[0].advice)
    return problem("no-daemon", f"no discovery daemon answers at {address}: {error}", None)


def ends(whose: str, until: float, now: float, since: float | None = None) -> Finding | None:
    """Return whether a pass or certificate ends soon: within a day, or a tenth of its life if that is known."""
    left = until - now
    if left > (DAY if since is None else PART * (until - since)):
        return None
    advice = "renew it: its issuer does not (`nngkit trust show`, and the log of `nngkit trust serve`)"
    if left <= 0:
        return problem("pass-ended", f"{whose} has ended {_span(-left)} ago", advice)
    return problem("pass-ends", f"{whose} ends in {_span(left)}", advice)


def metrics_of(text: str) -> Metrics:
    """Read Prometheus's text: values by name and labels.

    >>> metrics_of('# HELP a b\\na{x="1"} 2\\n')
    {('a', 'x="1"'): 2.0}
    """
    return {(name, labels): float(value) for name, labels, value in _SAMPLE.findall(text)}


def scraped(where: str, first: Metrics, later: Metrics, now: float) -> list[Finding]:
    """Return what the metrics of a daemon show; `later`: the same, a moment later. `now`: seconds since 1970."""
    found = []
    for name, what in LOSSES.items():
        lost, more = (sum(value for key, value in each.items() if key[0] == name) for each in (first, later))
        if more:
            text = f"{where}: {more:.0f} {what} since its start, {more - lost:.0f} of them just now"
            advice = "a receiver is too slow or its queue too short: `nngkit top`, docs/slow-subscribers.md"
            found.append(Finding("warning", "dropping", text, advice))
    for (name, labels), value in later.items():
        match name:
            case "nngkit_fanout_durable_behind" if value > BEHIND:
                what = f"{where}: the consumer {_label(labels, 'consumer')} is {value:.0f} records behind"
                found.append(Finding("warning", "behind", what, "run more consumers of that name"))
            case "nngkit_journal_recorder_failure" if value > 0:
                what = f"{where}: its recorder cannot write partition {_label(labels, 'partition')}"
                found.append(problem("recorder-fails", what, "its log has the reason; mostly the disk is full"))
            case "nngkit_trust_until_seconds":
                ending = ends(f"the pass of {_label(labels, 'name')} at {where}", value, now)
                found += [ending] if ending else []
    opened, most = (later.get((f"process_{each}_fds", ""), 0.0) for each in ("open", "max"))
    if most and opened / most > DESCRIPTORS:
        what = f"{where} has {opened:.0f} of {most:.0f} descriptors open"
        found.append(Finding("warning", "descriptors", what, "raise LimitNOFILE, or bound its peers by --max-pipes"))
    return found


def losses(metrics: Metrics) -> bool:
    """Return True if there are losses, so that a second look tells whether they go on."""
    return any(value for (name, _), value in metrics.items() if name in LOSSES)


def disk(seen: Disk) -> Finding:
    """Return whether a folder can take more."""
    share = seen.free / seen.size if seen.size else 1.0
    files = seen.files_free / seen.files if seen.files else 1.0
    free = f"{seen.path}: {seen.free / 2**20:,.0f} MiB of {seen.size / 2**20:,.0f} are free"
    if not seen.writable:
        return problem("disk", f"{seen.path} cannot be written by this user", "check owner, mode and mount")
    for part, of in ((share, free), (files, f"{seen.path}: {seen.files_free} of {seen.files} files can be added")):
        if part < NEARLY_FULL:
            advice = "delete what is not needed, shorten the retention, or move it to a larger disk"
            return Finding("problem" if part < FULL else "warning", "disk-full", of, advice)
    return _ok("disk", free)


def host_of(url: str) -> str:
    """Return the host of an address; "" if it has none."""
    try:
        return Address.of(url).host
    except ValueError:
        return ""


def loopback(host: str) -> bool:
    """Return True for the hosts that only this machine reaches."""
    return host == "localhost" or host == "::1" or host.startswith("127.")


def capped(findings: Sequence[Finding]) -> list[Finding]:
    """Return the first findings, and how many more there are of the kind."""
    if len(findings) <= SHOWN:
        return list(findings)
    first = findings[0]
    rest = f"and {len(findings) - SHOWN} more of these"
    return [*findings[:SHOWN], Finding(first.level, first.code, rest, first.advice)]


def _named(row: Status) -> str:
    return f"{row.provider.name} at {row.provider.address}"


def _several(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return ", ".join(texts[:SHOWN]) + more


def _label(labels: str, name: str) -> str:
    found = re.search(rf'(?:^|,){name}="([^"]*)"', labels)
    return found[1] if found else "?"


def _span(seconds: float) -> str:
    for unit, size in (("days", DAY), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def _ok(code: str, what: str) -> Finding:
    return Finding("ok", code, what)
