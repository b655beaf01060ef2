r"""`nngkit spark sql`: statements over a journal's views, from an argument, from standard input, or at a prompt.

::

    $ nngkit spark sql --journal journal "SELECT topic, sum(messages) FROM rates GROUP BY topic"
    $ nngkit spark sql --journal journal
    nngkit> SELECT sender, count(*)
       ...> FROM records GROUP BY sender;
    nngkit> \d rates

Ctrl-C cancels the Spark jobs of the running statement, and leaves the session as it is.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli.journal import spark_results
from nngkit.cli.journal.spark_progress import watched
from nngkit.cli.journal.spark_table import table
from nngkit.cli.streams.output import out, wants_colour
from nngkit.cli.streams.stderr import say
from nngkit.errors import Broken, NngkitError

if TYPE_CHECKING:
    from nngkit.spark.views import Views

NAME: Final = "nngkit spark sql"
PROMPTS: Final = ("nngkit> ", "   ...> ")
HISTORY: Final = 1000  # lines
HELP: Final = r"A statement ends with ; - \d lists the views, \d NAME the columns of one, \q quits. Ctrl-C cancels."
KEYWORDS: Final = (  # those that people type often; the Tab key completes them
    "select from where group by order having limit distinct as on join left inner cross union all with case when then "
    "else end and or not in is null like between asc desc count sum avg min max cast over partition explain describe "
    "from_json from_cbor get_json_object date_trunc percentile_approx interval timestamp"
)


class Sql:
    """Runs statements and prints their results, as the arguments say."""

    def __init__(self, spark: Any, views: Views, arguments: argparse.Namespace) -> None:
        self._spark = spark
        self._views = views
        self._arguments = arguments
        self._form = spark_results.format_of(arguments)

    def run(self, statement: str) -> None:
        """Run one statement. Raises Broken, in one line; Cancelled after Ctrl-C, when its Spark jobs have ended."""
        with watched(self._spark.sparkContext, self._arguments.watch):
            show = self._views.run(statement, self._results)
        show()

    def _results(self, rows: Any) -> Callable[[], None]:
        """Write the rows to --output, or return what prints the first ones."""
        arguments = self._arguments
        if not rows.columns:  # of a statement such as CREATE VIEW
            return lambda: None
        if self._form == "parquet":
            rows.write.mode("errorifexists").parquet(arguments.output)
            return lambda: None
        if arguments.output:
            spark_results.write_file(rows.columns, rows.toLocalIterator(), self._form, arguments.output)
            return lambda: None
        found = rows.take(arguments.rows + 1)
        shown = found[: arguments.rows]
        return lambda: spark_results.print_rows(rows.columns, shown, self._form, None if len(found) > len(shown) else 0)

    def describe(self, name: str) -> None:
        """Print the views, or with a name the columns of one. Raises NotFound."""
        from nngkit.spark.views import VIEWS

        head: Sequence[str] = ("column", "type") if name else ("view", "content")
        rows = self._views.columns(name) if name else list(VIEWS.items())
        width = os.get_terminal_size().columns if sys.stdout.isatty() else None
        out(table(head, rows, width, wants_colour(sys.stdout)))


def run(spark: Any, views: Views, arguments: argparse.Namespace) -> int:
    """Run the argument, or standard input, or the prompt if that is a terminal. Return the exit code.

    The first statement that fails ends all but the prompt. Raises Broken.
    """
    from nngkit.spark.sql_text import split

    sql = Sql(spark, views, arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # PySpark's own cancels the jobs of all threads
    logging.getLogger("SQLQueryContextLogger").disabled = True  # it prints each error with Java's stack
    text = arguments.job
    if text is None and sys.stdin.isatty():
        return prompt(sql, views)
    from nngkit.spark.cancelling import Cancelled

    statements, rest = split(sys.stdin.read() if text is None else text)
    for statement in [*statements, *([rest] if rest.strip() else [])]:
        try:
            _one(sql, statement.strip())
        except Cancelled:
            return 130
    return 0


def _one(sql: Sql, line: str) -> None:
    command, _, name = line.partition(" ")
    if command == r"\d":
        sql.describe(name.strip().rstrip(";"))
    else:
        sql.run(line)


def prompt(sql: Sql, views: Views) -> int:
    """Read statements until the end of input or `\\q`; an error is printed, and the prompt continues."""
    from nngkit.spark.sql_text import split

    with suppress(ImportError):  # Python may have been built without it
        _complete(views)
    say(NAME, HELP)
    rest = ""
    while True:
        try:
            line = input(PROMPTS[bool(rest.strip())])
        except EOFError:
            print(file=sys.stderr)
            return 0
        except KeyboardInterrupt:
            print(file=sys.stderr)
            rest = ""
            continue
        if not rest.strip() and line.lstrip().startswith("\\"):
            statements = [line.strip()]
            if statements[0].rstrip(";") in (r"\q", r"\quit"):
                return 0
        else:
            statements, rest = split(f"{rest}\n{line}" if rest.strip() else line)
        try:
            for statement in statements:
                if statement.startswith("\\") and statement.split()[0].rstrip(";") != r"\d":
                    raise Broken(f"no command {statement.split()[0]}. {HELP}")
                _one(sql, statement)
        except NngkitError as error:
            say(NAME, str(error))


def candidates(before: str, text: str, views: Views) -> list[str]:
    """Return what may stand for `text` at the end of `before`: views, keywords, columns of the views that it names."""
    from nngkit.spark.sql_text import words
    from nngkit.spark.views import VIEWS

    if before.lstrip().startswith("\\d"):
        return sorted(name for name in VIEWS if name.startswith(text))
    known = words(before)
    columns = {column for name in VIEWS if name in known for column, _ in views.columns(name)}
    given = [word.upper() if text[:1].isupper() else word for word in KEYWORDS.split()]
    return sorted({each for each in (*VIEWS, *columns, *given) if each.startswith(text)})


def _complete(views: Views) -> None:
    """Enable history and completion by the Tab key."""
    import atexit
    import readline

    found: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if state == 0:
            found[:] = []
            with suppress(NngkitError):
                found[:] = candidates(readline.get_line_buffer(), text, views)
            if len(found) == 1:
                found[0] += " "
        return found[state] if state < len(found) else None

    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    history = Path(state, "nngkit", "sql_history")
    with suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(HISTORY)
    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,;()=<>+-*/.'\"`")
    readline.parse_and_bind("tab: complete")

    def save() -> None:
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)

    atexit.register(save)
