"""`nngkit spark`: analyze a journal with Spark, on this machine or on a cluster.

::

    $ nngkit spark doctor
    $ nngkit spark run availability --journal journal --window "1 hour"
    $ nngkit spark run report --journal journal --output report.html
    $ nngkit spark sql --journal journal "SELECT topic, sum(messages) FROM rates GROUP BY topic"
    $ nngkit spark pack env.tar.gz
    $ nngkit spark submit --master spark://host:7077 --archive env.tar.gz run rates --journal s3://bucket/journal

Rows are printed, or written to --output as Parquet, CSV or JSON lines.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.commands import COMMANDS
from nngkit.cli.journal import spark_results
from nngkit.cli.journal.spark_progress import watched
from nngkit.cli.streams.output import coloured, json_line, out, wants_colour
from nngkit.cli.streams.stderr import say
from nngkit.cli.suggestions import did_you_mean
from nngkit.errors import ConfigError
from nngkit.spark.reading.durations import spark_text
from nngkit.spark.registry import JOBS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nngkit.spark.doctor import Check
    from nngkit.spark.run import JobOptions

NAME: Final = "nngkit spark"
ACTIONS: Final = {
    "doctor": "check the requirements of Spark",
    "run": "run JOB",
    "sql": "run the SQL statement that follows, or those of standard input; at a terminal, a prompt",
    "submit": "run the action that follows on a cluster, by spark-submit",
    "pack": "write the archive that brings nngkit to workers",
}
ON_CLUSTER: Final = ("run", "doctor", "sql")  # actions that `submit` can run
WRITERS: Final = ("documents", "report")  # write to --output themselves
EPILOG: Final = """\
actions:
{}

jobs:
{}

docs/pipeline.md describes the results of each job. `submit` takes --master, --archive and --conf before the action;
the rest runs on the cluster. Exit codes: 0 ok, 1 Spark failed, 2 usage or a missing requirement.""".format(
    "\n".join(f"  {name:15} {what}" for name, what in ACTIONS.items()),
    "\n".join(f"  {name:15} {job.what}" for name, job in JOBS.items()),
)
_COLOURS: Final = {"ok": "32", "warning": "33", "problem": "31"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to `parser`."""
    parser.add_argument("action", metavar="ACTION", choices=list(ACTIONS), help="see below")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: local[*], all cores of this machine)")
    options.add_many(parser, "--conf", "NAME=VALUE", "a Spark setting")
    parser.add_argument("--archive", metavar="FILE", help="submit: the archive written by `pack`")
    parser.add_argument("--journal", metavar="DIR", help="the journal: a folder, or a URI of shared storage")
    text = "write to this path: *.csv, *.json, or a folder of Parquet; report: an HTML page"
    parser.add_argument("--output", metavar="PATH", help=text)
    formats = spark_results.FORMATS
    parser.add_argument("--format", choices=formats, metavar="FORMAT", help=f"one of {', '.join(formats)}")
    parser.add_argument("--window", metavar="TIME", help="window of the job, such as 10m (default: 1h)")
    parser.add_argument("--gap", metavar="TIME", help="sessions: pause that ends a session (default: 5m)")
    parser.add_argument("--topic", action="append", metavar="TEXT", help="only this topic; may be repeated")
    text = "only records from this time on (ISO 8601, or ms since 1970)"
    parser.add_argument("--from", dest="since", metavar="TIME", help=text)
    parser.add_argument("--to", dest="until", metavar="TIME", help="only records before this time")
    options.add_flag(parser, "--skip-missing", "run: skip missing and damaged records, and report their number")
    options.add_flag(parser, "--stream", "continue with new records until a signal; needs --output")
    parser.add_argument("--metrics", metavar="[HOST:]PORT", help="stream: serve its progress to Prometheus there")
    text = 'stream: allowed lateness of records (default: "1 minute")'
    parser.add_argument("--late", metavar="TEXT", default="1 minute", help=text)
    options.add_whole(parser, "--rows", 1, 10**6, "rows to print", default=100)
    options.add_flag(parser, "--watch", "show progress on stderr, also if that is no terminal")
    options.add_flag(parser, "--small", "for little data: compile less, start sooner")
    options.add_flag(parser, "--start", "doctor: also start Spark, which takes seconds")
    options.add(parser, "json")
    text = "run: the job, see below; sql: the statement; pack: the file"
    parser.add_argument("job", metavar="JOB", nargs="?", help=text)


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
    return _sql(arguments) if arguments.action == "sql" else _run(arguments)


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


@contextmanager
def _session(arguments: argparse.Namespace, name: str, *packages: str) -> Iterator[Any]:
    """Start Spark as the arguments say. Raises ConfigError for a missing one of `packages`, which workers import."""
    from nngkit.spark.session import SMALL, check_packages, session

    check_packages(*packages)
    os.environ["TZ"] = "UTC"  # Spark returns times in this process's zone, without naming it
    time.tzset()
    # Under spark-submit the master is spark-submit's, otherwise this machine.
    master = arguments.master or (None if os.environ.get("NNGKIT_SUBMITTED") else "local[*]")
    conf = (SMALL if arguments.small else {}) | _conf(arguments.conf)
    with session(master, f"nngkit {name}", conf) as spark:
        yield spark


def _job_options(arguments: argparse.Namespace) -> JobOptions:
    from nngkit.spark.reading.positions import parse_time
    from nngkit.spark.run import JobOptions

    for what, given in (("--from", arguments.since), ("--to", arguments.until)):
        if given is not None:
            parse_time(given, what)  # rejected here, before Spark starts
    return JobOptions(
        arguments.journal,
        tuple(arguments.topic or ()),
        arguments.since,
        arguments.until,
        spark_text(arguments.window or "1 hour", "--window"),
        arguments.output,
        arguments.late,
        arguments.skip_missing,
        spark_text(arguments.gap or "5 minutes", "--gap"),
    )


def _sql(arguments: argparse.Namespace) -> int:
    from nngkit.cli.journal import spark_sql

    if not arguments.journal:
        raise ConfigError("--journal", "is required")
    if arguments.stream:
        raise ConfigError("--stream", "is for run; sql runs statements that end")
    spark_results.format_of(arguments)
    asked = _job_options(arguments)
    with _session(arguments, "sql") as spark:
        from nngkit.spark.views import Views

        return spark_sql.run(spark, Views(spark, asked), arguments)


def _check(arguments: argparse.Namespace) -> None:
    """Reject wrong usage of `run` before Spark starts."""
    name = arguments.job
    if name not in JOBS:
        raise ConfigError("JOB", f"is not one of {', '.join(JOBS)}{did_you_mean(name or '', JOBS)}", name)
    job = JOBS[name]
    if not arguments.journal:
        raise ConfigError("--journal", "is required")
    if arguments.window and not job.windowed:
        raise ConfigError("--window", f"{name} has no windows", arguments.window)
    if arguments.gap and not job.gapped:
        raise ConfigError("--gap", f"is for sessions; {name} has none", arguments.gap)
    if name in WRITERS:
        if not arguments.output:
            raise ConfigError("--output", f"is required for {name}")
        if arguments.format:
            raise ConfigError("--format", f"{name} has a format of its own", arguments.format)
    if arguments.stream:
        if not arguments.output or not job.stream:
            raise ConfigError(
                "--stream", "needs --output" if job.stream else f"{name} cannot stream: it looks back", name
            )
        if spark_results.format_of(arguments) != "parquet":
            raise ConfigError("--stream", "writes a folder of Parquet only", arguments.output)
    elif name not in WRITERS:
        spark_results.format_of(arguments)
    if arguments.metrics:
        from nngkit.spark.reading.options import host_and_port

        if not arguments.stream:
            raise ConfigError("--metrics", "is for --stream only", arguments.metrics)
        host_and_port(arguments.metrics, "--metrics")


def _run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    name = arguments.job
    asked = _job_options(arguments)
    with _session(arguments, name, *(["pycrdt"] if name == "documents" else [])) as spark:
        from nngkit.spark.run import SkipCount, batch, in_a_line, stream

        skips = SkipCount()
        with in_a_line():
            if arguments.stream:
                return stream(spark, name, asked, arguments.metrics)
            form = "parquet" if name in WRITERS else spark_results.format_of(arguments)
            if form != "parquet":
                asked = replace(asked, output=None)
            with watched(spark.sparkContext, arguments.watch):
                rows = batch(spark, name, asked, skips)
                show = None if rows is None else _results(rows, form, arguments)
            if show is not None:
                show()
            if arguments.skip_missing:
                _print_skipped(skips.rows, arguments)
    return 0


def _results(rows: Any, form: str, arguments: argparse.Namespace) -> Callable[[], None]:
    """Compute the rows once, and write them to --output, or return what prints the first ones."""
    rows = rows.persist()
    total = rows.count()
    rows = rows.orderBy("start") if "start" in rows.columns else rows
    if arguments.output:
        spark_results.write_file(rows.columns, rows.toLocalIterator(), form, arguments.output)
        return lambda: None
    shown = rows.take(arguments.rows)
    return lambda: spark_results.print_rows(rows.columns, shown, form, total - len(shown))


def _print_skipped(rows: int, arguments: argparse.Namespace) -> None:
    if arguments.json:
        out(json_line({"skipped": rows}))
    if rows:
        say(NAME, f"{rows} records were skipped")
