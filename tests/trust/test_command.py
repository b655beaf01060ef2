"""`nngkit trust`: a realm, passes, a policy and what it grants, as an operator makes them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nngkit.cli.main import main
from nngkit.protocols import TLS, Pull, Push
from nngkit.trust.trust import Trust
from tests.cli.commands import valid


@pytest.fixture
def farm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["trust", "new", "farm"]) == 0
    capsys.readouterr()
    return tmp_path


def test_a_realm_its_passes_and_its_policy(farm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {path.name for path in farm.iterdir()} == {"realm.key", "realm.pem", "policy.toml", "policy.sig"}
    assert stat.S_IMODE(os.stat("realm.key").st_mode) == 0o600
    for name in ("hub", "render.w1"):
        assert main(["trust", "pass", name, "--days", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "render.w1.pass: render.w1 of farm, for 2 days"
    assert main(["trust", "show", "render.w1.pass", "--json"]) == 0
    assert valid(capsys.readouterr().out, "trust-show.json")["name"] == "render.w1"
    with (
        Pull(listen="tls+tcp://127.0.0.1:0", trust=Trust("hub.pass")) as pull,
        Push(dial=pull.address, trust=Trust("render.w1.pass")) as push,
    ):
        push.wait_for_peers(1, 15)
        pull.wait_for_peers(1, 15)
        assert [pipe.who for pipe in pull.pipes] == ["render.w1"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("render.w1 call quotes/last", 0, "yes, role everyone"),
        ("render.w1 vote farm", 1, 'no: a role of render.w1 needs vote = ["farm"]'),
        ("render.w1 enrol render.w2", 1, 'no: a role of render.w1 needs enrol = ["render.w2"]'),
    ],
)
def test_what_a_name_may(words: str, code: int, says: str, farm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trust", "may", *words.split()]) == code
    assert capsys.readouterr().out == says + "\n"
    assert main(["trust", "may", *words.split(), "--json"]) == code
    role = None if code else "everyone"
    assert valid(capsys.readouterr().out, "trust-may.json") == {"granted": not code, "role": role, "revoked": False}


def test_holders_of_a_secret_make_the_same_realm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trust", "key"]) == 0
    secret = tmp_path / "secret"
    secret.write_text(capsys.readouterr().out)
    for machine in ("a", "b"):
        (tmp_path / machine).mkdir()
        monkeypatch.chdir(tmp_path / machine)
        assert main(["trust", "new", "lab", "--secret", str(secret)]) == 0
        assert main(["trust", "pass", machine]) == 0
    with (
        Pull(listen="tls+tcp://127.0.0.1:0", trust=Trust(tmp_path / "a" / "a.pass")) as pull,
        Push(dial=pull.address, trust=Trust("b.pass")) as push,
    ):
        push.wait_for_peers(1, 15)
    secret.write_text("guess me")
    assert main(["trust", "new", "lab", "--realm", "c", "--secret", str(secret)]) == 2
    assert "can be guessed" in capsys.readouterr().err


def test_a_revoked_name(farm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trust", "pass", "render.w1"]) == 0
    trust = Trust("render.w1.pass")
    for number, what in enumerate(("render.w3", "serial:4f2a91"), 2):
        assert main(["trust", "revoke", what]) == 0
        assert trust.refresh(now=True)
        assert trust.policy.version == number
    assert trust.policy.revoked == {"render.w3", "serial:4f2a91"}
    capsys.readouterr()
    assert main(["trust", "may", "render.w3", "call", "x"]) == 1
    assert capsys.readouterr().out == "no: the name is revoked\n"
    assert main(["trust", "revoke", "render.w3"]) == 2
    assert "is revoked already" in capsys.readouterr().err


def test_a_changed_policy_is_in_force_once_it_is_signed(farm: Path) -> None:
    assert main(["trust", "pass", "hub"]) == 0
    trust = Trust("hub.pass")
    path = farm / "policy.toml"
    path.write_text(path.read_text().replace("version = 1", "version = 2").replace('call = ["*"]', "call = []"))
    assert not trust.refresh(now=True)
    assert main(["trust", "sign"]) == 0
    assert trust.refresh(now=True)
    assert not trust.policy.may("render.w1", "call", "x")


def test_an_exported_pass_is_for_programs_without_nngkit(farm: Path) -> None:
    for name in ("hub", "render.w1"):
        assert main(["trust", "pass", name, "--host", "localhost"]) == 0
    (farm / "w1").mkdir()
    assert main(["trust", "export", "render.w1.pass", "-o", "w1"]) == 0
    tls = TLS(ca=Path("w1/ca.pem"), cert=Path("w1/cert.pem"), key=Path("w1/key.pem"))
    with (
        Pull(listen="tls+tcp://localhost:0", trust=Trust("hub.pass"), peers="render.*") as pull,
        Push(dial=pull.address, tls=tls) as push,
    ):
        push.wait_for_peers(1, 15)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("new farm", "realm.key is there already"),
        ("pass Render", "lower-case words"),
        ("pass a --days 0", "--days"),
        ("may a sing x", "no right 'sing'"),
        ("show none.pass", "No such file"),
        ("sign --realm none", "No such file"),
        ("show policy.toml", "others can read it"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    line: str, says: str, farm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (farm / "policy.toml").chmod(0o644)
    assert main(["trust", *line.split()]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert says.replace("--days", "days") in said
