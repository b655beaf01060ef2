"""`nngkit watch [NAME]`: print every change of the services, or run a command, or keep a file made from a template.

::

    $ nngkit watch answer
    2026-01-31T12:00:00.123Z  answer  tcp://127.0.0.1:9000  up (answered)

    $ nngkit watch answer --exec 'jq .providers'
    $ nngkit watch --template upstream.conf.in --out /etc/nginx/conf.d/upstream.conf --exec 'nginx -s reload'

A command runs at the start, once the daemons have answered, and after each change; changes within `--wait` seconds are
one. It never runs twice at once. With a template, it runs after the file has changed.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.streams.output import json_line, wants_colour
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import add_tls
from nngkit.errors import ConfigError

if TYPE_CHECKING:  # --help loads no event loop
    from nngkit.cli.discovery.following import Following
    from nngkit.cli.discovery.template import Template
    from nngkit.discovery.provider import Event

NAME: Final = "nngkit watch"
QUEUE: Final = 16 << 20  # bytes of lines queued for a slow reader
EPILOG: Final = """\
The command of --exec gets the state as JSON on standard input (docs/schemas/watch.json), and in its environment
NNGKIT_ADDRESSES (usable ones, one a line), NNGKIT_PROVIDERS (their number) and NNGKIT_WATCHED (NAME).
Exit codes: 0 ok, 1 --once: the command or the template failed, 2 usage, 3 --once: no daemon answered."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="only this service")
    parser.add_argument("--exec", metavar="CMD", help="run this shell command after a change, instead of printing it")
    parser.add_argument("--template", metavar="FILE", help="fill in this Jinja2 template, and write it to --out")
    parser.add_argument("--out", metavar="FILE", help="--template: file to replace, if its content changes")
    options.add_flag(parser, "--any-text", "--template: include providers with unsafe characters")
    options.add_flag(parser, "--once", "print, run or write once, and exit")
    options.add_seconds(parser, "--wait", 0.2, "seconds without further changes before --exec and --template")
    options.add_seconds(parser, "--exec-timeout", 60.0, "seconds after which the command is killed")
    options.add(parser, "daemon", "timeout", "json")
    add_tls(parser)


def check_service(name: str | None) -> None:
    """Raise ConfigError unless `name` is None or a service's name."""
    from nngkit.discovery.provider import check_name

    if name is not None:
        try:
            check_name(name)
        except ValueError as error:
            raise ConfigError("NAME", str(error), name) from error


def run(arguments: argparse.Namespace) -> int:
    """Follow the daemons until a signal, or once."""
    import trio

    check_service(arguments.name)
    template = None
    if arguments.template is not None:
        if arguments.out is None:
            raise ConfigError("--template", "requires --out")
        from nngkit.cli.discovery.template import Template

        template = Template(arguments.template, any_text=arguments.any_text)
    for option in ("out", "any_text"):
        if template is None and getattr(arguments, option):
            raise ConfigError(f"--{option.replace('_', '-')}", "requires --template")
    acts = template is not None or arguments.exec is not None
    if acts and arguments.json:
        raise ConfigError("--json", "conflicts with --exec and --template")
    return trio.run(partial(_act, template) if acts else print_changes, arguments)


# ---- lines -----------------------------------------------------------------------------------------------------------


async def print_changes(arguments: argparse.Namespace) -> int:
    """Print the state and then each change as lines; return the exit code."""
    from nngkit.cli.discovery.following import following
    from nngkit.cli.streams.line_writer import printed, to_stdout
    from nngkit.cli.streams.signals import until_signal

    colour = wants_colour(sys.stdout)
    lines = to_stdout(QUEUE)
    once = getattr(arguments, "once", False)

    def show(event: Event) -> None:
        lines.put(_line(event, arguments.json, colour))

    async def work() -> None:
        import trio

        async with printed(lines), following(arguments, _say, show) as follow:
            if not once:
                await follow.answered_at_last(arguments.timeout)
                await trio.sleep_forever()
            await follow.answered(arguments.timeout)
            await lines.finish(math.inf)

    code = await until_signal(work)
    if lines.dropped:
        _say(f"{lines.dropped} lines were not read in time, and dropped")
    return code


def _line(event: Event, as_json: bool, colour: bool) -> str:
    from nngkit.cli.discovery.discoverd import event_text
    from nngkit.cli.discovery.fields import event_fields

    at = event.time + time.time() - time.monotonic()
    return json_line(event_fields(event, at)) if as_json else event_text(event, at, colour)


def _say(text: str) -> None:
    say(NAME, text)


# ---- commands and templates ------------------------------------------------------------------------------------------


async def _act(template: Template | None, arguments: argparse.Namespace) -> int:
    """Run the command or fill in the template, at the start and after each change."""
    from nngkit.cli.discovery.following import following
    from nngkit.cli.streams.signals import until_signal

    done = True

    async def work() -> None:
        nonlocal done
        reaction = _Reaction(template, arguments)
        async with following(arguments, _say, lambda event: None) as follow:
            if arguments.once:
                await follow.answered(arguments.timeout)
            else:
                await follow.answered_at_last(arguments.timeout)
            while True:
                follow.consider_all()
                done = await reaction.run(follow)
                if arguments.once:
                    return
                await follow.settled(arguments.wait)

    code = await until_signal(work)
    return code or (0 if done else 1)


class _Reaction:
    """Reaction to a change. A failed command runs again at the next change, even if the file stays the same."""

    def __init__(self, template: Template | None, arguments: argparse.Namespace) -> None:
        self._template = template
        self._given = arguments
        self._pending = template is None
        self._left_out: set[tuple[str, str]] = set()

    async def run(self, follow: Following) -> bool:
        """React to the current view; return False if that failed."""
        now = time.time()
        fields = follow.view.fields(now - time.monotonic(), now, follow.fresh)
        if self._template is not None and not await self._write(self._template, fields):
            return False
        if not self._pending or self._given.exec is None:
            return True
        done = await self._run_command(fields)
        self._pending = self._template is None or not done
        return done

    async def _write(self, template: Template, fields: dict[str, Any]) -> bool:
        import trio

        from nngkit.cli.discovery.template import TemplateFailed, replace_file

        try:
            text, left_out = template.render(fields["providers"])
            changed = await trio.to_thread.run_sync(replace_file, self._given.out, text.encode())
        except TemplateFailed as error:
            _say(f"{error}; {self._given.out} stays as it is")
            return False
        except OSError as error:
            _say(f"--out: {self._given.out}: {error.strerror or error}")
            return False
        for address, field in sorted(set(left_out) - self._left_out):
            _say(f"{address}: left out of the file: its {field} has unsafe characters (see --any-text)")
        self._left_out = set(left_out)
        if changed:
            _say(f"{self._given.out} written, {len(fields['providers']) - len(left_out)} providers")
            self._pending = True
        return True

    async def _run_command(self, fields: dict[str, Any]) -> bool:
        from nngkit.cli.streams.shell import run_shell, shell_environment

        usable = [each["address"] for each in fields["providers"] if each["usable"]]
        environment = shell_environment(
            NNGKIT_WATCHED=self._given.name or "", NNGKIT_ADDRESSES="\n".join(usable), NNGKIT_PROVIDERS=str(len(usable))
        )
        ran = await run_shell(
            self._given.exec, json_line(fields).encode() + b"\n", environment, self._given.exec_timeout
        )
        if failure := ran.failure():
            _say(f"--exec: {self._given.exec}: {failure}")
        return not failure
