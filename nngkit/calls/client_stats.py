"""Counters of a client and of each of its providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nngkit.calls.pool import Member, Outcome
from nngkit.discovery.provider import Provider, State


@dataclass(frozen=True, slots=True)
class ProviderStats:
    """One provider as the client sees it. Times are seconds; None before the first reply.

    outstanding   calls in progress, streams included
    outcomes      ends of attempts: "reply", "error" (of the handler), "refused" (not run); of the network: "timeout",
                  "lost", "bad" (unintelligible); "cancelled" (by the caller, or because another attempt of a hedged
                  call won)
    ejected       it gets no calls, because it failed again and again
    share         of its calls that it gets, below 1 after an ejection
    """

    provider: Provider
    state: State
    connected: bool
    ejected: bool
    share: float
    outstanding: int
    requests: int
    outcomes: Mapping[Outcome, int]
    mean: float | None
    p50: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class ClientStats:
    """Counters of a Client, and its providers by address.

    requests     calls begun by the program, of which `failed` raised, `errors` of them an error of the handler
    retried, hedged   further attempts; over_budget: those that the retry budget did not allow
    hedge_wins   hedged calls that the second attempt won
    refused      attempts that a provider refused without running them
    ejections    of providers; failovers, failbacks: to a worse lane, and back to one that was left
    unusable     providers whose address cannot be dialed
    denied       providers that may not offer the service, by code: connections that were ended
    """

    requests: int
    failed: int
    errors: int
    retried: int
    refused: int
    hedged: int
    hedge_wins: int
    over_budget: int
    ejections: int
    failovers: int
    failbacks: int
    unusable: int
    cancels_dropped: int
    denied: Mapping[str, int]
    providers: Mapping[str, ProviderStats]


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
        mean=times.mean if times.count else None,
        p50=times.at(0.5) if times.count else None,
        p99=times.at(0.99) if times.count else None,
    )
