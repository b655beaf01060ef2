"""Providers, rounds and events of discovery as JSON objects. docs/schemas has their schemas.

`wall` is time.time() minus the clock of the record's times, in seconds: it makes them times of day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nngkit.cli.streams.output import picked, provider_fields, utc

if TYPE_CHECKING:
    from nngkit.discovery.provider import Event, RoundFigures, Status
    from nngkit.discovery.queries import ChangeRecord, RoundsReply


def status_fields(status: Status, wall: float) -> dict[str, Any]:
    """Return a provider and its state; docs/schemas/discover.json."""
    return {
        **provider_fields(status.provider),
        "state": status.state.value,
        "reason": status.reason.value,
        "since": utc(status.since + wall),
        "last_reply": None if status.last_reply is None else utc(status.last_reply + wall),
        **picked(status, "rtt misses stale"),
    }


def rounds_fields(address: str, rounds: RoundsReply, wall: float) -> dict[str, Any]:
    """Return a daemon's last rounds and counters; docs/schemas/discover-rounds.json."""
    return {
        "address": address,
        "daemon": rounds.daemon,
        "silent": rounds.silent,
        "counts": dict(sorted(rounds.counters.items())),
        "rounds": [round_fields(each, wall) for each in rounds.rounds],
    }


def round_fields(each: RoundFigures, wall: float) -> dict[str, Any]:
    """Return the figures of one round."""
    return {
        "number": each.number,
        "reask": each.reask,
        "started": utc(each.started + wall),
        "took": round(each.ended - each.started, 6),
        **picked(each, "asked answered due missed held"),
    }


def change_fields(daemon: str, change: ChangeRecord, at: float) -> dict[str, Any]:
    """Return a change that a daemon has kept, at `at` seconds since 1970; docs/schemas/discover-since.json."""
    return {"time": utc(at), "daemon": daemon, **picked(change, "name address id was state reason")}


def event_fields(event: Event, at: float) -> dict[str, Any]:
    """Return a provider's change of state, at `at` seconds since 1970; docs/schemas/discoverd.json."""
    return {
        "time": utc(at),
        "name": event.name,
        "address": event.provider.address,
        "state": event.new.value,
        "reason": event.reason.value,
        "was": event.old.value,
        "round": event.round,
        **provider_fields(event.provider),
    }
