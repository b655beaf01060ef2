"""Configuration of daemons: what holds, where it comes from, files with mistakes, secrets, reload."""

from __future__ import annotations

import re
import signal
import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.cli.commands import DAEMONS
from nngkit.cli.config.command_parser import META, daemon_parser, parser_of
from nngkit.cli.config.settings import settings_of
from nngkit.cli.config.toml_file import key_lines
from nngkit.discovery.settings import VARIABLES
from tests.cli.commands import WAIT, assert_fails, discoverd, nngkit, valid
from tests.cli.processes import Running

ROWS = {row.name for row in VARIABLES}


def checked(*arguments: str, **variables: str) -> dict[str, tuple[str, str]]:
    """Return what `--check --json` says: value and source, by key."""
    done = nngkit(*arguments, "--check", "--json", **variables)
    assert done.returncode == 0, done.stderr
    rows = [valid(line, "check.json") for line in done.stdout.splitlines()]
    return {row["key"]: (row["value"], row["from"]) for row in rows}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.toml"


def test_a_flag_wins_over_a_variable_over_the_file_over_the_default(file: Path) -> None:
    file.write_text('deadline = 4.5\ninterval = 3\ndomain = "a"\nlisten = [\n  "tcp://127.0.0.1:7001",\n]\n')
    found = checked("discoverd", "--config", str(file), "--interval", "1", NNGKIT_DOMAIN="b")
    assert found["interval"] == ("1", "--interval")
    assert found["domain"] == ("NNGKIT_DOMAIN=b", "NNGKIT_DOMAIN")
    assert found["deadline"] == ("4.5", f"{file}:1")
    assert found["listen"] == ('["tcp://127.0.0.1:7001"]', f"{file}:4")
    assert found["partition"] == ("0", "default")
    article = checked("discoverd", "--config", str(file), PORT="7005", DEADLINE="70")
    assert article["listen"] == ("NNGKIT_PORT=7005".replace("NNGKIT_", ""), "PORT")
    assert article["deadline"] == ("DEADLINE=70 ms", "DEADLINE")


def test_a_list_on_the_command_line_replaces_that_of_the_file(file: Path) -> None:
    file.write_text('name = "shout"\nexec = "tr a-z A-Z"\ntag = ["a", "b"]\ncodec = "json"\n')
    assert checked("serve", "--config", str(file))["tag"][0] == '["a", "b"]'
    assert checked("serve", "--config", str(file), "--tag", "c")["tag"] == ('["c"]', "--tag")
    from_variable = checked("serve", NNGKIT_SERVE_CONFIG=str(file), NNGKIT_SERVE_TAG="d 'e f'")
    assert from_variable["tag"] == ('["d", "e f"]', "NNGKIT_SERVE_TAG")
    assert from_variable["name"] == ('"shout"', f"{file}:1")


def test_what_it_checks_is_what_it_runs_with(file: Path) -> None:
    file.write_text('listen = ["tcp://127.0.0.1:0"]\nquery = "tcp://127.0.0.1:0"\nhistory = "/nowhere/file"\n')
    done = nngkit("discoverd", "--config", str(file))
    assert_fails(done, 2, "/nowhere/file")
    with discoverd("--config", str(file), "--no-history", NNGKIT_LISTEN="") as daemon:
        assert daemon.surveys.startswith("tcp://127.0.0.1:")


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('json = true\nintervall = 3\n', 2, "no setting 'intervall'; did you mean interval?"),
        ('no-text = true\n', 1, "did you mean no_text?"),
        ('\ninterval = "5s"\n', 2, "interval: '5s' is not a number of seconds"),
        ('json = "yes"\n', 1, "json: 'yes' is neither true nor false"),
        ('listen = ["tcp://127.0.0.1:1", 2]\n', 1, "'2' is not an address"),
        ('listen = { a = 1 }\n', 1, "listen: {'a': 1} is not strings"),
        ('deadline = 2020-01-01\n', 1, "is not a string or a number"),
        ('json = true\ninterval = = 3\n', 2, "Invalid value (column 12)"),
        ('history = "a"\nno_history = true\n', 2, "no_history: not allowed with history"),
        ('[discoverd]\ninterval = 3\n', 1, "no setting 'discoverd'"),
        ('domain = "a"\nhistory = "b\\u0000c"\n', 2, "history: a setting has no NUL"),
        ('log_level = "loud"\n', 1, "log_level: invalid choice: 'loud'"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_one_line_with_its_place(file: Path, text: str, line: int, says: str) -> None:
    file.write_text(text)
    for more in ((), ("--check",)):
        assert_fails(nngkit("discoverd", "--config", str(file), *more), 2, f"{file}:{line}: ", says)


def test_other_mistakes_name_the_option_or_the_variable(file: Path) -> None:
    assert_fails(nngkit("discoverd", "--config", str(file)), 2, f"--config: {file}: No such file")
    assert_fails(nngkit("discoverd", NNGKIT_DISCOVERD_CONFIG=str(file)), 2, "NNGKIT_DISCOVERD_CONFIG: ")
    assert_fails(nngkit("discoverd", NNGKIT_DISCOVERD_JSON="perhaps"), 2, "NNGKIT_DISCOVERD_JSON: 'perhaps' is neither")
    assert_fails(nngkit("serve", "--check"), 2, "the following arguments are required: NAME, --exec")
    assert_fails(nngkit("serve", "--weight", "x", "a"), 2, "argument --weight: 'x' is not a whole number")
    assert_fails(nngkit("discoverd", "--check", NNGKIT_DEADLINE="5s"), 2, "NNGKIT_DEADLINE: '5s' is not")
    assert_fails(nngkit("device", "queue", "--check"), 2, "--front-listen: the front needs an address")


@pytest.mark.parametrize("name", DAEMONS)
def test_the_printed_file_has_every_option_and_can_be_read(name: str, file: Path) -> None:
    parser = daemon_parser(parser_of(name.split(maxsplit=1)[0]), name)
    settings = settings_of(name, parser)
    done = nngkit(*name.split(), "--print-config")
    assert tomllib.loads(done.stdout) == {}
    file.write_text(re.sub(r"^#(?=[a-z0-9_]+ = )", "", done.stdout, flags=re.MULTILINE))
    values = tomllib.loads(file.read_text())
    assert list(values) == list(settings)
    assert len(settings) == len([action for action in parser._actions if action.dest not in META])
    for setting in settings.values():
        assert f"Variable: {', '.join(setting.variables)}" in done.stdout
        known = {each.removesuffix("_FILE") for each in setting.declared} - {"NNGKIT_TOKEN", "NNGKIT_SHARED_FILES"}
        assert known <= ROWS | {row.article for row in VARIABLES}


def test_secrets_come_from_files_and_are_not_shown(tmp_path: Path, file: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    file.write_text(f'cluster = "c"\nlisten = "tcp://127.0.0.1:0#token=s3cret"\ntoken_file = "{secret}"\n')
    for found in (
        checked("host", "--config", str(file)),
        checked("host", "c", "--listen", "tcp://127.0.0.1:0#token=s3cret", "--token", "s3cret"),
        checked("host", "c", "--listen", "tcp://127.0.0.1:0", NNGKIT_TOKEN="s3cret"),
    ):
        assert found["token"][0] == "***"
        assert "s3cret" not in str(found)
    both = {"NNGKIT_TOKEN": "s3cret", "NNGKIT_TOKEN_FILE": str(secret)}
    assert_fails(nngkit("host", "c", "--listen", "tcp://127.0.0.1:0", "--check", **both), 2, "NNGKIT_TOKEN_FILE")
    secret.write_text("")
    assert_fails(nngkit("host", "--config", str(file)), 2, f"{file}:3: {secret}: is not one line")


@pytest.mark.slow
def test_nodes_with_secrets_from_files_meet_and_ps_shows_none(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    with Running("host", "c", "--listen", "tcp://127.0.0.1:0", "--token-file", str(secret)) as host:
        address = re.search(r"listens at (\S+)", host.line())
        assert address is not None
        with Running("join", "c", "--dial", address[1], NNGKIT_TOKEN_FILE=str(secret)) as node:
            assert "follows" in node.says()
            for process in (host.process, node.process):
                assert b"s3cret" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()


def test_sighup_applies_what_can_change_and_names_what_cannot(file: Path) -> None:
    def write(weight: int, level: str, more: str = "") -> None:
        file.write_text(f'name = "a"\nexec = "cat"\nweight = {weight}\nlog_level = "{level}"\n{more}')

    write(10, "warning")
    with discoverd() as daemon, Running("serve", "--config", str(file), "--discovery", daemon.surveys) as service:
        assert "announces itself" in service.says()
        write(20, "info", 'codec = "json"\n')
        service.process.send_signal(signal.SIGHUP)
        assert service.says() == "nngkit serve: reloaded: log_level, weight; needs a restart: codec"
        until = time.monotonic() + WAIT
        while '"weight": 20' not in nngkit("discover", "--json", "--daemon", daemon.answers).stdout:
            assert time.monotonic() < until
        file.write_text("weight = 1\nweigth = 2\n")
        service.process.send_signal(signal.SIGHUP)
        assert "not reloaded: " in (said := service.says())
        assert f"{file}:2: no setting 'weigth'" in said
        assert service.end(signal.SIGTERM) == 143


def test_sighup_without_a_file_ends_it() -> None:
    with Running("serve", "a", "--exec", "cat", "--discovery", "tcp://127.0.0.1:1") as service:
        assert "announces itself" in service.says()
        assert service.end(signal.SIGHUP) == -signal.SIGHUP


KEYS = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
VALUES = st.sampled_from(
    [
        "1",
        '"x = 1 # [{"',
        "'y = 2'",
        '[ # c\n "a = 1",\n [1, 2],\n]',
        '"""\nb = 1\n\\"\n"""',
        "'''\nc = 2\n'''",
        "{ d = 1 }",
    ]
)
BETWEEN = st.sampled_from(["", "\n", "# e = 1\n", "  \n\n"])


@given(st.dictionaries(KEYS, st.tuples(BETWEEN, VALUES, st.booleans()), max_size=8))
def test_the_line_of_each_key_is_where_it_stands(file: dict[str, tuple[str, str, bool]]) -> None:
    text, expected = "", {}
    for key, (before, value, quoted) in file.items():
        text += before
        expected[key] = text.count("\n") + 1
        written = f'"{key}"' if quoted else key
        text += f"{written} = {value}\n"
    assert set(tomllib.loads(text)) == set(expected)
    assert key_lines(text) == expected


def test_the_check_refuses_what_the_start_would(tmp_path: Path) -> None:
    anywhere = "tcp://0.0.0.0:5555"
    stream = ("record", str(tmp_path / "journal"), "--stream")
    for arguments, says in (
        (("discoverd", "--listen", anywhere), f"{anywhere}: other machines can reach it"),
        (("discoverd", "--query", anywhere), f"{anywhere}: other machines can reach it"),
        (("discoverd", "--http", "0.0.0.0:1"), "--http: 0.0.0.0:1: other machines can reach it"),
        ((*stream, f"a=pull listen={anywhere}"), f"{anywhere}: other machines can reach it"),
        (("host", "farm", "--listen", anywhere), f"{anywhere}: other machines can reach it"),
    ):
        assert_fails(nngkit(*arguments, "--check"), 2, says)
        assert nngkit(*arguments, "--trust", "open", "--check").returncode == 0
    voters = ("host", "farm", "--listen", "tcp://127.0.0.1:7000", "--voter", "a=tcp://127.0.0.1:7000")
    assert_fails(nngkit(*voters, "--check"), 2, "--id: is required with --voter")
    assert_fails(nngkit(*voters, "--id", "b", "--check"), 2, "--voter")
    assert nngkit(*voters, "--id", "a", "--check").returncode == 0
