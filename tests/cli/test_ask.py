"""`nngkit ask`: text and JSON output, reserved questions, and every exit code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nngkit.blocking import Daemon, Service
from nngkit.cli.main import main
from nngkit.discovery import Bid, DaemonSettings, Question
from nngkit.testing import eventually
from tests.cli.commands import assert_fails, nngkit, valid

ANY = "tcp://127.0.0.1:0"
SETTINGS = DaemonSettings(listen=(ANY,), deadline=5.0, interval=0.05)


def archive(question: Question) -> bytes | Bid | None:
    match question.body:
        case b"price":
            return Bid(12.5, b"by ship")
        case b"bytes":
            return b"\xff\0"
        case b"lines":
            return b"a\nb"
        case b"fail":
            raise KeyError("record")
        case b"decline":
            return None
    return b"you asked: " + question.body


@pytest.fixture
def daemon() -> Iterator[str]:
    """Run a daemon that knows two services; return its query address."""
    with (
        Daemon(SETTINGS) as daemon,
        Service("archive", "tcp://10.0.0.1:1", discovery=daemon.addresses, on_question=archive),
        Service("carrier", "tcp://10.0.0.2:1", discovery=daemon.addresses, stats={"parcels": 7}),
    ):
        eventually(lambda: len(daemon._inner.discovery.snapshot()) == 2)
        yield daemon.query_addresses[0]


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["ask", *arguments])
    return code, *capsys.readouterr()


def test_the_answers_are_a_table(daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(capsys, "record 7", "--name", "archive", "--daemon", daemon)
    head, row = out.splitlines()
    assert (code, err, head.split()) == (0, "", ["NAME", "ADDRESS", "RTT", "ANSWER"])
    assert row.startswith("archive  tcp://10.0.0.1:1  ")
    assert row.endswith(" ms  you asked: record 7")
    code, out, _ = ask(capsys, "price", "--bids", "1", "--daemon", daemon)
    assert code == 0
    assert "  12.5   by ship" in out
    for question, shown in (("bytes", "  ff00\n"), ("lines", '  "a\\nb"\n')):
        assert ask(capsys, question, "--first", "1", "--daemon", daemon)[1].endswith(shown)


def test_json_has_a_line_for_each_provider(daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    for question, expected in (("x", "you asked: x"), ("bytes", "/wA=")):
        code, out, _ = ask(capsys, question, "--json", "--daemon", daemon)
        answered, declined = (valid(line, "ask.json") for line in out.splitlines())
        assert (code, answered["answer"], answered["price"]) == (0, expected, None)
        assert (declined["name"], declined["outcome"]) == ("carrier", "declined")
    _, out, _ = ask(capsys, "fail", "--json", "--name", "archive", "--daemon", daemon)
    assert valid(out, "ask.json")["message"] == "KeyError: 'record'"


def test_reserved_questions(daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(capsys, "--ping", "--daemon", daemon)
    assert (code, len(out.splitlines())) == (0, 3)
    _, out, _ = ask(capsys, "--stats", "carrier", "--json", "--daemon", daemon)
    assert valid(out, "ask.json")["fields"]["stats"] == {"parcels": 7}
    _, out, _ = ask(capsys, "--info", "--name", "archive", "--daemon", daemon)
    assert '"addr": "tcp://10.0.0.1:1"' in out


def test_no_answer_has_a_reason_and_an_exit_code(daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, says in (
        (["x", "--name", "unknown"], "nngkit ask: service not found: unknown\n"),
        (["x", "--name", "carrier"], "nngkit ask: no answer: 1 declined\n"),
        (["fail", "--name", "archive"], "nngkit ask: tcp://10.0.0.1:1: KeyError: 'record'\n"),
    ):
        assert ask(capsys, *arguments, "--daemon", daemon) == (1, "", says)


def test_providers_that_do_not_answer_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with Daemon(SETTINGS) as daemon:

        async def never(question: Question) -> bytes:
            import trio

            await trio.sleep_forever()
            return b""

        with Service("archive", "tcp://10.0.0.1:1", discovery=daemon.addresses, on_question=never):
            eventually(daemon._inner.discovery.snapshot)
            there = ["--daemon", daemon.query_addresses[0]]
            code, out, err = ask(capsys, "x", "--deadline", "0.1", *there)
        assert (code, out) == (4, "")
        assert err == "nngkit ask: no answer from tcp://10.0.0.1:1\nnngkit ask: no answer in 0.1 s\n"
        code, _, err = ask(capsys, "x", *there)
        assert (code, err) == (1, "nngkit ask: no service is connected\n")


def test_one_of_several_daemons_is_enough(daemon: str, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = "tcp://127.0.0.1:1"
    both = ["--daemon", nowhere, "--daemon", daemon, "--timeout", "0.1", "--deadline", "0.1"]
    code, out, err = ask(capsys, "x", "--first", "1", *both)
    assert (code, len(out.splitlines())) == (0, 2)
    silent = f"nngkit ask: {nowhere}: no discovery daemon answered within 0.2 s; no listener at 127.0.0.1:1: "
    assert err.startswith(silent)
    assert err.count("\n") == 1
    assert ask(capsys, "x", "--daemon", nowhere, "--timeout", "0.1", "--deadline", "0.1")[0] == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "QUESTION: give one of QUESTION, --ping, --info and --stats"),
        (["x", "--ping"], "QUESTION: give one of"),
        (["--ping", "a", "--name", "b"], "--name: the name is in --ping already"),
        (["x", "--name", "a|b"], "NAME: name has a '|'"),
        (["x", "--deadline", "61"], "until: 61.0 is not over 0 and up to 60 seconds"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"nngkit ask: {says}")


def test_argparse_refuses_two_ends() -> None:
    assert_fails(nngkit("ask", "x", "--first", "1", "--bids", "1"), 2, "not allowed with argument")
