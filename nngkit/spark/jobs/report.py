"""The report: one HTML page, with its plots and its style in it, of what a journal says. Batch only.

::

    write(spark.read.format("nng").option("includeHeaders", "true").load("journal"), Path("report.html"))

Spark does the counting, over journals of any size; what comes back to be drawn is some hundred rows of each kind, and
where there were more the page says so. It asks nobody for anything: no script, no font, no other file.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from nngkit.spark.jobs import availability, quality, traffic
from nngkit.spark.jobs.charts import COLOURS, Bar, lines, timeline

__all__ = ["Figures", "collect", "page", "report", "write"]

POINTS: Final = 120  # of a plot over time
ROWS: Final = 20  # of a table
BARS: Final = 30  # providers in the timeline: those that were down most often come first
PARTS: Final = 400  # intervals of a provider in the timeline, the newest: a plot 920 pixels wide shows no more
STEPS: Final = (1, 5, 15, 60, 300, 900, 3600, 21600, 86400, 604800)  # seconds of a plot's points

STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5c6675;--paper:#fbfbfa;--rule:#dfe3e8;--card:#fff;
--up:#2e9e6b;--down:#d1495b;--c0:#2f6fb0;--c1:#e08a1e;--c2:#2e9e6b;--c3:#a04fa8;--c4:#d1495b;--c5:#4fa3a5;--c6:#8a7a3c;--c7:#6b7280}
@media(prefers-color-scheme:dark){:root{--ink:#e7eaee;--soft:#9aa4b2;--paper:#14181e;--rule:#2c333d;--card:#1b2027;
--c0:#6aa9e9;--c1:#f0ab52;--c2:#58c795;--c3:#cb86d2;--c4:#ef7b89;--c5:#7cc8ca;--c6:#c4b36c;--c7:#a3abb8}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:920px;margin:0 auto;padding:32px 20px 64px}h1{font-size:26px;margin:0 0 4px}
h2{font-size:18px;margin:40px 0 8px}
p{margin:4px 0 12px;color:var(--soft)}.facts{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0}
.facts div{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 16px;min-width:130px}
.facts b{display:block;font-size:22px;font-variant-numeric:tabular-nums}.facts span{color:var(--soft);font-size:13px}
.bad b{color:var(--down)}
figure{margin:0;background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:12px}
svg{width:100%;height:auto;display:block}svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
.grid{stroke:var(--rule)}.line{fill:none;stroke-width:2;stroke-linejoin:round}.up{fill:var(--up)}.down{fill:var(--down)}
.key{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px;padding:0 4px 8px}.swatch{display:inline-block;width:10px;
height:10px;border-radius:2px;margin-right:6px}.unit{margin-left:auto;color:var(--soft)}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--rule);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:6px 12px;border-bottom:1px solid var(--rule);white-space:nowrap}
th{color:var(--soft);font-weight:600}
tr:last-child td{border-bottom:0}td.n,th.n{text-align:right}.none{padding:8px 4px;margin:0}
""" + "".join(
    f".c{n}.line{{stroke:var(--c{n})}}.c{n}.swatch{{background:var(--c{n})}}.c{n}.dot{{fill:var(--c{n})}}"
    for n in range(COLOURS)
)


class Table(NamedTuple):
    """Rows for the page, and whether there were more."""

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    more: bool = False


class Figures(NamedTuple):
    """All that the page says. Times are seconds since 1970."""

    messages: int
    size: int
    first: float | None
    last: float | None
    step: int
    by_topic: dict[str, list[tuple[float, float]]]
    topic_count: int
    topics: Table
    bars: list[Bar]
    bars_cut: bool
    providers: Table
    providers_more: bool
    replies: Table
    edges: Table
    silences: Table
    duplicates: int
    lost: int
    lost_ranges: Table
    skew: Table


def report(rows: DataFrame) -> str:
    """The page. Runs now."""
    return page(collect(rows), dt.datetime.now(dt.UTC))


def write(rows: DataFrame, target: Path) -> None:
    """The page into a file, whole or not at all. Runs now."""
    text = report(rows)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, target)


# ---- what Spark is asked ---------------------------------------------------------------------------------------------


def collect(rows: DataFrame) -> Figures:
    """The figures. The rows are read once and kept for the time of it."""
    rows = rows.persist()
    try:
        return _collect(rows)
    finally:
        rows.unpersist()


def _collect(rows: DataFrame) -> Figures:
    size = F.octet_length("value")
    whole = rows.agg(
        F.count("*").alias("n"),
        F.sum(size).alias("bytes"),
        F.min("timestamp").alias("a"),
        F.max("timestamp").alias("b"),
        F.count_distinct("topic").alias("topics"),
    ).collect()[0]
    by_size = rows.groupBy("topic", "protocol").agg(F.count("*").alias("n"), F.sum(size).alias("bytes"))
    topics = by_size.orderBy(F.desc("n"), "topic").limit(ROWS + 1).collect()
    busiest = rows.groupBy("topic").agg(F.count("*").alias("n")).orderBy(F.desc("n"), "topic")
    named = [row.topic for row in busiest.limit(COLOURS if whole.topics <= COLOURS else COLOURS - 1).collect()]
    first = None if whole.a is None else _seconds(whole.a)
    last = None if whole.b is None else _seconds(whole.b)
    step = next((each for each in STEPS if ((last or 0) - (first or 0)) / each <= POINTS), STEPS[-1])
    seen = availability.observations(rows)
    bars, bars_cut, providers, more = _providers(availability.intervals(seen))
    duplicates = quality.duplicates(rows).agg(F.sum(F.col("times") - 1)).collect()[0][0] or 0
    ranges = quality.lost(rows)
    lost = ranges.agg(F.sum("count")).collect()[0][0] or 0
    longest = ranges.orderBy(F.desc("count"), "topic", "sender", "first").limit(ROWS + 1).collect()
    return Figures(
        messages=whole.n,
        size=whole.bytes or 0,
        first=first,
        last=last,
        step=step,
        by_topic=_by_topic(rows, named, step),
        topic_count=whole.topics,
        topics=_table(
            ("topic", "protocol", "messages", "bytes", "mean size"),
            [(row.topic, row.protocol, row.n, row.bytes, round(row.bytes / row.n, 1)) for row in topics],
        ),
        bars=bars,
        bars_cut=bars_cut,
        providers=providers,
        providers_more=more,
        replies=_table(
            ("service", "provider", "replies", "p50 ms", "p95 ms", "p99 ms"),
            [
                (
                    row.service,
                    row.provider,
                    row.replies,
                    *(round(each * 1000, 2) for each in (row.p50, row.p95, row.p99)),
                )
                for row in traffic.slowest(seen, ROWS + 1).collect()
            ],
        ),
        edges=_table(
            ("from", "topic", "protocol", "messages", "bytes"),
            [
                (row.source, row.target, row.protocol, row.messages, row["bytes"])
                for row in traffic.edges(rows).orderBy(F.desc("messages")).limit(ROWS + 1).collect()
            ],
        ),
        silences=_table(
            ("topic", "from", "messages", "silences over 1 s", "longest s"),
            [
                (row.topic, row.peer, row.messages, row.silences, round(row.longest, 2))
                for row in traffic.silences(rows)
                .where("longest is not null")
                .orderBy(F.desc("longest"))
                .limit(ROWS + 1)
                .collect()
            ],
        ),
        duplicates=int(duplicates),
        lost=int(lost),
        lost_ranges=_table(
            ("topic", "from", "first", "last", "count"),
            [(row.topic, row.sender, row.first, row.last, row["count"]) for row in longest],
        ),
        skew=_table(
            ("from", "messages", "least ms", "median ms", "most ms"),
            [
                (row.sender, row.messages, *(round(each * 1000, 2) for each in (row.least, row.median, row.most)))
                for row in quality.skew(rows, "3650 days").orderBy("least").limit(ROWS + 1).collect()
            ],
        ),
    )


def _by_topic(rows: DataFrame, named: Sequence[str], step: int) -> dict[str, list[tuple[float, float]]]:
    """Messages a second over time: of each topic in `named`, and of all others together."""
    name = F.when(F.col("topic").isin(named), F.col("topic")).otherwise("others") if named else F.col("topic")
    at = (F.floor(F.unix_micros("timestamp") / (step * 1_000_000)) * step).alias("at")
    counted = rows.groupBy(name.alias("name"), at).agg(F.count("*").alias("n")).collect()
    moments = sorted({row.at for row in counted})
    every = range(moments[0], moments[-1] + step, step) if moments else range(0)
    found: dict[str, dict[int, int]] = {}
    for row in counted:
        found.setdefault(row.name, {})[row.at] = row.n
    order = sorted(found, key=lambda each: -sum(found[each].values()))
    # A second in which nothing came is a 0, and no straight line from what was before to what is behind it.
    return {each: [(float(at), found[each].get(at, 0) / step) for at in every] for each in order}


def _providers(parts: DataFrame) -> tuple[list[Bar], bool, Table, bool]:
    """The bars, whether they are cut, the table, and whether there are more providers than bars.

    Spark sums up each provider's intervals; what comes back is at most `BARS` providers with `PARTS` intervals each.
    """
    who = ("service", "provider", "daemon")
    in_order, newest = (Window.partitionBy(*who).orderBy(order) for order in (F.asc("start"), F.desc("start")))
    seconds = F.col("end").cast("double") - F.col("start").cast("double")
    numbered = parts.withColumn("number", F.row_number().over(in_order)).withColumn("seconds", seconds)
    summed = (
        numbered.groupBy(*who)
        .agg(
            F.coalesce(F.sum(F.when(F.col("up"), F.col("seconds"))), F.lit(0.0)).alias("up"),
            (F.max("end").cast("double") - F.min("start").cast("double")).alias("whole"),
            F.count_if(~F.col("up") & (F.col("number") > 1)).alias("flaps"),
            F.sum("rounds").alias("rounds"),
            F.count("*").alias("parts"),
        )
        .orderBy(F.desc("flaps"), *who)
        .limit(max(BARS, ROWS) + 1)
    )
    found = summed.collect()
    shown = found[:BARS]
    spans: dict[tuple[str, str, str], list[tuple[float, float, bool]]] = {}
    if shown:
        wanted = summed.limit(BARS).select(*who)
        drawn = parts.withColumn("age", F.row_number().over(newest)).where(F.col("age") <= PARTS)
        for row in drawn.join(wanted, list(who)).orderBy("start").collect():
            key = (row.service, row.provider, row.daemon)
            spans.setdefault(key, []).append((_seconds(row.start), _seconds(row.end), bool(row.up)))
    bars = [
        Bar(f"{row.service} {row.provider}", spans.get((row.service, row.provider, row.daemon), [])) for row in shown
    ]
    table = [
        (
            row.service,
            row.provider,
            f"{100 * row.up / row.whole:.1f} %" if row.whole else "-",
            row.flaps,
            row.rounds,
        )
        for row in found
    ]
    head = ("service", "provider", "time up", "went down", "rounds")
    return bars, any(row.parts > PARTS for row in shown), _table(head, table), len(found) > BARS


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    return Table(head, rows[:ROWS], len(rows) > ROWS)


def _seconds(moment: dt.datetime) -> float:
    # What Spark hands over has no zone, and is in that of this process: Python's timestamp() takes it back out.
    return moment.timestamp()


# ---- the page --------------------------------------------------------------------------------------------------------


def page(figures: Figures, made: dt.datetime) -> str:
    """The whole page."""
    span = "" if figures.first is None or figures.last is None else _span(figures.first, figures.last)
    facts = [
        (_number(figures.messages), "records", False),
        (_bytes(figures.size), "of messages", False),
        (_number(figures.topic_count), "topics", False),
        (_number(figures.duplicates), "duplicates", figures.duplicates > 0),
        (_number(figures.lost), "lost numbers", figures.lost > 0),
    ]
    body = [
        "<h1>What the journal says</h1>",
        f"<p>{escape(span)}. Made {made.strftime('%Y-%m-%d %H:%M')} UTC.</p>"
        if span
        else "<p>The journal is empty.</p>",
        '<div class="facts">',
        *(f"<div{' class=bad' if bad else ''}><b>{value}</b><span>{what}</span></div>" for value, what, bad in facts),
        "</div>",
        f"<h2>Traffic</h2><p>Messages a second, by topic; a point is {_duration(figures.step)}.</p>",
        f"<figure>{lines(figures.by_topic, 'messages/s')}</figure>",
        "<h2>Topics</h2>" + _html(figures.topics),
        "<h2>Who was up when</h2><p>As the discovery daemon saw it, round by round"
        + (f"; the {BARS} that went down most often" if figures.providers_more else "")
        + (f"; of each the last {PARTS} changes" if figures.bars_cut else "")
        + f".</p><figure>{timeline(figures.bars)}</figure>",
        "<h2>Availability</h2>" + _html(figures.providers),
        "<h2>Reply times</h2><p>Of surveys, the slowest first.</p>" + _html(figures.replies),
        "<h2>Who talks to whom</h2>" + _html(figures.edges),
        "<h2>Silences</h2>" + _html(figures.silences),
        "<h2>Lost</h2><p>Numbers that a sender gave out and nobody recorded.</p>" + _html(figures.lost_ranges),
        "<h2>Clocks</h2><p>From the sender's clock to the recorder's. Under 0, the sender's is ahead.</p>"
        + _html(figures.skew),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>What the journal says</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def _html(table: Table) -> str:
    if not table.rows:
        return '<p class="none">Nothing of this kind was recorded.</p>'
    numbers = [all(isinstance(row[index], int | float) for row in table.rows) for index in range(len(table.head))]
    head = "".join(f"<th{_kind(is_n)}>{escape(text)}</th>" for text, is_n in zip(table.head, numbers, strict=True))
    rows = "".join(
        "<tr>"
        + "".join(f"<td{_kind(is_n)}>{_cell(each)}</td>" for each, is_n in zip(row, numbers, strict=True))
        + "</tr>"
        for row in table.rows
    )
    more = "<p>There were more; these are the first.</p>" if table.more else ""
    return f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>{more}'


def _kind(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


def _cell(value: Any) -> str:
    return _number(value) if isinstance(value, int) else escape(str(value))


def _number(value: int) -> str:
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _bytes(size: int) -> str:
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= limit:
            return f"{size / limit:.1f} {unit}"
    return f"{size} B"


def _duration(seconds: int) -> str:
    for limit, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= limit and seconds % limit == 0:
            return f"{seconds // limit} {unit}"
    return f"{seconds} s"


def _span(first: float, last: float) -> str:
    a, b = (dt.datetime.fromtimestamp(each, dt.UTC) for each in (first, last))
    form = "%H:%M:%S" if a.date() == b.date() else "%Y-%m-%d %H:%M:%S"
    return f"{a.strftime('%Y-%m-%d %H:%M:%S')} to {b.strftime(form)} UTC"
