"""Secrets of daemons: they are in no output, answer of a door, status or command line, nor told by the doctor."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.cli.commands import ROOT, WAIT, command, environment, nngkit
from tests.cli.terminals import Terminal
from tests.cli.test_notify import Manager
from tests.preloaded import Popen
from tests.trust.one_realm import OneRealm

SECRET = "5ecret0f0perators"
ANY = "tcp://127.0.0.1:0"
HTTP = ("--http", "127.0.0.1:0", "--log-level", "debug")
WITH_TOKEN = {
    "host": ("host", "render", "--listen", ANY),
    "join": ("join", "render", "--dial", "tcp://127.0.0.1:1"),
    "record": ("record", "{folder}/journal", "--stream", "notes=documents join=ws://127.0.0.1:1/repair"),
    "gateway": ("gateway", "--daemon", "tcp://127.0.0.1:1", "--cluster", "render", "--dial", "tcp://127.0.0.1:1"),
    "doc serve": ("doc", "serve", "{folder}/docs", "--listen", "ws://127.0.0.1:0"),
}
WITH_PASS = {
    "discoverd": ("discoverd", "--listen", "tls+tcp://127.0.0.1:0", "--query", "tls+tcp://127.0.0.1:0", "--no-history"),
    "serve": ("serve", "shout", "--exec", "cat", "--discovery", "tls+tcp://127.0.0.1:1"),
    "device": ("device", "queue", "--front-listen", "tls+tcp://127.0.0.1:0", "--back-listen", "tls+tcp://127.0.0.1:0"),
    "gateway": ("gateway", "--daemon", "tls+tcp://127.0.0.1:1"),
    "doc serve": ("doc", "serve", "{folder}/docs", "--listen", "tls+tcp://127.0.0.1:0"),
}


def fetched(url: str) -> str:
    """Return all that a door answers; one that wants a name answers less."""
    found, paths = [], ["openapi.json"]
    for path in paths:
        try:
            with urllib.request.urlopen(f"{url}{path}", timeout=WAIT) as answer:
                body = (answer.readline() if path == "v1/events" else answer.read()).decode()
        except urllib.error.HTTPError as error:
            body = error.read().decode()
        found.append(body)
        if len(paths) == 1:
            paths += [each[1:] for each in json.loads(body).get("paths", {"/services": 0}) if "{" not in each]
    return "\n".join(found)


@contextmanager
def told_by(arguments: tuple[str, ...], folder: Path) -> Iterator[list[str]]:
    """Run a daemon as systemd does, its output in a log; yield a list of all that it tells, which grows."""
    here, there = socket.socketpair()
    here.settimeout(WAIT)
    with closing(Manager(folder / "manager")) as manager, here:
        with there:
            process = Popen(
                command(*arguments),
                cwd=ROOT,
                env=environment(NOTIFY_SOCKET=str(folder / "manager")),
                stdin=subprocess.DEVNULL,
                stdout=there.fileno(),
                stderr=there.fileno(),
            )
        with process:
            try:
                told = [manager.hears()]
                while "http://127.0.0.1:" not in told[-1]:
                    told.append(here.recv(1 << 16).decode())
                yield told
                told.append(Path(f"/proc/{process.pid}/cmdline").read_text())
                process.send_signal(signal.SIGTERM)
                assert process.wait(WAIT) == 143
            finally:
                process.kill()
        told += manager.hears_within(0.01)
        while data := here.recv(1 << 16):
            told.append(data.decode())


def settings(folder: Path, lines: dict[str, str]) -> Path:
    """Write a file of settings, as an operator does."""
    path = folder / "settings.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()))
    return path


def assert_tells_no(secrets: list[str], name: str, folder: Path, words: tuple[str, ...], file: Path) -> list[str]:
    """Run a daemon, ask it all, check its settings, and have them diagnosed; return what was told."""
    given = (*(word.replace("{folder}", str(folder)) for word in words), *HTTP, "--config", str(file))
    with told_by(given, folder) as told:
        (url,) = re.findall(r"(http://127\.0\.0\.1:\d+/)", "".join(told))[:1]
        told.append(fetched(url))
    for more in (("--check",), ("--check", "--json"), ("--print-config",)):
        if "--json" not in more or name != "gateway":
            done = nngkit(*given, *more)
            assert done.returncode == 0, done.stderr
            told += [done.stdout, done.stderr]
    done = nngkit("doctor", "--settings", f"{name}={file}", "--json")
    assert done.returncode in (0, 1), done.stderr
    told += [done.stdout, done.stderr]
    text = "\n".join(told)
    assert "READY=1" in text
    assert not [secret for secret in secrets if secret in text], text
    return told


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_TOKEN)
def test_a_token_is_told_nowhere(name: str, tmp_path: Path) -> None:
    file = settings(tmp_path, {"token": SECRET})
    assert_tells_no([SECRET], name, tmp_path, WITH_TOKEN[name], file)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_PASS)
def test_the_key_of_a_pass_is_told_nowhere(name: str, tmp_path: Path) -> None:
    path = OneRealm(tmp_path / "farm").file("hub", ("127.0.0.1",))
    key = path.read_text().partition("PRIVATE KEY-----\n")[2].splitlines()[:3]
    file = settings(tmp_path, {"trust": str(path)})
    assert_tells_no(key, name, tmp_path, WITH_PASS[name], file)


JOURNAL = f"s3://bucket/j?aws_secret_access_key={SECRET}&region=x"
STREAM = f"notes=documents join=ws://127.0.0.1:1/repair#token={SECRET}"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("record", JOURNAL, "--stream", STREAM, "--check"), 0),
        (("record", f"https://me:{SECRET}@127.0.0.1/j", "--stream", STREAM, "--check", "--json"), 0),
        (("record", "j", "--stream", f"{STREAM} listn=3", "--check"), 2),
        (("doc", "serve", "docs", "--join", f"ws//127.0.0.1:1/#token={SECRET}"), 2),
        (("host", "render", "--listen", ANY, "--config", "{wrong}"), 2),
    ],
)
def test_settings_and_errors_are_told_without_secrets(words: tuple[str, ...], code: int, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text(f'token = ["{SECRET}"]\n')
    done = nngkit(*(word.replace("{wrong}", str(tmp_path / "wrong.toml")) for word in words))
    assert done.returncode == code, done.stderr
    assert "***" in done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_a_log_has_the_link_without_the_token_and_the_way_to_it(tmp_path: Path) -> None:
    words = ("doc", "serve", str(tmp_path / "docs"), "--listen", "ws://127.0.0.1:0", "--http", "127.0.0.1:0")
    with told_by(words, tmp_path) as told:
        pass
    file = tmp_path / "docs" / "docs.token"
    assert file.read_text().strip() not in "".join(told)
    assert f"the token is in {file}" in "".join(told)
    line = rf"NNGKIT_TOKEN_FILE={file} nngkit doc edit NAME --join 'ws://\S+/repair'"
    assert re.search(line, "".join(told))


def test_a_terminal_has_the_link_with_the_token(tmp_path: Path) -> None:
    words = ("doc", "serve", str(tmp_path / "docs"), "--listen", "ws://127.0.0.1:0", "--no-page")
    with Terminal(*words, columns=300) as terminal:
        terminal.shows("/repair#token=")
