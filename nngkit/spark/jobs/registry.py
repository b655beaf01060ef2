"""The jobs by name, for `nngkit spark run`: what each is given, and how it may be run. Imports no PySpark."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

__all__ = ["JOBS", "Job"]

Given = Literal["rows", "seen", "updates"]


class Job(NamedTuple):
    """`given`: rows of the journal, or what availability.observations or documents.updates makes of them.

    `windowed`: takes a window. `stream`: the function for a stream, "" where that makes no sense. `watermark`: the
    column that a stream's watermark is on.
    """

    what: str
    module: str
    function: str
    given: Given = "rows"
    windowed: bool = False
    stream: str = ""
    watermark: str = "timestamp"


def _windowed(what: str, module: str, function: str, given: Given = "rows") -> Job:
    """By window: as a stream it is the same function."""
    return Job(what, module, function, given, True, function, "timestamp" if given == "rows" else "at")


JOBS: Final = {
    "availability": _windowed(
        "rounds asked and answered, by provider and window", "availability", "availability", "seen"
    ),
    "reply-times": _windowed(
        "p50, p95, p99 of surveys' replies, by provider and window", "availability", "reply_times", "seen"
    ),
    "flaps": Job("how often a provider went down, by window", "availability", "flaps", "seen", True),
    "intervals": Job(
        "from when to when a provider was up, and down", "availability", "intervals", "seen", stream="intervals_stream"
    ),
    "rates": _windowed("messages, bytes and sizes, by topic, peer and window", "traffic", "rates"),
    "latency": _windowed("sender's clock to recorder's, by topic, peer and window", "traffic", "latency"),
    "silences": Job("pauses over ten times the usual one, by topic and peer", "traffic", "silences"),
    "slowest": Job("the providers that answer surveys slowest", "traffic", "slowest", "seen"),
    "edges": Job("who talks to whom", "traffic", "edges"),
    "documents": Job("updates into snapshots, in --output, by what is new", "documents", "compact", "updates"),
    "edits": _windowed("updates and bytes, by document, author and window", "documents", "edits", "updates"),
    "duplicates": Job("records with the id of another", "quality", "duplicates"),
    "lost": Job("ranges of a sender's numbers that nobody recorded", "quality", "lost"),
    "skew": _windowed("sender's clock against recorder's, by sender and window", "quality", "skew"),
    "report": Job("one HTML page of all that, in --output", "report", "report"),
}
