"""A trust: files that change, that are broken, older, unsigned or of another realm."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nngkit.errors import AccessDenied, ConfigError
from nngkit.testing import Background
from nngkit.trust import passes, signing
from nngkit.trust.names import uri_of
from nngkit.trust.realm import Realm
from nngkit.trust.trust import PAUSE, Trust

FARM = Realm.new("farm")


def policy(version: int, revoked: str = "", realm: str = "farm") -> str:
    return f"""
realm = "{realm}"
version = {version}
revoked = [{revoked}]
role.workers.names = ["render.*"]
role.workers.call = ["quotes"]
"""


def write(folder: Path, text: str, realm: Realm = FARM) -> None:
    (folder / "policy.toml").write_text(text, encoding="utf-8")
    (folder / "policy.sig").write_text(signing.sign(realm.key, text), encoding="utf-8")


@pytest.fixture
def given(tmp_path: Path) -> Trust:
    passes.write(tmp_path / "w1.pass", FARM.issue("render.w1"))
    return Trust(tmp_path / "w1.pass")


def test_without_a_policy_every_name_may_everything_but_enrol(given: Trust) -> None:
    assert (given.name, given.realm, str(given)) == ("render.w1", "farm", "<Trust render.w1 of farm>")
    given.require("desk.ada", "vote", "farm")
    with pytest.raises(AccessDenied, match=r"right: desk\.ada may not enrol x"):
        given.require("desk.ada", "enrol", "x")


def test_a_policy_is_read_again(given: Trust, tmp_path: Path) -> None:
    write(tmp_path, policy(1))
    assert given.refresh(now=True)
    given.require("render.w2", "call", "quotes/last")
    with pytest.raises(AccessDenied, match="may not vote"):
        given.require("render.w2", "vote", "farm")
    assert given.name_of([uri_of("farm", "render.w2")], "1") == "render.w2"
    write(tmp_path, policy(2, '"render.w2", "serial:abc"'))
    assert given.refresh(now=True)
    for uris, serial in (([uri_of("farm", "render.w2")], "1"), ([uri_of("farm", "render.w1")], "abc")):
        with pytest.raises(AccessDenied, match="revoked"):
            given.name_of(uris, serial)
    assert not given.refresh(now=True)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda folder: write(folder, policy(4)), "version 4 is older than 5"),
        (lambda folder: write(folder, policy(6), Realm.new("farm")), "not signed by the realm"),
        (lambda folder: write(folder, policy(6, realm="other")), "of realm other"),
        (lambda folder: write(folder, policy(6) + "x = 1"), "no key 'x'"),
        (lambda folder: (folder / "policy.sig").write_text("?"), "not base64"),
        (lambda folder: (folder / "policy.sig").unlink(), "No such file"),
        (lambda folder: (folder / "policy.toml").unlink(), "No such file"),
        (lambda folder: (folder / "w1.pass").write_text("nonsense"), "not a pass"),
        (lambda folder: passes.write(folder / "w1.pass", FARM.issue("render.w9")), "render.w9 of farm now"),
        (lambda folder: (folder / "w1.pass").chmod(0o644) or (folder / "w1.pass").touch(), "others can read it"),
    ],
)
def test_a_broken_file_leaves_the_last_good_one_in_force(
    spoil: Callable[[Path], object], says: str, given: Trust, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, policy(5, '"render.w7"'))
    assert given.refresh(now=True)
    serial = given.own.serial
    spoil(tmp_path)
    assert not given.refresh(now=True)
    assert given.policy.version == 5
    assert given.own.serial == serial
    given.context(server=True)
    (message,) = caplog.messages
    assert says in message
    assert "the last good one stays in force" in message


def test_both_policies_that_go_away_together_do_not_open_the_realm(given: Trust, tmp_path: Path) -> None:
    write(tmp_path, policy(5))
    assert given.refresh(now=True)
    for name in ("policy.toml", "policy.sig"):
        (tmp_path / name).unlink()
    assert not given.refresh(now=True)
    with pytest.raises(AccessDenied):
        given.require("desk.ada", "vote", "farm")


def test_a_new_pass_is_used_for_the_next_connection(given: Trust, tmp_path: Path) -> None:
    before, serial = given.context(server=True), given.own.serial
    assert given.context(server=True) is before
    passes.write(tmp_path / "w1.pass", FARM.issue("render.w1"))
    assert given.refresh(now=True)
    assert given.context(server=True) is not before
    assert given.own.serial != serial


def test_a_trust_that_cannot_be_used_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Trust(tmp_path / "none.pass")
    passes.write(tmp_path / "w1.pass", FARM.issue("render.w1"))
    write(tmp_path, policy(1), Realm.new("farm"))
    with pytest.raises(ConfigError, match="not signed"):
        Trust(tmp_path / "w1.pass")


def test_files_that_are_being_written_are_read_when_they_are_whole(
    given: Trust, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def second() -> None:
        time.sleep(PAUSE / 2)
        (tmp_path / "policy.sig").write_text(signing.sign(FARM.key, policy(6)))

    write(tmp_path, policy(5))
    assert given.refresh(now=True)
    (tmp_path / "policy.toml").write_text(policy(6))
    other = Background(second)
    changed = given.refresh(now=True)
    other.result()
    assert changed or given.refresh(now=True)  # on a busy machine it may come later
    assert given.policy.version == 6
    assert not changed or not caplog.messages


def test_the_end_of_a_renewed_pass_is_told_without_a_connection(
    given: Trust, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nngkit.trust.trust.PERIOD", 0.0)
    long = given.stats.until
    passes.write(tmp_path / "w1.pass", FARM.issue("render.w1", days=1))
    assert given.stats.until != long
