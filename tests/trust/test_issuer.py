"""An issuer: invitations, each once, renewed passes, what it refuses, and what a program believes of its replies."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nngkit.errors import AccessDenied, BadMessage, ConfigError, NngkitError, Unreachable
from nngkit.protocols import Rep
from nngkit.testing import Background
from nngkit.trust import Folder, Pass, Realm, Trust, passes, realm, renewal
from nngkit.trust.issuer import Issuer
from nngkit.trust.renewal import Question, ask

ANY = "tls+tcp://127.0.0.1:0"
FARM = Realm.new("farm")
KEYS = st.sampled_from(["key", "trusted", "policy", "due", "other"])
JSON = st.recursive(st.none() | st.booleans() | st.text() | st.integers(), lambda inner: st.dictionaries(KEYS, inner))


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    Folder.new(tmp_path / "farm", "farm")
    return Issuer(tmp_path / "farm", 30)


def issue(issuer: Issuer, name: str = "render.w1", **given: Any) -> Pass:
    return passes.parse(Folder.open(issuer.own.parent).realm.issue(name, **given))


def answered(issuer: Issuer, own: Pass, key: str, **given: Any) -> dict[str, str]:
    body = json.dumps({"key": key} | given).encode()
    reply: dict[str, str] = json.loads(issuer.answer(own.name, own.serial, body))
    return reply


def test_an_invitation_is_one_line_and_is_taken_once(issuer: Issuer) -> None:
    text = Folder.open(issuer.own.parent).realm.issue("render.w1", invites=True, issuer="tls+tcp://hub:5550", days=1)
    line = passes.invitation(text)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1000,1500}", line)
    invited = passes.parse(passes.from_invitation(line + "\n"))
    assert (invited, invited.issuer) == (passes.parse(text), "tls+tcp://hub:5550")
    own, other = realm.new_key(), realm.new_key()
    for _ in range(2):  # the reply may have been lost: the same key is signed again
        reply = answered(issuer, invited, realm.public_pem(own))
        made = passes.parse(reply["authorities"] + reply["chain"] + realm.pem(own))
        assert made.name == "render.w1"
        assert made.until - made.since == pytest.approx(30 * 86_400, abs=400)
    again = Issuer(issuer.own.parent, 30)  # as after a restart
    for key in (realm.public_pem(other), invited.chain):
        assert "taken already" in answered(again, invited, key)["refused"] or key == invited.chain
    assert "chain" not in answered(again, invited, invited.chain)


def test_a_renewed_pass_has_the_name_hosts_and_key_of_the_one_before(issuer: Issuer) -> None:
    own = issue(issuer, hosts=["w1.example", "127.0.0.1"])
    reply = answered(issuer, own, own.chain)
    made = passes.parse(reply["authorities"] + reply["chain"] + own.key)
    assert (made.name, made.serial != own.serial) == ("render.w1", True)
    assert answered(issuer, own, own.chain, due=False, trusted=renewal.digest_of(own.authorities)) == {}
    found = Folder.open(issuer.own.parent).realm
    assert set(reply) == {"chain", "authorities"}
    from cryptography import x509

    names = [
        x509.load_pem_x509_certificate(each.encode()).extensions.get_extension_for_class(x509.SubjectAlternativeName)
        for each in (own.chain, reply["chain"])
    ]
    assert names[0].value == names[1].value
    assert found.signed(x509.load_pem_x509_certificate(reply["chain"].encode()))


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (lambda own, issuer: issue(issuer, "desk.ada").chain, "not that of the connection"),
        (lambda own, issuer: passes.parse(FARM.issue("render.w1")).chain, "not that of the connection"),
        (lambda own, issuer: realm.public_pem(realm.new_key()), "no BEGIN CERTIFICATE"),
        (lambda own, issuer: "", ""),
    ],
)
def test_a_certificate_that_is_not_that_of_the_connection_is_refused(
    key: Callable[[Pass, Issuer], str], says: str, issuer: Issuer
) -> None:
    own = issue(issuer)
    reply = answered(issuer, own, key(own, issuer))
    assert set(reply) == {"refused"}
    assert says.lower() in reply["refused"].lower()


def test_the_policy_is_handed_out_to_holders_of_an_older_one(issuer: Issuer) -> None:
    own = issue(issuer)
    trusted = renewal.digest_of(own.authorities)
    assert answered(issuer, own, own.chain, due=False, trusted=trusted, policy=1) == {}
    Folder.open(issuer.own.parent).revoke("desk.eve")
    reply = answered(issuer, own, own.chain, due=False, trusted=trusted, policy=1)
    assert set(reply) == {"policy", "signature"}
    assert 'revoked = ["desk.eve"]' in reply["policy"]
    assert answered(issuer, own, own.chain, due=False, trusted=trusted, policy=None) == {}


@given(body=st.binary(max_size=200) | JSON.map(json.dumps).map(str.encode))
@settings(max_examples=200)
def test_whatever_is_asked_there_is_a_reply(body: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "asked"
    if not path.exists():
        Folder.new(path, "farm")
    reply = json.loads(Issuer(path, 1).answer("render.w1", "ff" * 20, body))
    assert set(reply) == {"refused"}


@given(text=st.text(max_size=300) | st.binary(max_size=300).map(lambda data: base64.b64encode(data).decode()))
def test_a_line_that_is_no_invitation_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigError):
        passes.parse(passes.from_invitation(text))


@pytest.mark.parametrize(
    "url", ["tcp://hub:1", "tls+tcp://hub", "tls+tcp://hub:x", "hub:1", "tls+tcp://hub:1/x", "tls+tcp://[:1"]
)
def test_an_issuer_is_at_a_host_and_port_by_tls(url: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        renewal.check_issuer(url)


@pytest.fixture
def replying(tmp_path: Path) -> Iterator[Callable[..., Pass]]:
    """Return a maker of peers: `replying(name, body)` listens as `name`; return a pass whose issuer it is."""
    open_ones: list[Rep] = []

    def make(name: str, *bodies: bytes) -> Pass:
        path = tmp_path / f"{name}.pass"
        passes.write(path, FARM.issue(name))
        rep = Rep(listen=ANY, trust=Trust(path))
        open_ones.append(rep)

        def serve() -> None:
            for body in bodies:
                rep.recv(timeout=15).reply(body)

        Background(serve)
        return passes.parse(FARM.issue("render.w1", issuer=rep.address))

    yield make
    for each in open_ones:
        each.close()


def test_a_member_that_is_not_the_issuer_is_not_believed(replying: Callable[..., Pass]) -> None:
    with pytest.raises(AccessDenied, match=r"is desk\.ada, and not the issuer of farm"):
        ask(replying("desk.ada"), Question("x"), 5)


def test_replies_that_are_none_are_errors_of_ours(replying: Callable[..., Pass]) -> None:
    bodies = [b"", b"{", b"[]", b'{"chain": 1}', b'{"refused": "right: no"}', b"\xff" * 100]
    own = replying("issuer", *bodies)
    for body in bodies:
        with pytest.raises(AccessDenied if b"refused" in body else BadMessage):
            ask(own, Question("x"), 5)


def test_a_reply_of_another_name_or_realm_is_not_taken() -> None:
    own = passes.parse(FARM.issue("render.w1", issuer="tls+tcp://hub:5550"))
    for text in (FARM.issue("desk.ada"), Realm.new("other").issue("render.w1")):
        made = passes.parse(text)
        with pytest.raises(BadMessage):
            renewal.with_reply(own, renewal.Reply(made.chain, made.authorities), made.key)
    made = passes.parse(FARM.issue("render.w1"))
    with pytest.raises(BadMessage, match="key values mismatch"):
        renewal.with_reply(own, renewal.Reply(made.chain, made.authorities), own.key)


def test_an_issuer_that_is_not_there_is_unreachable() -> None:
    own = passes.parse(FARM.issue("render.w1", issuer="tls+tcp://127.0.0.1:1"))
    with pytest.raises(Unreachable, match="refused"):
        ask(own, Question("x"), 5)


def test_a_refused_member_reads_why(tmp_path: Path) -> None:
    passes.write(tmp_path / "issuer.pass", FARM.issue("issuer"))
    with Rep(listen=ANY, trust=Trust(tmp_path / "issuer.pass"), peers="desk.*") as rep:
        own = passes.parse(FARM.issue("render.w1", issuer=rep.address))
        with pytest.raises(NngkitError, match=r"none of the peers desk\.\*"):
            ask(own, Question("x"), 5)
