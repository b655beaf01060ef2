"""Counters of a client and of each of its providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from nngkit.calls.pool import Member, Outcome
from nngkit.discovery.provider import Provider, State
from nngkit.histogram import NO_TIMES
from nngkit.instruments import ByCode, Gauge, Instrument, Real, Seconds, Spread, Total


@dataclass(frozen=True, slots=True)
class ProviderStats:
    """One provider as the client sees it. Times are those of replies; None before the first."""

    provider: Provider
    state: State
    connected: Annotated[bool, Instrument("gauge")]
    """True while the provider is connected."""
    ejected: Annotated[bool, Instrument("gauge")]
    """True while it gets no calls, because it failed again and again."""
    share: Real
    """Share of its calls that it gets, below 1 after an ejection."""
    outstanding: Gauge
    """Calls in progress, streams included."""
    requests: Total
    """Attempts sent to the provider."""
    outcomes: Annotated[Mapping[Outcome, int], Instrument("counter", label="outcome")]
    """Ends of attempts: "reply", "error" (of the handler), "refused" (not run); of the network: "timeout", "lost",
    "bad" (unintelligible); "cancelled" (by the caller, or because another attempt of a hedged call won)."""
    mean: Seconds
    """Mean time from request to reply."""
    p50: Seconds
    """Median time from request to reply."""
    p99: Seconds
    """99th percentile of the time from request to reply."""
    times: Spread = NO_TIMES
    """Time from request to reply."""


@dataclass(frozen=True, slots=True)
class ClientStats:
    """Counters of a Client, and its `providers` by address."""

    requests: Total
    """Calls begun by the program."""
    failed: Total
    """Calls that raised."""
    errors: Total
    """Calls that raised an error of the handler."""
    retried: Total
    """Further attempts after one that failed."""
    refused: Total
    """Attempts that a provider refused without running them."""
    hedged: Total
    """Second attempts beside a slow first one."""
    hedge_wins: Total
    """Hedged calls that the second attempt won."""
    over_budget: Total
    """Attempts that the retry budget did not allow."""
    ejections: Total
    """Ejections of providers."""
    failovers: Total
    """Changes to a worse lane."""
    failbacks: Total
    """Returns to a lane that was left."""
    unusable: Gauge
    """Providers whose address cannot be dialed."""
    cancels_dropped: Total
    """Cancellations that were not sent, as too many waited."""
    denied: ByCode
    """Providers that may not offer the service, by code: connections that were ended."""
    providers: Annotated[Mapping[str, ProviderStats], Instrument("label", label="provider")]


def provider_stats(member: Member, now: float) -> ProviderStats:
    """Return the counters of one provider; `now` is time.monotonic()."""
    times = member.times
    return ProviderStats(
        provider=member.provider,
        state=member.state,
        connected=member.connected,
        ejected=member.health.review(now),
        share=member.health.share(now),
        outstanding=member.outstanding,
        requests=member.requests,
        outcomes={"reply": member.replies, **member.outcomes},
        **times.typical(),
        times=times.distribution(),
    )
