"""Jobs by name, for `nngkit spark run`: their inputs, and how they may be run. Imports no PySpark."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Given = Literal["rows", "seen", "updates", "ended"]


class Job(NamedTuple):
    """`module`: within nngkit.spark. `given`: the journal's rows, or availability.observations, documents.updates or
    cluster.ended of them.

    `windowed`: takes a window; `gapped`: takes a gap. `stream`: the function for a stream, "" if batch only.
    `watermark`: the column of a stream's watermark.
    """

    what: str
    module: str
    function: str
    given: Given = "rows"
    windowed: bool = False
    stream: str = ""
    watermark: str = "timestamp"
    gapped: bool = False


def _windowed(what: str, module: str, function: str, given: Given = "rows") -> Job:
    """Return a windowed job, which streams with the same function."""
    return Job(what, module, function, given, True, function, "timestamp" if given == "rows" else "at")


JOBS: Final = {
    "availability": _windowed(
        "rounds asked and answered, by provider and window", "analytics.availability", "availability", "seen"
    ),
    "reply-times": _windowed(
        "p50, p95, p99 of response times to surveys, by provider and window",
        "analytics.availability",
        "reply_times",
        "seen",
    ),
    "flaps": Job("how often a provider went down, by window", "analytics.availability", "flaps", "seen", True),
    "intervals": Job(
        "intervals in which a provider was up or down",
        "analytics.availability",
        "intervals",
        "seen",
        stream="intervals_stream",
    ),
    "rates": _windowed("messages, bytes and sizes, by topic, peer and window", "analytics.traffic", "rates"),
    "latency": _windowed("recorder's clock minus sender's, by topic, peer and window", "analytics.traffic", "latency"),
    "silences": Job("pauses over ten times the usual one, by topic and peer", "analytics.traffic", "silences"),
    "slowest": Job("providers with the slowest responses to surveys", "analytics.traffic", "slowest", "seen"),
    "edges": Job("senders and their topics", "analytics.traffic", "edges"),
    "sessions": Job(
        "records of a peer without a gap between them, as sessions",
        "analytics.sessions",
        "sessions",
        stream="sessions",
        gapped=True,
    ),
    "anomalies": Job(
        "windows with far more or fewer messages than a week before, by topic and peer",
        "analytics.anomalies",
        "anomalies",
        windowed=True,
    ),
    "request-latency": Job(
        "p50, p95, p99 from request to reply through a device, by service and window",
        "analytics.requests",
        "request_latency",
        windowed=True,
    ),
    "dependencies": Job("which node calls, publishes or sends to which", "analytics.dependencies", "dependencies"),
    "schemas": Job("kinds of values and fields of maps, by topic, from a sample", "jobs.schemas", "schemas"),
    "documents": Job("incremental snapshots of documents, in --output", "jobs.documents", "compact"),
    "edits": _windowed("updates and bytes, by document, author and window", "jobs.documents", "edits", "updates"),
    "work": _windowed(
        "jobs, outcomes, queue and run times, by worker, kind and window", "analytics.cluster", "work", "ended"
    ),
    "queue-times": _windowed(
        "p50, p95, p99 of times in the queue, by kind and window", "analytics.cluster", "queue_times", "ended"
    ),
    "retries": _windowed("jobs that were tried again, by kind and window", "analytics.cluster", "retries", "ended"),
    "dead-letters": Job(
        "jobs that failed, with their errors",
        "analytics.cluster",
        "dead_letters",
        "ended",
        stream="dead_letters",
        watermark="at",
    ),
    "hosts": Job("each term's host, from when to when, and the gaps without one", "analytics.cluster", "hosts"),
    "duplicates": Job("records with the same id", "analytics.quality", "duplicates"),
    "lost": Job("missing ranges of a sender's sequence numbers", "analytics.quality", "lost"),
    "skew": _windowed("sender's clock against recorder's, by sender and window", "analytics.quality", "skew"),
    "report": Job("most of these as one HTML page, in --output", "analytics.report", "report"),
}
