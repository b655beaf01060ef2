"""The completion scripts, run by bash, zsh and fish: completions of a begun line."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nngkit.cli.cat.command_line.option_table import FORMATS
from nngkit.cli.commands import COMMANDS
from nngkit.cli.tools.bench import PROTOCOLS
from nngkit.cli.tools.completion import SHELLS
from nngkit.devices.kinds import KINDS
from tests.cli.commands import nngkit
from tests.cli.terminals import until

WAIT = 50
# zsh's functions pass completions to compadd; a call with -O, -A or -D only queries.
ZSHRC = """
PROMPT='ready> '
fpath=($ZDOTDIR $fpath)
autoload -U compinit && compinit -u -D
compadd() {
    local -a found
    if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)* ]]; then
        builtin compadd -O found "$@"
        offered+=($found)
    fi
    builtin compadd "$@"
}
offer() {
    local -a offered
    _main_complete
    print -rl -- '<offered' $offered 'offered>'
}
zle -C offer complete-word offer
bindkey '^I' offer
"""


def by_bash(line: str, folder: Path) -> set[str]:
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    script = (
        f'source /dev/stdin <<< "$0"; COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _nngkit; '
        'echo "${COMPREPLY[*]}"'
    )
    done = subprocess.run(["bash", "-c", script, SHELLS["bash"]()], capture_output=True, text=True, timeout=WAIT)
    assert done.stderr == ""
    return set(done.stdout.split())


def by_fish(line: str, folder: Path) -> set[str]:
    (folder / "nngkit.fish").write_text(SHELLS["fish"]())
    script = f"source {folder}/nngkit.fish; complete -C {shlex.quote(line)}"
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], env=environment, capture_output=True, text=True, timeout=WAIT
    )
    assert done.stderr == ""
    return {each.partition("\t")[0] for each in done.stdout.splitlines()}


def by_zsh(line: str, folder: Path) -> set[str]:
    """Type the line and a tab in a terminal: zsh completes only there."""
    (folder / "_nngkit").write_text(SHELLS["zsh"]())
    (folder / ".zshrc").write_text(ZSHRC)
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            ["zsh", "-d", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "ZDOTDIR": str(folder), "TERM": "dumb"},
            start_new_session=True,
        ) as zsh:
            try:
                os.close(theirs)
                until(ours, "ready> ", WAIT)
                os.write(ours, f"{line}\t".encode())
                found = until(ours, "offered>", WAIT)
            finally:
                zsh.kill()
    finally:
        os.close(ours)
    return set(found.partition("<offered")[2].partition("offered>")[0].split())


BY: dict[str, Callable[[str, Path], set[str]]] = {"bash": by_bash, "zsh": by_zsh, "fish": by_fish}
INSTALLED = [
    "bash",
    pytest.param("zsh", marks=pytest.mark.needs_program("zsh", package="zsh")),
    pytest.param("fish", marks=pytest.mark.needs_program("fish", package="fish")),
]


def test_each_shell_has_a_test() -> None:
    assert set(BY) == set(SHELLS)


@pytest.mark.slow
@pytest.mark.parametrize("shell", INSTALLED)
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("nngkit su", {"sub", "submit", "survey"}),
        ("nngkit ", set(COMMANDS)),
        ("nngkit sub --sub", {"--subscribe"}),
        ("nngkit pub --sub", set()),
        ("nngkit pub --data sub --sub", set()),
        ("nngkit nanocat --bind", {"--bind", "--bind-ipc", "--bind-local"}),
        ("nngkit discover --ro", {"--rounds"}),
        ("nngkit resolve --c", {"--cacert", "--cert"}),
        ("nngkit discoverd --ke", {"--key"}),
        ("nngkit watch --te", {"--template"}),
        ("nngkit serve --codec ", {"cbor", "json"}),
        ("nngkit call --in", {"--in-flight", "--info", "--insecure"}),
        ("nngkit device queue --front-l", {"--front-listen"}),
        ("nngkit device ", set(KINDS)),
        ("nngkit device stre", {"streamer"}),
        ("nngkit spark ru", {"run"}),
        ("nngkit spark run avail", {"availability"}),
        ("nngkit cat --format ", set(FORMATS)),
        ("nngkit cat --listen x --format h", {"hex"}),
        ("nngkit bench --protocol ", set(PROTOCOLS)),
        ("nngkit bench --protocol bus --wi", {"--window"}),
        ("nngkit doc re", {"recover"}),
        ("nngkit doc edit --edi", {"--editor"}),
        ("nngkit cat --cacert x -L 1 --wait-p", {"--wait-peers"}),
    ],
)
def test_a_begun_line_is_completed(shell: str, line: str, offered: set[str], tmp_path: Path) -> None:
    assert BY[shell](line, tmp_path) == offered


@pytest.mark.slow
@pytest.mark.parametrize("shell", INSTALLED[1:])
def test_files_are_offered_for_file_options(shell: str, tmp_path: Path) -> None:
    (tmp_path / "certificate.pem").touch()
    (found,) = BY[shell](f"nngkit pull --cacert {tmp_path}/certif", tmp_path)
    assert found.endswith("certificate.pem")
    assert BY[shell](f"nngkit pull --recv-timeout {tmp_path}/certif", tmp_path) == set()


@pytest.mark.needs_program("zsh", package="zsh")
def test_zsh_completes_a_value_after_an_equals_sign(tmp_path: Path) -> None:
    assert by_zsh("nngkit cat --format=h", tmp_path) == {"hex"}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_parses_the_script(shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(nngkit("completion", shell).stdout)
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", script.read_text())
    if shutil.which(shell):
        assert subprocess.run([shell, "-n", script], capture_output=True, timeout=WAIT).stderr == b""
