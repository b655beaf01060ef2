"""Passes and realms: what is signed is read, and what cannot be used is refused in words."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nngkit.cli.exit_codes import exit_code
from nngkit.errors import ConfigError
from nngkit.trust import passes
from nngkit.trust.choice import read
from nngkit.trust.realm import Realm, new_secret

FARM = Realm.new("farm")


def test_a_pass_says_its_name_realm_and_end(tmp_path: Path) -> None:
    passes.write(tmp_path / "w1.pass", FARM.issue("render.w1", days=2, hosts=["127.0.0.1", "w1.example"]))
    found = passes.read(tmp_path / "w1.pass")
    assert (found.name, found.realm) == ("render.w1", "farm")
    assert found.until == pytest.approx(time.time() + 2 * 86_400, abs=60)
    assert re.fullmatch("[0-9a-f]+", found.serial)
    assert "PRIVATE" not in repr(found)
    assert os.stat(tmp_path / "w1.pass").st_mode & 0o777 == 0o600


def test_a_pass_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w1.pass"
    passes.write(path, FARM.issue("render.w1"))
    path.chmod(0o640)
    with pytest.raises(ConfigError, match=r"w1\.pass: others can read it: chmod 600"):
        passes.read(path)
    passes.write(path, FARM.issue("render.w1"))  # the new file is its owner's alone
    passes.read(path)


@pytest.mark.parametrize(
    ("start", "says", "code"),
    [(timedelta(days=-100), "certificate has expired", 2), (timedelta(days=1), "certificate is not yet valid", 1)],
)
def test_a_pass_out_of_its_time_is_refused(start: timedelta, says: str, code: int, tmp_path: Path) -> None:
    passes.write(tmp_path / "pass", FARM.issue("render.w1", start=datetime.now(UTC) + start))
    with pytest.raises(ConfigError, match=says) as told:
        read(str(tmp_path / "pass"))
    assert exit_code(told.value) == code  # one that is early may be right once the clock is set


def test_a_pass_of_another_realm_of_the_same_name_is_refused() -> None:
    other = Realm.new("farm")
    certificate = other.issue("render.w1").removeprefix(other.certificate)
    with pytest.raises(ConfigError, match="certificate"):
        passes.parse(FARM.certificate + certificate)


def test_a_key_that_does_not_fit_is_refused() -> None:
    one, two = FARM.issue("render.w1"), FARM.issue("render.w1")
    with pytest.raises(ConfigError, match="key values mismatch"):
        passes.parse(one[: one.index("-----BEGIN PRIVATE")] + two[two.index("-----BEGIN PRIVATE") :])


@pytest.mark.parametrize("text", ["", "nonsense", FARM.certificate, FARM.certificate * 2])
def test_what_is_no_pass_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a pass"):
        passes.parse(text)


@pytest.mark.parametrize("content", [b"\xff" * 10, b"x" * (passes.LIMIT + 1)])
def test_a_file_that_is_no_text_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.pass"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"x\.pass: (not PEM text|over)"):
        passes.read(path)
    with pytest.raises(ConfigError, match="No such file"):
        passes.read(tmp_path / "none.pass")


def test_holders_of_a_secret_are_one_realm() -> None:
    secret = new_secret()
    one, two = Realm.shared("lab", secret), Realm.shared("lab", secret)
    assert one.key == two.key
    passes.parse(one.certificate + two.issue("a").removeprefix(two.certificate))
    assert Realm.shared("lab", new_secret()).key != one.key
    assert Realm.shared("other", secret).key != one.key
    with pytest.raises(ConfigError, match="can be guessed"):
        Realm.shared("lab", "secret")


def test_a_realm_is_kept_as_its_key() -> None:
    again = Realm.load("farm", FARM.key.encode())
    passes.parse(FARM.certificate + again.issue("a").removeprefix(again.certificate))
    for wrong in (b"nonsense", FARM.certificate.encode()):
        with pytest.raises(ConfigError, match="realm key"):
            Realm.load("farm", wrong)


def test_both_keys_are_trusted_while_one_replaces_the_other() -> None:
    newer = Realm.load("farm", Realm.new("farm").key.encode(), others=FARM.certificate)
    found = passes.parse(newer.issue("render.w1"))
    assert found.authorities.count("BEGIN CERTIFICATE") == 2
    older = FARM.issue("render.w2").removeprefix(FARM.certificate)
    assert passes.parse(newer.certificate + FARM.certificate + older).name == "render.w2"


@pytest.mark.parametrize("name", ["", "A", "a:1", "@local", "a" * 41])
def test_what_is_no_name_is_not_signed(name: str) -> None:
    with pytest.raises(ConfigError, match="lower-case words"):
        FARM.issue(name)


def test_a_pass_or_invitation_with_other_letters_is_refused_in_words(tmp_path: Path) -> None:
    text = FARM.issue("render.w1").replace("MII", "M\u00efI", 1)
    with pytest.raises(ConfigError, match="not PEM text"):
        passes.parse(text)
    path = tmp_path / "w1.pass"
    passes.write(path, text)
    with pytest.raises(ConfigError, match=r"w1\.pass: not PEM text"):
        passes.read(path)
