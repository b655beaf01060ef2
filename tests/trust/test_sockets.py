"""Sockets with a trust: which peers are let in, what both ends say of a refusal, and which peers must leave."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nngkit.errors import ConfigError
from nngkit.protocols import TLS, Bus, Pull, Push, Rep, Req
from nngkit.testing import Background, eventually
from nngkit.trust import Folder, Rights, passes, signing
from nngkit.trust.realm import Realm
from nngkit.trust.trust import Trust

ANY = "tls+tcp://127.0.0.1:0"
WAIT = 15.0
FARM = Realm.new("farm")


@pytest.fixture
def own(tmp_path: Path) -> Callable[..., Trust]:
    """Return a maker of trusts: ``own("render.w1", realm=..., days=...)``."""

    def make(name: str, realm: Realm = FARM, **issue: object) -> Trust:
        path = tmp_path / name / "own.pass"
        path.parent.mkdir(exist_ok=True)
        passes.write(path, realm.issue(name, **issue))  # type: ignore[arg-type]
        return Trust(path)

    return make


def reasons(socket: Push | Pull) -> set[str]:
    return {cut.reason for cut in socket.cuts}


def stays_out(pull: Pull, push: Push, here: str, there: str) -> None:
    """Check that no one joins, and what the listener and the dialer say of it."""
    for socket, says in ((pull, here), (push, there)):
        eventually(lambda socket=socket: socket.stats.cut >= 2)  # type: ignore[misc]
        assert all(re.search(says, reason) for reason in reasons(socket)), (reasons(socket), says)
    assert (pull.stats.joined, push.stats.joined) == (0, 0)


@pytest.mark.parametrize("url", [ANY, "wss://127.0.0.1:0/x"])
def test_each_end_knows_the_name_of_the_other(url: str, own: Callable[..., Trust]) -> None:
    with Rep(listen=url, trust=own("quotes.a")) as rep, Req(dial=rep.address, trust=own("desk.ada")) as req:
        asking = Background(req.request, b"ping", timeout=WAIT)
        question = rep.recv(timeout=WAIT)
        assert question.pipe is not None
        assert question.pipe.who == "desk.ada"
        question.reply(b"pong")
        assert asking.result() == b"pong"
        (pipe,) = req.pipes
        assert (pipe.who, pipe.verified) == ("quotes.a", True)


def test_a_name_that_is_none_of_the_peers_is_refused_with_words_at_both_ends(own: Callable[..., Trust]) -> None:
    with Pull(listen=ANY, trust=own("hub"), peers="sensor.*") as pull:
        why = r"right: desk\.ada is none of the peers sensor\.\*"
        with Push(dial=pull.address, trust=own("desk.ada"), reconnect=0.02) as push:
            stays_out(pull, push, why, why)
        with Push(dial=pull.address, trust=own("sensor.s1")) as push:
            push.wait_for_peers(1, WAIT)
            pull.wait_for_peers(1, WAIT)
            assert [pipe.who for pipe in pull.pipes] == ["sensor.s1"]


def test_a_dialer_lets_in_only_the_listener_that_it_expects(own: Callable[..., Trust]) -> None:
    with (
        Pull(listen=ANY, trust=own("hub")) as pull,
        Push(dial=pull.address, trust=own("desk.ada"), peers=["vault"], reconnect=0.02) as push,
    ):
        eventually(lambda: push.stats.cut >= 2)
        assert reasons(push) == {"right: hub is none of the peers vault"}
        assert (push.stats.joined, pull.stats.joined) == (0, 0)


def test_another_realm_of_the_same_name_is_refused(own: Callable[..., Trust]) -> None:
    with (
        Pull(listen=ANY, trust=own("hub")) as pull,
        Push(dial=pull.address, trust=own("desk.ada", Realm.new("farm")), reconnect=0.02) as push,
    ):
        stays_out(pull, push, "certificate refused by the peer", "certificate refused")


def test_a_member_of_a_realm_with_another_name_but_the_same_key_is_refused(own: Callable[..., Trust]) -> None:
    other = Realm.load("other", FARM.key.encode(), others=FARM.certificate)
    with (
        Pull(listen=ANY, trust=own("hub")) as pull,
        Push(dial=pull.address, trust=own("desk.ada", other), reconnect=0.02) as push,
    ):
        eventually(lambda: pull.stats.cut + push.stats.cut >= 2)
        assert (pull.stats.joined, push.stats.joined) == (0, 0)


@pytest.mark.parametrize("certificate", [False, True], ids=["none", "of an authority that signs for others"])
def test_a_peer_without_a_pass_is_refused(certificate: bool, own: Callable[..., Trust]) -> None:
    tls = TLS(verify=False)
    if certificate:
        other = passes.parse(Realm.new("farm").issue("desk.ada"))
        tls = TLS(verify=False, cert=other.chain.encode(), key=other.key.encode())
    with Pull(listen=ANY, trust=own("hub")) as pull, Push(dial=pull.address, tls=tls, reconnect=0.02) as push:
        stays_out(pull, push, "certificate refused", "certificate refused by the peer")


def test_a_plain_peer_is_refused(own: Callable[..., Trust]) -> None:
    with (
        Pull(listen=ANY, trust=own("hub")) as pull,
        Push(dial=pull.address.replace("tls+", ""), reconnect=0.02) as push,
    ):
        eventually(lambda: pull.stats.cut >= 2)
        assert reasons(pull) == {"TLS handshake failed: the peer speaks SP without TLS"}
        assert push.stats.joined == 0


def test_on_this_machine_peers_are_named_by_the_kernel_or_their_place(
    own: Callable[..., Trust], tmp_path: Path
) -> None:
    urls = ["tcp://127.0.0.1:0", f"ipc://{tmp_path}/s", "inproc://named"]
    for url, name in zip(urls, ("@local", f"@uid.{os.getuid()}", "@local"), strict=True):
        with Bus(listen=url, trust=own("hub"), peers=["@local", "@uid.*", name]) as bus, Bus(dial=bus.address) as other:
            bus.wait_for_peers(1, WAIT)
            other.wait_for_peers(1, WAIT)
            assert [pipe.who for pipe in bus.pipes] == [name]
            assert [pipe.who for pipe in other.pipes] == [name]


def test_a_plain_address_off_this_machine_is_refused_with_a_trust(own: Callable[..., Trust]) -> None:
    for way in ("listen", "dial"):
        with pytest.raises(ConfigError, match="a socket with a trust needs tls"):
            Push(**{way: "tcp://192.0.2.1:7000"}, trust=own("hub"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give either"):
        Push(trust=own("hub"), tls=TLS(verify=False))
    with pytest.raises(ConfigError, match="pattern of names"):
        Push(trust=own("hub"), peers="A b")


def revoke(folder: Path, *revoked: str, version: int = 1) -> None:
    text = f'realm = "farm"\nversion = {version}\nrevoked = {list(revoked)}\nrole.all.names = ["*"]\n'.replace("'", '"')
    (folder / "policy.sig").write_text(signing.sign(FARM.key, text))
    (folder / "policy.toml").write_text(text)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["name", "serial"])
def test_a_revoked_peer_leaves_within_two_seconds_and_stays_out(
    by: str, own: Callable[..., Trust], tmp_path: Path
) -> None:
    hub, ada = own("hub"), own("desk.ada")
    with (
        Pull(listen=ANY, trust=hub) as pull,
        Push(dial=pull.address, trust=ada, reconnect=0.02) as push,
        Push(dial=pull.address, trust=own("desk.bob")) as other,
    ):
        pull.wait_for_peers(2, WAIT)
        began = time.monotonic()
        revoke(tmp_path / "hub", "desk.ada" if by == "name" else f"serial:{ada.own.serial}")
        eventually(lambda: push.stats.left == 1)
        assert time.monotonic() - began < 2.5  # of which the files' second
        eventually(lambda: push.stats.cut >= 1)
        assert all(reason.startswith("revoked: desk.ada") for reason in reasons(pull) | reasons(push))
        assert (other.stats.left, push.stats.joined) == (0, 1)


def test_a_revoked_peer_leaves_at_once_when_its_trust_has_read_of_it(own: Callable[..., Trust], tmp_path: Path) -> None:
    hub, names = own("hub"), [f"desk.d{number}" for number in range(5)]
    with Pull(listen=ANY, trust=hub) as pull:
        pushes = [Push(dial=pull.address, trust=own(name)) for name in names]
        pull.wait_for_peers(len(names), WAIT)
        took = []
        for number in range(len(names)):
            revoke(tmp_path / "hub", *names[: number + 1], version=1 + number)
            began = time.monotonic()
            hub.refresh(now=True)
            eventually(lambda: pull.stats.left == number + 1)  # noqa: B023
            took.append(time.monotonic() - began)
        for push in pushes:
            push.close(0.0)
    assert sorted(took)[2] < 0.2, took  # a look once a second would take half of one


def test_a_connection_ends_with_its_pass_and_comes_back_with_a_new_one(
    own: Callable[..., Trust], tmp_path: Path
) -> None:
    ada = own("desk.ada", days=3 / 86_400)  # a life of six seconds, as it began so much earlier
    with Pull(listen=ANY, trust=own("hub")) as pull, Push(dial=pull.address, trust=ada, reconnect=0.02) as push:
        push.wait_for_peers(1, WAIT)
        assert push.stats.joined == 1
        passes.write(tmp_path / "desk.ada" / "own.pass", FARM.issue("desk.ada"))
        push.wait_for_peers(1, WAIT)
        assert pull.stats.joined >= 1


def test_peers_may_be_a_function_which_is_asked_again_when_the_policy_has_changed(tmp_path: Path) -> None:
    folder = Folder.new(tmp_path, "farm")
    for name in ("hub", "desk.ada"):
        passes.write(tmp_path / f"{name}.pass", folder.realm.issue(name))
    hub, ada = (Trust(tmp_path / f"{name}.pass") for name in ("hub", "desk.ada"))
    rights = Rights(hub, "orders", carry="orders")
    with (
        Pull(listen=ANY, trust=hub, peers=lambda who: rights.require(who, "publish", "orders/")) as pull,
        Push(dial=pull.address, trust=ada, reconnect=0.1) as push,
    ):
        push.wait_for_peers(timeout=WAIT)
        text = (tmp_path / "policy.toml").read_text().replace("version = 1", "version = 2")
        (tmp_path / "policy.toml").write_text(text.replace('publish = [""]', 'publish = ["bills/"]'))
        folder.sign()
        denied = "right: desk.ada may not publish orders/"
        eventually(lambda: pull.stats.cut >= 2)
        assert reasons(pull) == {denied}
        eventually(lambda: any(denied in reason for reason in reasons(push)))
        assert rights.refusals["right"] >= 2
