"""Tables of a gateway: services and where daemons disagree on them, calls by name, topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nngkit.calls import ClientStats
from nngkit.discovery.resolver import Resolver
from nngkit.histogram import BOUNDS, NO_TIMES, Distribution
from nngkit.web.status.feed import Section
from nngkit.web.status.sections import RateOf, poll
from nngkit.web.status.services import services

if TYPE_CHECKING:
    from nngkit.web.gateway.hub import Hub

TOPICS: Final = 100  # shown, the newest
DIFFERENCES: Final = 100  # shown
COMPARE: Final = 5.0  # seconds between two comparisons of the daemons' views


def sections(
    resolver: Resolver,
    clients: Callable[[], Mapping[str, ClientStats]],
    problems: Callable[[], Mapping[str, int]],
    hub: Hub | None,
) -> list[Section]:
    """Return the tables of a gateway."""
    found = [
        services(resolver),
        Section({"daemons": "Discovery daemons that are asked."}, partial(poll, partial(_daemons, resolver))),
        Section(
            {"differences": "Providers on which the daemons disagree."},
            partial(poll, partial(_differences, resolver), every=COMPARE),
        ),
        Section({"calls": "Calls by service, since its client was opened."}, partial(poll, _calls(clients))),
        Section({"problems": "Problems told to clients, by code."}, partial(poll, partial(_problem_rows, problems))),
    ]
    if hub is not None:
        found.append(Section({"topics": "Topics that had a message last."}, partial(poll, _topics(hub))))
    return found


def _daemons(resolver: Resolver) -> dict[str, object]:
    counts = resolver.counts()
    return {
        address: {"address": address, "answers": resolver.answers(address), "providers": counts[address]}
        for address in resolver.daemons
    }


def _differences(resolver: Resolver) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, states in resolver.differences(DIFFERENCES).items():
        seen = {address: "unknown" if state is None else state.value for address, state in states.items()}
        found["|".join(map(str, key))] = {"name": key[0], "address": key[1], "seen": seen}
    return found


def _problem_rows(problems: Callable[[], Mapping[str, int]]) -> dict[str, object]:
    return {code: {"code": code, "count": count} for code, count in problems().items()}


def _calls(clients: Callable[[], Mapping[str, ClientStats]]) -> Callable[[], dict[str, object]]:
    rate_of = RateOf()

    def read() -> dict[str, object]:
        present = clients()
        rates = rate_of({name: each.requests for name, each in present.items()})
        return {name: _call(name, each, rates[name]) for name, each in present.items()}

    return read


def _call(name: str, client: ClientStats, rate: float) -> dict[str, Any]:
    times = sum((each.times for each in client.providers.values()), NO_TIMES)
    return {
        "name": name,
        "rate": rate,
        "calls": client.requests,
        "failed": client.failed,
        "errors": client.errors,
        "running": sum(each.outstanding for each in client.providers.values()),
        "p50": quantile(times, 0.5),
        "p99": quantile(times, 0.99),
    }


def _topics(hub: Hub) -> Callable[[], dict[str, object]]:
    rate_of = RateOf()

    def read() -> dict[str, object]:
        topics = hub.topics(TOPICS)
        names = [topic.decode(errors="replace") for topic, _, _ in topics]
        rates = rate_of({name: number for name, (_, number, _) in zip(names, topics, strict=True)})
        return {
            name: {"topic": name, "rate": rates[name], "messages": number, "streams": streams}
            for name, (_, number, streams) in zip(names, topics, strict=True)
        }

    return read


def quantile(times: Distribution, share: float, bounds: Iterable[float] = BOUNDS) -> float | None:
    """Return a quantile of a distribution, linear within its bucket as Prometheus has it; None without measurements.

    Those above the last bound count as that bound.
    """
    wanted, below, low = share * times.count, 0, 0.0
    if not times.count:
        return None
    for bound, count in zip(bounds, times.counts, strict=True):
        if count >= wanted and count > below:
            return low + (bound - low) * (wanted - below) / (count - below)
        below, low = count, bound
    return low
