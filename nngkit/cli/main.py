"""Entry point of the `nngkit` command: dispatch to a command's module, and errors to exit codes (exit_codes.py).

Every mistake of a user or a peer is one line on standard error that names the cause; a traceback is a bug in nngkit.
Loads no event loop and no NNG: the command's module does, when it runs.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from nngkit import __version__
from nngkit.cli.commands import COMMANDS, PROGRAMS, STAND_INS, module_of
from nngkit.cli.exit_codes import BROKEN_PIPE, INTERRUPTED, exit_code, only
from nngkit.cli.refused import explained
from nngkit.cli.streams.stderr import say
from nngkit.errors import ConfigError, NngkitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def usage() -> str:
    """Return the text of `nngkit --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "usage: nngkit COMMAND ...",
            "       nngkit COMMAND --help",
            "       nngkit --version",
            "",
            "commands:",
            *lines,
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (default: sys.argv) and return its exit code.

    Called by a link that has a stand-in's name, run that stand-in.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _fill_standard_streams()
    if argv is None and (program := os.path.basename(sys.argv[0])) in STAND_INS:
        arguments.insert(0, program)
    command = arguments[0] if arguments else ""
    where = f"nngkit {command}" if command in COMMANDS else "nngkit"
    if argv is None:
        sys.unraisablehook = _unraisable
    if isinstance(sys.stdout, io.TextIOWrapper):  # names are any text; the terminal's encoding may lack characters
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            code = _run(command, arguments[1:])
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a broken pipe is still handled
    except SystemExit as done:  # argparse
        code = done.code if isinstance(done.code, int) else 1
    except KeyboardInterrupt:
        exec("")  # once the last exec (a dataclass's) was interrupted, Python ends itself by SIGINT, whatever the code
        code = INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        code = BROKEN_PIPE
    except (NngkitError, BaseExceptionGroup) as error:
        if isinstance(error, BaseExceptionGroup) and error.subgroup(KeyboardInterrupt):  # wrapped by a nursery
            return INTERRUPTED
        reason = only(error)
        if reason is None:
            raise
        if isinstance(reason, ConfigError) and reason.what == "tls":
            from nngkit.cli.option_errors import named

            reason = named(reason, "URL")
        say(_whole(command, arguments[1:]), explained(reason))
        code = exit_code(reason)
    except OSError as error:  # TimedOut is caught above: this is a full disk or a closed output
        say(where, f"cannot write the output: {error.strerror or error}")
        _discard_output()
        code = 1
    return code


def _whole(command: str, arguments: Sequence[str]) -> str:
    """Return the command as typed, with its action if it has any: `nngkit doc cat`."""
    if command not in COMMANDS:
        return "nngkit"
    actions = getattr(sys.modules.get(module_of(command)), "ACTIONS", ())
    return " ".join(["nngkit", command, *[word for word in arguments if word in actions][:1]])


def _fill_standard_streams() -> None:
    """Open /dev/null for each standard stream that is closed, so that no socket gets its descriptor."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, so this one


def _unraisable(ignored: sys.UnraisableHookArgs) -> None:
    """End the process at once on a Ctrl-C that Python would ignore, because nothing can be raised there.

    Mostly that is during imports: each one ends with a weakref callback, and there are hundreds of them.
    """
    if ignored.exc_type is KeyboardInterrupt:
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(ignored)


def _discard_output() -> None:
    """Redirect standard output to /dev/null, so that Python's last flush does not report the error again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _run(command: str, arguments: list[str]) -> int:
    if command in ("-h", "--help", "help"):
        print(usage())
        return 0
    if command in ("-V", "--version"):
        print(f"nngkit {__version__}")
        return 0
    if command not in COMMANDS and command not in PROGRAMS:
        from nngkit.cli.suggestions import did_you_mean

        meant = did_you_mean(command, COMMANDS) or f"; there are {', '.join(COMMANDS)}"
        wrong = f"no command {command!r}" if command else "a command is needed"
        say("nngkit", f"{wrong}{meant} (see nngkit --help)")
        return 2
    module = import_module(module_of(command))
    if hasattr(module, "command"):  # parses its arguments itself
        own: int = module.command(command, arguments)
        return own
    from nngkit.cli.config.command_parser import (  # argparse: 10 ms, which no cat command spends
        daemon_named,
        flags_of,
        parser_of,
    )

    given: argparse.Namespace | None
    if (daemon := daemon_named(command, arguments)) is not None:
        flags = flags_of(daemon, arguments)
        from nngkit.cli.config.starting import started  # discovery's settings, which --help does not load

        given = started(daemon, flags, module.check)
        if given is None:
            return 0
    else:
        given = parser_of(command).parse_args(arguments)
    if getattr(given, "shared_files", False):
        from nngkit.file_modes import share

        share()
    code: int = module.run(given)
    return code
