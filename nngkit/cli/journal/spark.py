"""`nngkit spark`: what Spark makes of a journal, on this machine or on a cluster; and what is missing for that.

::

    $ nngkit spark doctor
    $ nngkit spark run availability --journal journal --window "1 hour"
    $ nngkit spark run report --journal journal --output report.html
    $ nngkit spark pack env.tar.gz
    $ nngkit spark submit --master spark://host:7077 --archive env.tar.gz run rates --journal s3://bucket/journal

Without --output, rows are printed; with it, they are written there as Parquet.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.commands import COMMANDS
from nngkit.cli.output import coloured, columns, json_line, out, wants_colour
from nngkit.cli.stderr import say
from nngkit.errors import ConfigError
from nngkit.spark.jobs.table import JOBS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nngkit.spark.doctor import Finding

__all__ = ["EPILOG", "add_arguments", "cell", "command", "doctor_fields", "run"]

NAME: Final = "nngkit spark"
ACTIONS: Final = {
    "doctor": "say what Spark needs here, and what of it is missing",
    "run": "run JOB",
    "submit": "run the action behind it on a cluster, through spark-submit",
    "pack": "write the archive that workers get nngkit from",
}
THERE: Final = ("run", "doctor")  # what may be done on a cluster
EPILOG: Final = """\
actions:
{}

jobs:
{}

docs/pipeline.md has what each job returns. `submit` takes --master, --archive and --conf itself; what is behind them
is done there. Exit codes: 0 ok, 1 Spark failed, 2 usage or something is missing.""".format(
    "\n".join(f"  {name:13} {what}" for name, what in ACTIONS.items()),
    "\n".join(f"  {name:13} {job.what}" for name, job in JOBS.items()),
)
_COLOURS: Final = {"ok": "32", "warning": "33", "problem": "31"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to `parser`."""
    parser.add_argument("action", metavar="ACTION", choices=list(ACTIONS), help="what to do, see below")
    parser.add_argument("--master", metavar="URL", help="where to run (default: local[*], all cores of this machine)")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark's")
    parser.add_argument("--archive", metavar="FILE", help="submit: what `pack` has written")
    parser.add_argument("--journal", metavar="DIR", help="the journal: a folder, or a URI of shared storage")
    parser.add_argument("--output", metavar="PATH", help="write there instead of printing: Parquet; report: a page")
    parser.add_argument("--window", metavar="TEXT", help='for jobs by window: "10 minutes" and such (default: 1 hour)')
    parser.add_argument("--topic", action="append", metavar="TEXT", help="only this topic; may be repeated")
    parser.add_argument("--from", dest="since", metavar="TIME", help="only what was recorded from then on (ISO 8601)")
    parser.add_argument("--to", dest="until", metavar="TIME", help="only what was recorded before then")
    parser.add_argument(
        "--skip-missing", action="store_true", help="run: leave out what is gone or damaged, and say how many records"
    )
    parser.add_argument("--stream", action="store_true", help="go on with what comes, until a signal; needs --output")
    parser.add_argument(
        "--late", metavar="TEXT", default="1 minute", help='stream: how late records may come (default: "1 minute")'
    )
    parser.add_argument(
        "--rows",
        type=lambda text: options.whole(text, 1, 10**6),
        default=100,
        metavar="N",
        help="rows to print (default: 100)",
    )
    parser.add_argument("--small", action="store_true", help="for little data: compile less, be there sooner")
    parser.add_argument("--start", action="store_true", help="doctor: start Spark too, which takes seconds")
    options.add(parser, "json")
    parser.add_argument("job", metavar="JOB", nargs="?", help="run: the job, see below; pack: the file to write")


def command(name: str, argv: list[str]) -> int:
    """Parse the arguments and run the action. Words behind the action of `submit` are parsed on the cluster."""
    parser = options.parser_for(name, COMMANDS[name], EPILOG)
    add_arguments(parser)
    behind: list[str] = []
    if argv[:1] == ["submit"]:
        place = next((place for place, word in enumerate(argv) if word in THERE), len(argv))
        argv, behind = argv[:place], argv[place:]
    arguments = parser.parse_intermixed_args(argv)
    arguments.behind = behind
    return run(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Run the action; return its exit code."""
    if arguments.action == "doctor":
        return _doctor(arguments)
    if arguments.action == "submit":
        return _submit(arguments)
    if arguments.action == "pack":
        return _pack(arguments)
    return _run(arguments)


def _doctor(arguments: argparse.Namespace) -> int:
    from nngkit.spark.doctor import look, try_it

    def findings() -> Iterable[Finding]:
        yield from look()
        if arguments.start:
            yield try_it()

    bad = False
    for finding in findings():
        bad |= finding.level == "problem"
        if arguments.json:
            out(json_line(doctor_fields(finding)))
        else:
            level = coloured(f"{finding.level:8}", _COLOURS[finding.level], wants_colour(sys.stdout))
            out(f"{level} {finding.what}{f': {finding.advice}' if finding.advice else ''}")
    return 2 if bad else 0


def doctor_fields(finding: Finding) -> dict[str, Any]:
    """A finding in JSON; docs/schemas/spark-doctor.json."""
    return asdict(finding)


def _pack(arguments: argparse.Namespace) -> int:
    from nngkit.spark.cluster import pack

    if not arguments.job:
        raise ConfigError("FILE", "pack needs the file to write, such as env.tar.gz")
    path = pack(arguments.job)
    say(NAME, f"{path}: {path.stat().st_size / 1e6:.0f} MB")
    return 0


def _submit(arguments: argparse.Namespace) -> int:
    from nngkit.spark import cluster
    from nngkit.spark.java import find_java, home_for_spark

    if not arguments.master:
        raise ConfigError("--master", "say which cluster, as in spark://host:7077")
    if not arguments.behind:
        raise ConfigError("ACTION", "say what to do there, as in: run availability --journal DIR")
    script = Path(__file__).parent.with_name("spark_driver.py")
    words = cluster.command(arguments.master, arguments.archive, script, arguments.behind, _conf(arguments.conf))
    os.environ["JAVA_HOME"] = str(home_for_spark(find_java()))
    os.environ["NNGKIT_SUBMITTED"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), cluster.python_path())))
    sys.stdout.flush()
    os.execv(words[0], words)
    raise AssertionError("unreachable")


def _conf(given: list[str]) -> dict[str, str]:
    conf = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise ConfigError("--conf", f"{each!r} is not of the form name=value", each)
        conf[name] = value
    return conf


def _run(arguments: argparse.Namespace) -> int:
    from nngkit.spark.session import SMALL, check_packages, session

    name = arguments.job
    if name not in JOBS:
        raise ConfigError("JOB", f"one of {', '.join(JOBS)} was expected", name)
    job = JOBS[name]
    if not arguments.journal:
        raise ConfigError("--journal", "say which journal")
    if arguments.window and not job.windowed:
        raise ConfigError("--window", f"{name} does not go by windows", arguments.window)
    if name in ("report", "documents") and not arguments.output:
        raise ConfigError("--output", f"{name} has to be told where to write")
    if arguments.stream and (not arguments.output or not job.stream):
        raise ConfigError(
            "--stream", "needs --output" if job.stream else f"{name} is no stream: it looks at what was before", name
        )
    check_packages("google_crc32c", *(["pycrdt"] if name == "documents" else []))  # what its workers import
    os.environ["TZ"] = "UTC"  # Spark hands times over in this process's zone, and without saying which
    time.tzset()
    # Under spark-submit its word counts; otherwise this machine does.
    master = arguments.master or (None if os.environ.get("NNGKIT_SUBMITTED") else "local[*]")
    conf = (SMALL if arguments.small else {}) | _conf(arguments.conf)
    with session(master, f"nngkit {name}", conf) as spark:
        from nngkit.spark.running import Asked, Skips, batch, in_a_line, stream

        asked = Asked(
            arguments.journal,
            tuple(arguments.topic or ()),
            arguments.since,
            arguments.until,
            arguments.window or "1 hour",
            arguments.output,
            arguments.late,
            arguments.skip_missing,
        )
        skips = Skips()
        with in_a_line():
            if arguments.stream:
                return stream(spark, name, asked)
            rows = batch(spark, name, asked, skips)
            if rows is not None:
                _print(rows, arguments)
            if arguments.skip_missing:
                _print_skipped(skips.rows, arguments)
    return 0


def _print(rows: Any, arguments: argparse.Namespace) -> None:
    found = rows.take(arguments.rows + 1)
    shown = found[: arguments.rows]
    if arguments.json:
        for row in shown:
            out(json_line({key: _plain(value) for key, value in row.asDict(recursive=True).items()}))
    else:
        out(columns(rows.columns, [[cell(value) for value in row] for row in shown], wants_colour(sys.stdout)))
    if len(found) > len(shown):
        say(NAME, f"there are more than {len(shown)} rows: --rows, or --output for all")


def _print_skipped(rows: int, arguments: argparse.Namespace) -> None:
    if arguments.json:
        out(json_line({"skipped": rows}))
    if rows:
        say(NAME, f"{rows} records were skipped")


def cell(value: Any) -> str:
    """A value for people."""
    match value:
        case None:
            return "-"
        case float():
            return f"{value:.6g}"
        case dt.datetime():
            return value.isoformat(" ", timespec="milliseconds")
        case bytes() | bytearray():
            return bytes(value).hex() if len(value) <= 40 else f"{bytes(value[:20]).hex()}... ({len(value)} bytes)"
    return str(value)


def _plain(value: Any) -> Any:
    match value:
        case dt.datetime():
            return value.isoformat(timespec="microseconds") + ("" if value.tzinfo else "Z")
        case bytes() | bytearray():
            return bytes(value).hex()
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return value
