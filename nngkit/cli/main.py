"""The `nngkit` command: finds the module of the command asked for, runs it, and turns its end into an exit code.

======  ================================================================================
code    meaning
======  ================================================================================
0       ok
1       it did not work: no such name among it
2       wrong usage: an option, an address, or a variable of the environment
3       cannot connect or listen
4       the time ran out with nothing received
130     interrupted (SIGINT); 143 terminated (SIGTERM); 141 nobody reads the output any more
======  ================================================================================

Whatever a user or a peer can do wrong is one line on stderr that says what and where. A traceback is a bug of ours.
Brings in no event loop and no NNG: a command's module does, when it is run.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from nngkit import __version__
from nngkit.errors import ConfigError, NngkitError, TimedOut, Unreachable

__all__ = ["COMMANDS", "exit_code", "main"]

COMMANDS: Final = {
    "discoverd": "survey services, and answer who asks for them by name",
    "discover": "list the services that a discovery daemon knows",
    "resolve": "print the address of one provider of a service",
    "cat": "talk to peers by any protocol: nngcat and nanocat in one, and more",
    "pub": "publish: send each message to all subscribers",
    "sub": "subscribe: print what is published, or some topics of it",
    "push": "send each message to one of the pullers",
    "pull": "print what is pushed",
    "req": "send requests, print the replies",
    "rep": "print requests and answer them",
    "survey": "ask all respondents, print their answers",
    "respond": "print surveys and answer them",
    "bus": "send to and print what comes from all that are directly connected",
    "pair": "talk to one peer, both ways",
    "completion": "print a completion script for bash, zsh or fish",
    "man": "print or write the manual pages",
    "nngcat": "do as NNG's nngcat does: same options, output and exit codes",
    "nanocat": "do as nanomsg's nanocat does; nn_push, nn_pull and so on are its links",
    "device": "pass messages on between two addresses: queue, forwarder, streamer, bus, pair",
    "record": "keep all that some sockets receive, in a journal",
    "replay": "send what a journal holds once more: at its pace, faster, or as fast as it goes",
    "journal": "list, verify, count and export what a journal holds",
    "bench": "measure rates, drops and latencies of the six protocols",
    "ping": "measure round trips, again and again",
    "top": "show who sends what, how much, and what is lost",
    "doc": "edit, print, keep and serve documents that stay in sync",
    "doctor": "say why two ends do not talk",
    "spark": "have Spark answer questions about a journal",
}
SHORTHANDS: Final = ("pub", "sub", "push", "pull", "req", "rep", "survey", "respond", "bus", "pair")  # of cat
PROGRAMS: Final = {  # what nanocat's links are called: each is nanocat with the protocol said
    f"nn_{name}": "nanocat"
    for name in ("push", "pull", "pub", "sub", "req", "rep", "surveyor", "respondent", "bus", "pair")
}
STAND_INS: Final = {"nngcat", "nanocat", *PROGRAMS}
BROKEN_PIPE: Final = 141
INTERRUPTED: Final = 130


def usage() -> str:
    """The help of the whole."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {what}" for name, what in COMMANDS.items()]
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
    """Run the command in `argv` (left out: sys.argv); its exit code. A link by a stand-in's name is that stand-in."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _fill_standard_streams()
    if argv is None and (program := os.path.basename(sys.argv[0])) in STAND_INS:
        arguments.insert(0, program)
    command = arguments[0] if arguments else ""
    where = f"nngkit {command}" if command in COMMANDS else "nngkit"
    if argv is None:
        sys.unraisablehook = _unraisable
    if isinstance(sys.stdout, io.TextIOWrapper):  # names are any text; the terminal may know less
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            code = _run(command, arguments[1:])
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a reader that has gone is still our business
    except SystemExit as done:  # argparse
        code = done.code if isinstance(done.code, int) else 1
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        code = BROKEN_PIPE
    except (NngkitError, BaseExceptionGroup) as error:
        if isinstance(error, BaseExceptionGroup) and error.subgroup(KeyboardInterrupt):  # a nursery has wrapped it
            return INTERRUPTED
        reason = only(error)
        if reason is None:
            raise
        if isinstance(reason, ConfigError) and reason.what == "tls":
            from nngkit.cli.naming import named

            reason = named(reason, "URL")
        say(_whole(command, arguments[1:]), str(reason))
        code = exit_code(reason)
    except OSError as error:  # not TimedOut, see above: this is a full disk, a closed output
        say(where, f"cannot write the output: {error.strerror or error}")
        _discard_output()
        code = 1
    return code


def _whole(command: str, arguments: Sequence[str]) -> str:
    """Return the command as it was typed, with its action if it has some: `nngkit doc cat`."""
    if command not in COMMANDS:
        return "nngkit"
    actions = getattr(sys.modules.get(f"nngkit.cli.{command}"), "ACTIONS", ())
    return " ".join(["nngkit", command, *[word for word in arguments if word in actions][:1]])


def _fill_standard_streams() -> None:
    """Where standard input, output or errors are closed: nothing in their place, before a socket gets the number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, so this one


def _unraisable(ignored: sys.UnraisableHookArgs) -> None:
    """End at once by a Ctrl-C that Python would ignore: it came where nothing can be raised, as in a finalizer.

    Most often that is while a module is imported: each import ends with such a callback, and there are hundreds.
    """
    if ignored.exc_type is KeyboardInterrupt:
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(ignored)


def _discard_output() -> None:
    """Have Python's own last flush of standard output end well: what is wrong with it was said, or is nobody's."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _run(command: str, arguments: list[str]) -> int:
    if command in ("-h", "--help", "help"):
        print(usage())
        return 0
    if command in ("-V", "--version"):
        print(f"nngkit {__version__}")
        return 0
    if command not in COMMANDS and command not in PROGRAMS:
        from nngkit.cli.nearest import did_you_mean

        meant = did_you_mean(command, COMMANDS) or f"; there are {', '.join(COMMANDS)}"
        what = f"no command {command!r}" if command else "a command is needed"
        say("nngkit", f"{what}{meant} (see nngkit --help)")
        return 2
    room = "cat" if command in SHORTHANDS else PROGRAMS.get(command, command)
    module = import_module(f"nngkit.cli.{room}")
    if hasattr(module, "command"):  # reads its arguments itself
        own: int = module.command(command, arguments)
        return own
    from nngkit.cli.options import parser_for  # argparse: 10 ms that the cat commands do not spend

    parser = parser_for(command, COMMANDS[command], module.EPILOG)
    module.add_arguments(parser)
    code: int = module.run(parser.parse_args(arguments))
    return code


def say(where: str, what: str) -> None:
    """One line on stderr."""
    if sys.stderr is not None:  # closed; print would take stdout instead
        print(f"{where}: {' '.join(what.split())}", file=sys.stderr)


def only(error: BaseException) -> NngkitError | None:
    """The one of our errors that `error` is, or that a nursery has wrapped; None if there is something else in it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, BaseExceptionGroup) and all(only(each) for each in error.exceptions):
        error = error.exceptions[0]
        return only(error)
    return error if isinstance(error, NngkitError) else None


def exit_code(error: NngkitError) -> int:
    """What the shell is told."""
    match error:
        case ConfigError():
            return 2
        case Unreachable():
            return 3
        case TimedOut():
            return 4
        case _:
            return 1
