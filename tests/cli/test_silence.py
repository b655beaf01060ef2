"""Why no daemon answers: the other port of a daemon, a host without an address, a refusal that is told already."""

from __future__ import annotations

import pytest
import trio

from nngkit.cli import silence
from nngkit.errors import Unreachable
from nngkit.protocols import Rep, Surveyor

ANY = "tcp://127.0.0.1:0"


@pytest.mark.parametrize(
    ("listener", "asked_as", "says"),
    [
        (Surveyor, "req", "a SURVEYOR listens there, and a REQ connects only to a REP: a daemon is asked at its query"),
        (Rep, "respondent", "a REP listens there, and a RESPONDENT connects only to a SURVEYOR: a service dials the"),
    ],
)
async def test_the_other_port_of_a_daemon_is_named(
    listener: type[Surveyor] | type[Rep], asked_as: str, says: str
) -> None:
    with listener(listen=ANY) as there:
        assert there.address is not None
        (cause,) = await silence.causes_of([there.address], asked_as, daemon=True)
    assert cause.startswith(says)


async def test_an_error_has_the_cause_at_each_address() -> None:
    with Rep(listen=ANY) as rep:
        assert rep.address is not None
        urls = [rep.address, "tcp://nowhere.invalid:1"]
        error = await silence.with_cause(Unreachable(" ".join(urls), "no discovery daemon answered within 2 s"), urls)
    assert str(error).startswith(f"{' '.join(urls)}: no discovery daemon answered within 2 s; ")
    assert "there is no host 'nowhere.invalid'" in str(error) or "did not end in 1.5 s" in str(error)
    assert "REP" not in str(error)


async def test_a_look_that_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "PATIENCE", 0.05)
    listener = await trio.open_tcp_listeners(0, host="127.0.0.1")  # accepts, and says nothing
    url = f"tcp://127.0.0.1:{listener[0].socket.getsockname()[1]}"
    assert await silence.causes_of([url], "req") == [
        f"a look at {url} did not end in 0.05 s: its name is not resolved, or its process hangs"
    ]
    await listener[0].aclose()


async def test_a_hint_is_said_only_while_there_is_no_peer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(silence, "AFTER", 0.01)
    nowhere = ["tcp://127.0.0.1:1"]
    await silence.hint_if(lambda: False, "nngkit serve", nowhere, "respondent")
    assert capsys.readouterr().err == ""
    await silence.hint_if(lambda: True, "nngkit serve", nowhere, "respondent")
    said = capsys.readouterr().err
    assert said.startswith("nngkit serve: hint: no listener at 127.0.0.1:1: ")
    assert said.endswith("; still trying\n")
