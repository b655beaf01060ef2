"""`nngkit completion SHELL`: print a completion script for bash, zsh or fish.

::

    source <(nngkit completion bash)
    nngkit completion zsh > "${fpath[1]}/_nngkit"
    nngkit completion fish > ~/.config/fish/completions/nngkit.fish

The scripts complete commands, options, and the values of some options (--format, --protocol); the shell completes
files. They start no process.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from nngkit.cli.commands import COMMANDS
from nngkit.cli.tools.catalogue import Choice, actions, choices
from nngkit.cli.tools.catalogue import words as words_of

EPILOG: Final = "bash: source <(nngkit completion bash)"
FILES: Final = ("FILE", "PATH")  # placeholders of values that the shell completes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def run(arguments: argparse.Namespace) -> int:
    """Print the script; return the exit code."""
    print(SHELLS[arguments.shell]())
    return 0


def bash() -> str:
    """Return the script for bash 4 and later."""
    cases = []
    for command in COMMANDS:
        options = " ".join(name for choice in choices(command) for name in choice.names)
        cases.append(f'        {command}) words="{options}" ;;')
    values = sorted(
        {
            (name, choice.values)
            for command in COMMANDS
            for choice in choices(command)
            if choice.values
            for name in choice.names
        }
    )
    known = [
        f'        {name}) COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$word")); return ;;' for name, words in values
    ]
    done = [
        f'    if [[ "$line" == "{f"{command} {behind}".rstrip()}" && "$word" != -* ]]; then\n'
        f'        COMPREPLY=($(compgen -W "{" ".join(named)}" -- "$word")); return\n    fi'
        for command in COMMANDS
        for behind, named in words_of(command).items()
    ]
    return "\n".join(
        [
            "# bash completion for nngkit, written by `nngkit completion bash`",
            "_nngkit() {",
            '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
            '    local line="${COMP_WORDS[*]:1:COMP_CWORD-1}"',
            "    if ((COMP_CWORD == 1)); then",
            f'        COMPREPLY=($(compgen -W "{" ".join(COMMANDS)}" -- "$word"))',
            "        return",
            "    fi",
            *done,
            '    case "$before" in',
            *known,
            "    esac",
            '    case "${COMP_WORDS[1]}" in',
            *cases,
            "    esac",
            '    [[ "$word" == -* ]] && COMPREPLY=($(compgen -W "$words" -- "$word"))',
            "}",
            "complete -o default -F _nngkit nngkit",
        ]
    )


def zsh() -> str:
    """Return the function file for zsh."""
    parts = [
        "#compdef nngkit",
        "# zsh completion for nngkit, written by `nngkit completion zsh`",
        "local -a commands",
        "commands=(",
    ]
    parts += [f"    {_zsh_quoted(f'{command}:{what}')}" for command, what in COMMANDS.items()]
    parts += [
        ")",
        "if ((CURRENT == 2)); then",
        "    _describe command commands",
        "    return",
        "fi",
        'case "$words[2]" in',
    ]
    for command in COMMANDS:
        parts.append(f"    {command}) _arguments -s \\")
        parts += [f"        {_zsh_option(name, choice)} \\" for choice in choices(command) for name in choice.names]
        for place, named in enumerate(words_of(command).values(), 2):
            parts.append(f"        '{place}:word:({' '.join(named)})' \\")
        parts.append("        '*:address:' ;;")
    return "\n".join([*parts, "esac"])


def _zsh_option(name: str, choice: Choice) -> str:
    explained = _zsh_escaped(choice.help)
    if not choice.takes:
        return _zsh_quoted(f"*{name}[{explained}]")
    action = f"({' '.join(choice.values)})" if choice.values else "_files" if choice.takes in FILES else " "
    near = "=" if name.startswith("--") else "+"  # --name=value as well as --name value, -nvalue as well as -n value
    return _zsh_quoted(f"*{name}{near}[{explained}]:{choice.takes}:{action}")


def _zsh_escaped(text: str) -> str:
    """Escape brackets, colons and backslashes for zsh specifications."""
    return "".join(f"\\{each}" if each in "[]:\\" else each for each in text)


def _zsh_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def fish() -> str:
    """Return the script for fish 3 and later."""
    lines = [
        "# fish completion for nngkit, written by `nngkit completion fish`",
        "function __nngkit_command",  # the first word only: others may be data that looks like a command
        "    set -l words (commandline -opc)",
        '    test "$words[2]" = "$argv[1]"',
        "end",
        "function __nngkit_action",
        "    set -l words (commandline -opc)",
        '    test "$words[3]" = "$argv[1]"',
        "end",
        "complete -c nngkit -f",
    ]
    lines += [
        f"complete -c nngkit -n '__nngkit_command \"\"' -a {command} -d {_fish_quoted(what)}"
        for command, what in COMMANDS.items()
    ]
    for command in COMMANDS:
        there = f"-n '__nngkit_command {command}'"
        lines += [
            f"complete -c nngkit {there} -a {name} -d {_fish_quoted(what)}" for name, what in actions(command).items()
        ]
        for behind, named in words_of(command).items():
            if behind or not actions(command):
                after = f"; and __nngkit_action {behind}" if behind else ""
                lines.append(f"complete -c nngkit {there[:-1]}{after}' -a {_fish_quoted(' '.join(named))}")
        for choice in choices(command):
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in choice.names)
            takes = ("-r -F" if choice.takes in FILES else "-x") if choice.takes else "-f"
            values = f" -a {_fish_quoted(' '.join(choice.values))}" if choice.values else ""
            lines.append(f"complete -c nngkit {there} {names} {takes}{values} -d {_fish_quoted(choice.help)}")
    return "\n".join(lines)


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: Final[dict[str, Callable[[], str]]] = {"bash": bash, "zsh": zsh, "fish": fish}
