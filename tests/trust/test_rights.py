"""The rights of a room: what its peers may do, and what they may call themselves."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from nngkit.errors import AccessDenied
from nngkit.trust import OPEN, Decision, Folder, Rights, Trust, passes

POLICY = """\
realm = "farm"
version = 2

[role.workers]
names = ["render.*"]
call = ["pay/charge"]

[role.relays]
names = ["relay.*", "@local"]
carry = ["mesh"]
"""


@pytest.fixture
def given(tmp_path: Path) -> Trust:
    folder = Folder.new(tmp_path, "farm")
    (tmp_path / "policy.toml").write_text(POLICY)
    folder.sign()
    passes.write(tmp_path / "hub.pass", folder.realm.issue("hub"))
    return Trust(tmp_path / "hub.pass")


@pytest.mark.parametrize("trust", [None, OPEN])
def test_without_a_trust_everything_is_granted(trust: None) -> None:
    rights = Rights(trust, "mesh", carry="mesh")
    assert rights.speaks(None, "any")
    rights.require(None, "call", "pay")
    assert not rights.refusals


def test_a_peer_speaks_as_its_name_as_an_instance_and_for_others_if_it_may_carry(given: Trust) -> None:
    rights = Rights(given, "mesh", carry="mesh")
    for said in ("render.w1", "render.w1:2"):
        assert rights.speaks("render.w1", said)
    for said in ("render.w2", "render.w1.x", "render.w1:", "pay"):
        assert not rights.speaks("render.w1", said)
    assert rights.speaks("relay.a", "render.w2")
    assert rights.speaks("@local", "render.w2")
    assert not rights.speaks("@uid.1000", "render.w2")
    assert not rights.speaks(None, "render.w2")
    assert not Rights(given, "documents", carry="doc").speaks("relay.a", "render.w2")
    assert rights.refusals == {"binding": 6}


def test_the_peer_hears_the_right_and_the_log_the_missing_line_once(
    given: Trust, caplog: pytest.LogCaptureFixture
) -> None:
    rights = Rights(given, "calls", carry="calls")
    rights.require("render.w1", "call", "pay/charge")
    with caplog.at_level(logging.WARNING, "nngkit.trust"):
        for _ in range(3):
            with pytest.raises(AccessDenied, match=r"^right: render\.w1 may not call pay/refund$"):
                rights.require("render.w1", "call", "pay/refund")
    assert caplog.messages == [
        'calls: right: render.w1 may not call pay/refund: a role of render.w1 needs call = ["pay/refund"]'
    ]
    assert rights.refusals == {"right": 3}


def test_refusals_are_told_to_those_who_watch(given: Trust) -> None:
    told: list[Decision] = []
    rights = Rights(given, "mesh", carry="mesh")
    end = given.watch(told.append)
    rights.speaks("render.w1", "pay")
    end()
    rights.speaks("render.w1", "pay")
    assert [(each.room, each.who, each.what, each.refused) for each in told] == [
        ("mesh", "render.w1", "speak as 'pay'", "binding")
    ]
