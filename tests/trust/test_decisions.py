"""Decisions about peers: told to the watchers of a trust, and recorded in a journal."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from nngkit.journal import read
from nngkit.protocols import Bus, Pull, Push
from nngkit.testing import eventually
from nngkit.trust import Decision, Trust, passes
from nngkit.trust.realm import Realm
from nngkit.trust.refusals import code_of, ends_with_a_pass, missing_line
from tests.cli.commands import assert_fails, nngkit
from tests.cli.test_journal import recorder
from tests.trust.one_realm import OneRealm
from tests.trust.rooms import ANY, WAIT


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("certificate refused: the peer presented none", "no-pass"),
        ("certificate refused by the peer: it requires one", "no-pass"),
        ("certificate refused: self-signed certificate in certificate chain", "other-realm"),
        ("certificate refused by the peer: it does not know the authority of ours", "other-realm"),
        ("other-realm: the pass is of realm 'x', and not of 'farm'", "other-realm"),
        ("certificate refused: certificate has expired", "expired"),
        ("certificate refused by the peer: ours is out of its time", "expired"),
        ("expired: the pass of render.w1 ends", "expired"),
        ("certificate refused: certificate is not yet valid", "not-yet"),
        ("revoked: render.w3 (serial 4f)", "revoked"),
        ("binding: the certificate has 2 URIs; a pass has one", "binding"),
        ("right: desk.ada may not call pay", "right"),
        ("TLS handshake failed: the peer does not speak TLS", "plain"),
        ("TLS handshake failed: the peer speaks SP without TLS", "plain"),
        ("bad hello: the peer speaks TLS", "plain"),
        ("bad hello: the peer speaks HTTP", "transport"),
        ("bad WebSocket handshake: the peer speaks SP", "transport"),
        ("bad hello: 53 53 48 2d is not an SP hello", "damaged"),
        ("TLS handshake failed: no common version; the default is 1.3", "version"),
        ("TLS handshake failed: decode error", "damaged"),
    ],
)
def test_each_reason_has_a_code(reason: str, code: str) -> None:
    assert code_of(reason) == code


def test_the_end_of_the_other_ones_pass_ends_with_a_new_one() -> None:
    assert ends_with_a_pass("certificate refused: certificate has expired")
    assert ends_with_a_pass("certificate refused: certificate is not yet valid")
    assert not ends_with_a_pass("certificate refused by the peer: ours is out of its time")
    assert not ends_with_a_pass("revoked: render.w3 (serial 4f)")


def test_a_refusal_by_a_right_names_the_line_of_the_policy() -> None:
    assert missing_line("right: desk.ada may not call pay/charge") == 'a role of desk.ada needs call = ["pay/charge"]'
    assert missing_line("right: desk.ada is none of the peers render.*") == ""
    assert missing_line("revoked: desk.ada") == ""


def stranger(path: Path) -> Trust:
    path.mkdir()
    passes.write(path / "eve.pass", Realm.new("farm").issue("desk.eve"))
    return Trust(path / "eve.pass")


@pytest.mark.slow
def test_a_watcher_hears_of_peers_that_are_let_in_refused_and_sent_away(tmp_path: Path) -> None:
    realm = OneRealm(tmp_path / "realm")
    realm.policy('* @local | call = ["*"]')
    hub, ada = realm.trust("hub"), realm.trust("desk.ada")
    told: list[Decision] = []
    end = hub.watch(told.append)
    began = time.time()
    with Pull(listen=ANY, trust=hub, peers=["desk.ada", "@local"]) as pull:
        with Push(dial=pull.address, trust=ada) as push:
            push.wait_for_peers(1, WAIT)
            assert [(each.room, each.who, each.refused) for each in told] == [("connections", "desk.ada", "")]
            assert told[0].what.startswith("connect tls+tcp://127.0.0.1:")
            assert began <= told[0].at <= time.time()
            realm.folder.revoke("desk.ada")
            hub.refresh(now=True)
            eventually(lambda: {(each.who, each.refused) for each in told[1:]} == {("desk.ada", "revoked")})
            eventually(lambda: push.stats.left == 1)
        told.clear()
        with Push(dial=pull.address, trust=realm.trust("desk.bob"), reconnect=0.05):
            eventually(lambda: len(told) >= 2)
            assert {(each.who, each.refused) for each in told} == {("desk.bob", "right")}
        told.clear()
        with Push(dial=pull.address, trust=stranger(tmp_path / "other"), reconnect=0.05):
            eventually(lambda: len(told) >= 2)
            assert {(each.who, each.refused) for each in told} == {("", "other-realm")}
    told.clear()
    with Bus(listen="tcp://127.0.0.1:0", trust=hub) as here, Bus(dial=here.address) as there:
        there.wait_for_peers(1, WAIT)
        eventually(lambda: [(each.who, each.refused) for each in told] == [("@local", "")])
    end()
    with Bus(listen="tcp://127.0.0.1:0", trust=hub) as here, Bus(dial=here.address) as there:
        there.wait_for_peers(1, WAIT)
    assert len(told) == 1


@pytest.mark.slow
def test_a_recorder_records_them(tmp_path: Path) -> None:
    realm = OneRealm(tmp_path / "realm")
    streams = f"jobs=pull listen={ANY}", "audit=trust"
    with recorder(tmp_path / "j", *streams, options=("--trust", str(realm.file("hub")))) as running:
        (jobs,) = running.addresses()
        with (
            Push(dial=jobs, trust=stranger(tmp_path / "other"), reconnect=0.05) as eve,
            Push(dial=jobs, trust=realm.trust("desk.ada")) as push,
        ):
            eventually(lambda: eve.stats.cut >= 2)
            push.send(b"job", timeout=WAIT)
            push.wait_for_peers(1, WAIT)
        assert running.end(signal.SIGTERM) == 143
    records = [
        (record.key, json.loads(record.value), record.protocol) for record in read(tmp_path / "j", topics="audit")
    ]
    assert {protocol for _, _, protocol in records} == {"trust"}
    assert {(key, each["who"], each["refused"]) for key, each, _ in records} == {
        (None, "", "other-realm"),
        (b"desk.ada", "desk.ada", ""),
    }
    assert {each["room"] for _, each, _ in records} == {"connections"}


def test_a_stream_of_decisions_needs_a_pass(tmp_path: Path) -> None:
    assert_fails(nngkit("record", str(tmp_path / "j"), "--stream", "audit=trust"), 2, "audit=trust: needs a pass")
    assert_fails(
        nngkit("record", str(tmp_path / "j"), "--stream", "audit=trust dial=tcp://127.0.0.1:1"), 2, "not a word"
    )
