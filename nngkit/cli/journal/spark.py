"""`nngkit spark`: analyze a journal with Spark, on this machine or on a cluster.

::

    $ nngkit spark doctor
    $ nngkit spark run availability --journal journal --window "1 hour"
    $ nngkit spark run report --journal journal --output report.html
    $ nngkit spark pack env.tar.gz
    $ nngkit spark submit --master spark://host:7077 --archive env.tar.gz run rates --journal s3://bucket/journal

Rows are printed, or written as Parquet to --output.
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
from nngkit.cli.suggestions import did_you_mean
from nngkit.errors import ConfigError
from nngkit.spark.jobs.registry import JOBS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nngkit.spark.doctor import Check

__all__ = ["EPILOG", "add_arguments", "cell", "command", "doctor_fields", "run"]

NAME: Final = "nngkit spark"
ACTIONS: Final = {
    "doctor": "check the requirements of Spark",
    "run": "run JOB",
    "submit": "run the action that follows on a cluster, by spark-submit",
    "pack": "write the archive that brings nngkit to workers",
}
ON_CLUSTER: Final = ("run", "doctor")  # actions that `submit` can run
EPILOG: Final = """\
actions:
{}

jobs:
{}

docs/pipeline.md describes the results of each job. `submit` takes --master, --archive and --conf before the action;
the rest runs on the cluster. Exit codes: 0 ok, 1 Spark failed, 2 usage or a missing requirement.""".format(
    "\n".join(f"  {name:13} {what}" for name, what in ACTIONS.items()),
    "\n".join(f"  {name:13} {job.what}" for name, job in JOBS.items()),
)
_COLOURS: Final = {"ok": "32", "warning": "33", "problem": "31"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to `parser`."""
    parser.add_argument("action", metavar="ACTION", choices=list(ACTIONS), help="see below")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: local[*], all cores of this machine)")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting")
    parser.add_argument("--archive", metavar="FILE", help="submit: the archive written by `pack`")
    parser.add_argument("--journal", metavar="DIR", help="the journal: a folder, or a URI of shared storage")
    parser.add_argument("--output", metavar="PATH", help="write to this path: Parquet; report: an HTML page")
    parser.add_argument("--window", metavar="TEXT", help='window of the job, such as "10 minutes" (default: 1 hour)')
    parser.add_argument("--topic", action="append", metavar="TEXT", help="only this topic; may be repeated")
    parser.add_argument("--from", dest="since", metavar="TIME", help="only records from this time on (ISO 8601)")
    parser.add_argument("--to", dest="until", metavar="TIME", help="only records before this time")
    parser.add_argument(
        "--skip-missing", action="store_true", help="run: skip missing and damaged records, and report their number"
    )
    parser.add_argument(
        "--stream", action="store_true", help="continue with new records until a signal; needs --output"
    )
    parser.add_argument("--metrics", metavar="[HOST:]PORT", help="stream: serve its progress to Prometheus there")
    parser.add_argument(
        "--late", metavar="TEXT", default="1 minute", help='stream: allowed lateness of records (default: "1 minute")'
    )
    parser.add_argument(
        "--rows",
        type=lambda text: options.whole(text, 1, 10**6),
        default=100,
        metavar="N",
        help="rows to print (default: 100)",
    )
    parser.add_argument("--small", action="store_true", help="for little data: compile less, start sooner")
    parser.add_argument("--start", action="store_true", help="doctor: also start Spark, which takes seconds")
    options.add(parser, "json")
    parser.add_argument("job", metavar="JOB", nargs="?", help="run: the job, see below; pack: the file to write")


def command(name: str, argv: list[str]) -> int:
    """Parse the arguments and run the action. The arguments of a submitted action are parsed on the cluster."""
    parser = options.parser_for(name, COMMANDS[name], EPILOG)
    add_arguments(parser)
    submitted: list[str] = []
    if argv[:1] == ["submit"]:
        place = next((place for place, word in enumerate(argv) if word in ON_CLUSTER), len(argv))
        argv, submitted = argv[:place], argv[place:]
    arguments = parser.parse_intermixed_args(argv)
    arguments.submitted = submitted
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
    from nngkit.spark.doctor import check_environment, check_start

    def findings() -> Iterable[Check]:
        yield from check_environment()
        if arguments.start:
            yield check_start()

    bad = False
    for finding in findings():
        bad |= finding.level == "problem"
        if arguments.json:
            out(json_line(doctor_fields(finding)))
        else:
            level = coloured(f"{finding.level:8}", _COLOURS[finding.level], wants_colour(sys.stdout))
            out(f"{level} {finding.what}{f': {finding.advice}' if finding.advice else ''}")
    return 2 if bad else 0


def doctor_fields(finding: Check) -> dict[str, Any]:
    """Return a finding; docs/schemas/spark-doctor.json."""
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
        raise ConfigError("--master", "is required: the cluster, as spark://host:7077")
    if not arguments.submitted:
        raise ConfigError("ACTION", "is required: the action to run, as in: run availability --journal DIR")
    script = Path(__file__).parent.with_name("spark_driver.py")
    words = cluster.command(arguments.master, arguments.archive, script, arguments.submitted, _conf(arguments.conf))
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
    from nngkit.spark.options import endpoint
    from nngkit.spark.session import SMALL, check_packages, session

    name = arguments.job
    if name not in JOBS:
        raise ConfigError("JOB", f"is not one of {', '.join(JOBS)}{did_you_mean(name or '', JOBS)}", name)
    job = JOBS[name]
    if not arguments.journal:
        raise ConfigError("--journal", "is required")
    if arguments.window and not job.windowed:
        raise ConfigError("--window", f"{name} has no windows", arguments.window)
    if name in ("report", "documents") and not arguments.output:
        raise ConfigError("--output", f"is required for {name}")
    if arguments.stream and (not arguments.output or not job.stream):
        raise ConfigError("--stream", "needs --output" if job.stream else f"{name} cannot stream: it looks back", name)
    if arguments.metrics:
        if not arguments.stream:
            raise ConfigError("--metrics", "is for --stream only", arguments.metrics)
        endpoint(arguments.metrics, "--metrics")
    check_packages("google_crc32c", *(["pycrdt"] if name == "documents" else []))  # imported by workers
    os.environ["TZ"] = "UTC"  # Spark returns times in this process's zone, without naming it
    time.tzset()
    # Under spark-submit the master is spark-submit's, otherwise this machine.
    master = arguments.master or (None if os.environ.get("NNGKIT_SUBMITTED") else "local[*]")
    conf = (SMALL if arguments.small else {}) | _conf(arguments.conf)
    with session(master, f"nngkit {name}", conf) as spark:
        from nngkit.spark.run import JobOptions, SkipCount, batch, in_a_line, stream

        asked = JobOptions(
            arguments.journal,
            tuple(arguments.topic or ()),
            arguments.since,
            arguments.until,
            arguments.window or "1 hour",
            arguments.output,
            arguments.late,
            arguments.skip_missing,
        )
        skips = SkipCount()
        with in_a_line():
            if arguments.stream:
                return stream(spark, name, asked, arguments.metrics)
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
        say(NAME, f"there are more than {len(shown)} rows: use --rows, or --output for all")


def _print_skipped(rows: int, arguments: argparse.Namespace) -> None:
    if arguments.json:
        out(json_line({"skipped": rows}))
    if rows:
        say(NAME, f"{rows} records were skipped")


def cell(value: Any) -> str:
    """Format a value for a table."""
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
