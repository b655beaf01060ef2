"""The command as a whole: help, version, wrong usage, exit codes, loaded modules."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import jsonschema
import pytest

import nngkit as package
from nngkit.cli.commands import COMMANDS, STAND_INS
from nngkit.cli.exit_codes import exit_code, only
from nngkit.cli.main import main
from nngkit.cluster.shell.store import VoterStore
from nngkit.errors import Broken, ConfigError, NngkitError, ServiceNotFound, TimedOut, Unreachable
from tests.cli.commands import ROOT, SCHEMAS, WAIT, assert_fails, command, discoverd, environment, nngkit
from tests.discovery.peers import program


def test_version() -> None:
    done = nngkit("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"nngkit {package.__version__}\n", "")


@pytest.mark.slow
def test_help_lists_the_commands_and_each_has_a_help() -> None:
    done = nngkit("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
        if name in STAND_INS:  # their format is the originals': test_stand_ins.py
            continue
        own = nngkit(name, "--help")
        assert (own.returncode, own.stderr) == (0, "")
        assert own.stdout.startswith(f"usage: nngkit {name}")
        assert "--json" in own.stdout or name in ("completion", "man")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "a command is needed; there are discoverd, discover, resolve"),
        (["fetch"], "no command 'fetch'; there are"),
        (["pul"], "no command 'pul'; did you mean pull? (see"),
        (["pull", "--recv-timout", "1"], "--recv-timout: no such option; did you mean --recv-timeout?"),
        (["discover", "--jsn"], "unrecognized arguments: --jsn; did you mean --json?"),
        (["doc", "cat", "x", "--stor", "y"], "nngkit doc cat: unrecognized arguments: --stor y; did you mean --store?"),
        (["doc", "ca", "x"], "did you mean cat?"),
        (["spark", "run", "silneces"], "; did you mean silences?"),
        (["doc", "cat", ""], "nngkit doc cat: document name: '': is empty"),
        (["--json"], "no command '--json'"),
        (["discover", "--bogus"], "unrecognized arguments: --bogus"),
        (["discover", "--js"], "unrecognized arguments: --js"),
        (["discover", "--timeout", "5s"], "argument --timeout: '5s' is not a number of seconds"),
        (["discover", "--timeout", "nan"], "argument --timeout: 'nan' is not a number of seconds"),
        (["discover", "--all", "--rounds"], "not allowed with argument"),
        (["discover", "--rounds", "answer"], "--rounds: takes no NAME"),
        (["discover", "--daemon", "localhost"], "argument --daemon: 'localhost' is not an address"),
        (["discover", "--daemon", "pgm://a:1"], "no transport 'pgm'"),
        (["discover", "a|b"], "NAME: name has a '|'"),
        (["resolve"], "the following arguments are required: NAME"),
        (["resolve", ""], "NAME: name is empty"),
        (["resolve", "a\nb"], "NAME: name has characters that cannot be printed"),
        (["discoverd", "--interval", "-1"], "argument --interval"),
        (["discoverd", "--listen", "here"], "argument --listen: 'here' is not an address"),
    ],
)
def test_wrong_usage_is_a_one_line_error_and_exit_code_2(arguments: list[str], says: str) -> None:
    assert_fails(nngkit(*arguments), 2, says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["record", "j", "--stream", "a=pull listen=tls+tcp://127.0.0.1:0"],
            "--cert: a listener over TLS needs it, and --key",
        ),
        (
            ["record", "j", "--stream", "a=sub dial=tls+tcp://127.0.0.1:1"],
            "--cacert: a dialer over TLS needs it, or --insecure",
        ),
        (
            ["doc", "cat", "minutes", "--dial", "wss://127.0.0.1:1"],
            "--cacert: a dialer over TLS needs it, or --insecure",
        ),
        (
            ["doc", "cat", "minutes", "--listen", "tcp://127.0.0.1:0", "--discovery", "tls+tcp://127.0.0.1:1"],
            "--cacert: a dialer over TLS needs it, or --insecure",
        ),
        (["pull", "--listen", "tls+tcp://127.0.0.1:0"], "--cert: a listener over TLS needs it, and --key"),
        (["discoverd", "--listen", "tls+tcp://127.0.0.1:0"], "--cert: a listener over TLS needs it, and --key"),
    ],
)
def test_missing_tls_settings_are_named_by_options(arguments: list[str], says: str, tmp_path: Path) -> None:
    arguments = [str(tmp_path / "journal") if each == "j" else each for each in arguments]
    assert_fails(nngkit(*arguments), 2, says)


@pytest.mark.parametrize(
    ("name", "variables", "says"),
    [
        ("discoverd", {"PORT": "http"}, "PORT: 'http' is not a whole number, as a port is"),
        ("discoverd", {"DEADLINE": "5s"}, "DEADLINE: '5s' is not a whole number of milliseconds"),
        ("discoverd", {"NNGKIT_INTERVAL": "9" * 5000}, "NNGKIT_INTERVAL: 999"),
        ("discoverd", {"NNGKIT_TEXT": "perhaps"}, "NNGKIT_TEXT: 'perhaps' is neither yes nor no"),
        ("discoverd", {"NNGKIT_LISTEN": "5555"}, "NNGKIT_LISTEN: '5555' is not an address"),
        ("discoverd", {"NNGKIT_PORT": "65535"}, "NNGKIT_QUERY: has to be set"),
        ("discover", {"DISCOVERY_PORT": "0"}, "DISCOVERY_PORT: 0 is not from 1 to 65535"),
        ("discover", {"NNGKIT_QUERY": "host"}, "NNGKIT_QUERY: 'host' is not an address"),
        ("resolve", {"DISCOVERY_HOST": "a b"}, "DISCOVERY_HOST: 'a b' is not a host"),
    ],
)
def test_an_invalid_variable_is_a_one_line_error_that_names_it(name: str, variables: dict[str, str], says: str) -> None:
    done = nngkit(name, *(["answer"] if name == "resolve" else []), **variables)
    assert_fails(done, 2, f"nngkit {name}: ", says)


def test_a_closed_output_ends_it_silently() -> None:
    listing = subprocess.Popen(
        [*command("--help")], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        listing.stdout.close()
        assert (listing.wait(30), listing.stderr.read()) == (141, "")


def test_a_full_disk_is_a_one_line_error() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("--version"),
            cwd=ROOT,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
        )
    assert (done.returncode, done.stderr) == (1, "nngkit: cannot write the output: No space left on device\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a", "b"), 2),
        (Unreachable("a", "b"), 3),
        (TimedOut("a"), 4),
        (ServiceNotFound("a"), 1),
        (Broken("a"), 1),
    ],
)
def test_errors_have_exit_codes_also_in_groups(error: NngkitError, code: int) -> None:
    assert exit_code(error) == code
    assert only(ExceptionGroup("", [ExceptionGroup("", [error])])) is error
    assert only(ExceptionGroup("", [error, ValueError()])) is None


@pytest.mark.parametrize(
    ("what", "number", "code"),
    [
        ("--config", errno.ENOENT, 2),
        ("--config", errno.EMFILE, 1),
        ("DIR", errno.EACCES, 2),
        ("DIR", errno.ENOSPC, 1),
        ("journal", errno.ENOENT, 1),
        ("journal", errno.EAGAIN, 1),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) and value > 2 else str(value),
)
def test_settings_that_may_be_right_later_have_the_exit_code_of_a_failure(what: str, number: int, code: int) -> None:
    inner, outer = ConfigError("inner", "x"), ConfigError(what, "x")
    inner.__cause__, outer.__cause__ = OSError(number, "x"), inner
    assert exit_code(outer) == code
    inner.__cause__ = inner
    assert exit_code(outer) == 2


def test_a_lock_that_another_process_has_is_a_failure(tmp_path: Path) -> None:
    holder = VoterStore(tmp_path)
    holder.open()
    with closing(holder), pytest.raises(ConfigError, match="is used by another process") as told:
        VoterStore(tmp_path).open()
    assert exit_code(told.value) == 1


def test_version_loads_no_event_loop() -> None:
    script = "import sys; from nngkit.cli.main import main; main(['--version']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=30)
    for heavy in ("trio", "asyncio", "pynng", "cbor2", "nngkit.discovery"):
        assert f"'{heavy}'" not in done.stdout


def test_main_returns_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert capsys.readouterr().out == ""
    assert main(["--version"]) == 0


def test_an_interrupt_is_exit_code_130() -> None:
    # a daemon that accepts and never replies: the signal interrupts the wait
    script = (
        "import signal, sys, threading, os; from nngkit.cli.main import main; "
        "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start(); "
        "sys.exit(main(['resolve', 'answer', '--timeout', '30', '--daemon', 'tcp://127.0.0.1:1']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_where_python_cannot_raise_is_130() -> None:
    # as at the end of each import, in a callback whose exceptions Python ignores
    deaf = """
import signal, sys, types
from nngkit.cli.main import main

class Deaf:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def command(name, arguments):
    Deaf()
    print("goes on", flush=True)
    return 0

sys.modules["nngkit.cli.cat.cat"] = types.SimpleNamespace(command=command)
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", deaf, "push"], cwd=ROOT, capture_output=True, text=True, timeout=WAIT)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_while_a_dataclass_is_made_is_130(tmp_path: Path) -> None:
    # Python remembers that its last exec was interrupted, and ends `python -m` by SIGINT, whatever its code
    tmp_path.joinpath("interrupted.py").write_text(
        "import sys, types; from nngkit.cli.main import main\n"
        "def command(name, arguments): exec('raise KeyboardInterrupt')\n"
        "sys.modules['nngkit.cli.cat.cat'] = types.SimpleNamespace(command=command); sys.exit(main())\n"
    )
    found = [sys.executable, "-m", "interrupted", "push"]
    done = subprocess.run(found, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_wrapped_by_a_nursery_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = BaseExceptionGroup("", [BaseExceptionGroup("", [KeyboardInterrupt()])])
    monkeypatch.setattr("nngkit.cli.main._run", raiser(wrapped))
    assert main(["resolve"]) == 130


def test_a_timeout_is_not_an_output_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("nngkit.cli.main._run", raiser(TimedOut("too late")))  # TimedOut is an OSError too
    assert main(["resolve"]) == 4
    assert capsys.readouterr().err == "nngkit resolve: too late\n"


def raiser(error: BaseException) -> Callable[[str, list[str]], int]:
    def run(command: str, arguments: list[str]) -> int:
        raise error

    return run


def test_characters_missing_in_the_terminals_encoding_are_escaped() -> None:
    with discoverd() as daemon, program("provider", "köln", "tcp://10.0.0.1:9000", daemon.surveys):
        assert daemon.line()
        done = nngkit("discover", "--daemon", daemon.answers, PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr) == (0, "")
        assert "k\\xf6ln" in done.stdout


def test_diagnostics_never_go_to_stdout_if_stderr_is_closed() -> None:
    script = f"{sys.executable} -m nngkit nothing 2>&-"
    done = subprocess.run(["/bin/sh", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: str(path.stem))
def test_each_published_schema_is_valid(path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))
