"""Report on a journal: one self-contained HTML page with plots. Batch only.

::

    rows = spark.read.format("nng").option("includeHeaders", "true").load("orders")
    write(rows, Path("report.html"), "orders")

Spark aggregates (figures.py), over journals of any size; some hundred rows of each kind are fetched and drawn, and the
page says so if there are more. The page loads nothing: no script, no font, no other file. On a phone, text in plots
keeps its size, and tables scroll sideways in their own box.
"""

from __future__ import annotations

import datetime as dt
import os
from html import escape
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame

from nngkit.spark.analytics import charts, graph
from nngkit.spark.analytics.activity import EDGES, Activity
from nngkit.spark.analytics.charts import lines, timeline
from nngkit.spark.analytics.figures import BARS, PARTS, ClusterFigures, Figures, collect
from nngkit.spark.analytics.sessions import GAP
from nngkit.spark.analytics.tables import ROWS, Table
from nngkit.spark.analytics.traffic import PACE

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
figure+.scroll{margin-top:12px}
figure{margin:0;background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:12px}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--rule);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:6px 12px;border-bottom:1px solid var(--rule);white-space:nowrap}
th{color:var(--soft);font-weight:600}
tr:last-child td{border-bottom:0}td.n,th.n{text-align:right}.none{padding:8px 4px;margin:0}
@media(max-width:640px){main{padding:20px 12px 48px}h1{font-size:22px;overflow-wrap:anywhere}.facts{gap:8px}
.facts div{min-width:min-content;flex:1 1 30%;padding:8px 10px}.facts b{font-size:18px}
th,td{padding:6px 8px}figure{padding:10px}}
"""


def report(rows: DataFrame, journal: str = "") -> str:
    """Return the page. `journal`: its name, for the title."""
    return page(collect(rows), dt.datetime.now(dt.UTC), journal)


def write(rows: DataFrame, target: Path, journal: str = "") -> int:
    """Write the page to a file atomically. Return the number of records skipped because of damage."""
    figures = collect(rows)
    text = page(figures, dt.datetime.now(dt.UTC), journal)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, target)
    return figures.skipped


def page(figures: Figures, made: dt.datetime, journal: str = "") -> str:
    """Return the whole page."""
    title = escape(f"{journal}: journal report" if journal else "Journal report")
    span = "" if figures.first is None or figures.last is None else _span(figures.first, figures.last)
    facts = [
        (_number(figures.messages), "records", False),
        (_bytes(figures.size), "of messages", False),
        (_number(figures.topic_count), "topics", False),
        (_number(figures.duplicates), "duplicates", figures.duplicates > 0),
        (_number(figures.lost), "missing sequence numbers", figures.lost > 0),
        *([(_number(figures.skipped), "records skipped: damaged", True)] if figures.skipped else []),
    ]
    body = [
        f"<h1>{title}</h1>",
        f"<p>{escape(span)}. Created {made.strftime('%Y-%m-%d %H:%M')} UTC.</p>"
        if span
        else "<p>The journal is empty.</p>",
        '<div class="facts">',
        *(f"<div{' class=bad' if bad else ''}><b>{value}</b><span>{what}</span></div>" for value, what, bad in facts),
        "</div>",
        f"<h2>Traffic</h2><p>Messages a second, by topic; a point is {_duration(figures.step)}.</p>",
        f"<figure>{lines(figures.by_topic, 'messages/s')}</figure>",
        "<h2>Bytes</h2><p>Bytes of messages a second, by topic.</p>",
        f"<figure>{lines(figures.bytes_by_topic, 'bytes/s')}</figure>",
        "<h2>Topics</h2>" + _html(figures.topics),
        "<h2>Latency</h2><p>Recorder's clock minus sender's, for messages with the header sent: p95.</p>",
        *([f"<figure>{lines(figures.latency_by_topic, 'ms')}</figure>"] if figures.latency_by_topic else []),
        _html(figures.latency),
        "<h2>Worst hours</h2><p>Hours (UTC) with p95 latency and failed rounds furthest above the mean of all.</p>",
        _html(figures.activity.hours),
        "<h2>Uptime</h2><p>As observed by the discovery daemon, by round"
        + ("; lowest uptime first" if len(figures.bars) > 1 else "")
        + (f"; only the {BARS} with the lowest" if figures.providers_more else "")
        + (f"; only the last {PARTS} changes of each" if figures.bars_cut else "")
        + f".</p><figure>{timeline(figures.bars)}</figure>",
        "<h2>Availability</h2><p>Lowest uptime first.</p>" + _html(figures.providers),
        "<h2>Response times</h2><p>Of surveys, slowest first.</p>" + _html(figures.replies),
        *([] if figures.cluster is None else _cluster(figures.cluster, figures.step)),
        *_activity(figures.activity),
        "<h2>Senders and topics</h2>" + _html(figures.edges),
        f"<h2>Silences</h2><p>Pauses over {PACE:g} times the usual pause of that sender on that topic.</p>"
        + _html(figures.silences),
        "<h2>Lost messages</h2><p>Sequence numbers that were never recorded.</p>" + _html(figures.lost_ranges),
        "<h2>Clock skew</h2><p>Recorder's clock minus sender's. If negative, the sender's clock is ahead.</p>"
        + _html(figures.skew),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>'
        f"{title}</title>"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{STYLE}{charts.STYLE}{graph.STYLE}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def _cluster(figures: ClusterFigures, step: int) -> list[str]:
    bad = f" {_number(figures.unreadable)} records cannot be read." if figures.unreadable else ""
    cut = f" Only {BARS} hosts, and the last {PARTS} reigns of each." if figures.bars_cut else ""
    return [
        f"<h2>Work</h2><p>{_number(figures.jobs)} ended jobs; by kind, a point is {_duration(step)}.{bad}</p>",
        f"<figure>{lines(figures.by_kind, 'jobs/s')}</figure>",
        "<h2>Workers</h2><p>By worker of the last try, busiest first.</p>" + _html(figures.work),
        "<h2>Dead letters</h2><p>Jobs that failed, newest first.</p>" + _html(figures.dead),
        f"<h2>Hosts</h2><p>When each node was host, and how many times.{cut}</p>",
        f"<figure>{timeline(figures.bars)}</figure>" + _html(figures.reigns),
    ]


def _activity(figures: Activity) -> list[str]:
    cut = f" Only the {EDGES} with the most messages." if figures.edges_cut else ""
    parts = [
        f"<h2>Dependencies</h2><p>Who publishes, calls, sends and submits to whom.{cut}</p>",
        f"<figure>{graph.graph(figures.edges)}</figure>",
    ]
    if figures.requests is not None:
        parts.append("<h2>Requests</h2><p>From request to reply, as devices saw them.</p>" + _html(figures.requests))
    if figures.documents is not None:
        parts.append("<h2>Documents</h2><p>Most edited first.</p>" + _html(figures.documents))
    ends = f"<h2>Sessions</h2><p>A session ends with a pause of {GAP}. Most messages first.</p>"
    return [*parts, ends + _html(figures.sessions)]


def _html(table: Table) -> str:
    if not table.rows:
        return charts.NOTHING
    numbers = [all(isinstance(row[index], int | float) for row in table.rows) for index in range(len(table.head))]
    head = "".join(f"<th{_kind(is_n)}>{escape(text)}</th>" for text, is_n in zip(table.head, numbers, strict=True))
    rows = "".join(
        "<tr>"
        + "".join(f"<td{_kind(is_n)}>{_cell(each)}</td>" for each, is_n in zip(row, numbers, strict=True))
        + "</tr>"
        for row in table.rows
    )
    more = f"<p>Only the first {ROWS} are shown.</p>" if table.more else ""
    return f'<div class="scroll" tabindex="0"><table><tr>{head}</tr>{rows}</table></div>{more}'


def _kind(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


def _cell(value: Any) -> str:
    return _number(value) if isinstance(value, int) else escape(charts.shortened(str(value)))


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
