"""Refusals at the dialer: what an error says of them, how often a refused dialer tries, and when it is let in."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio

from nngkit import Client
from nngkit.calls import Server
from nngkit.discovery import DaemonClient
from nngkit.documents import DocumentPeer
from nngkit.errors import AccessDenied, EditRefused, NngkitError, TimedOut, Unreachable
from nngkit.protocols import TLS, Pull, Push, Rep, Req
from nngkit.testing import aeventually, eventually
from nngkit.trust import OPEN, Realm
from nngkit.trust.refusals import missing_line
from nngkit.web.door import Door
from nngkit.web.server import serve
from tests.trust.one_realm import OneRealm
from tests.trust.strangers import issued, past

WAIT = 15.0
ANY = "tls+tcp://127.0.0.1:0"
PLACES = (ANY, "wss://127.0.0.1:0/jobs")
OTHER = Realm.new("farm")


@pytest.fixture
def farm(tmp_path: Path) -> OneRealm:
    return OneRealm(tmp_path / "farm")


@pytest.fixture
def strangers(tmp_path: Path) -> OneRealm:
    return OneRealm(tmp_path / "strangers", OTHER)


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_an_error_says_which_address_refuses_whom_and_by_which_code(farm: OneRealm, place: str) -> None:
    with (
        Rep(listen=place, trust=farm.trust("hub"), peers="render.*") as rep,
        Req(dial=rep.address, trust=farm.trust("desk.ada")) as req,
        pytest.raises(TimedOut) as late,
    ):
        req.request(b"?", timeout=0.5)
    says = f"{rep.address} refuses desk.ada: right: desk.ada is none of the peers render."
    assert re.search(re.escape(says), str(late.value))


@pytest.mark.parametrize("place", PLACES)
def test_a_refused_stranger_hears_the_alert_of_tls_and_no_more(farm: OneRealm, strangers: OneRealm, place: str) -> None:
    with (
        Rep(listen=place, trust=farm.trust("hub"), peers="render.*") as rep,
        Req(dial=rep.address, trust=strangers.trust("desk.ada")) as req,
        pytest.raises(TimedOut, match=r"desk\.ada refuses \S+: other-realm: certificate refused") as late,
    ):
        req.request(b"?", timeout=0.5)
    assert "both need a pass of the same realm" in str(late.value)
    assert "render" not in str(late.value)


@pytest.mark.slow
async def test_errors_of_rooms_have_the_refusals_of_their_addresses(farm: OneRealm, strangers: OneRealm) -> None:
    trust = strangers.trust("desk.ada")
    with Rep(listen=ANY, trust=farm.trust("hub")) as rep:
        refused = re.escape(f"desk.ada refuses {rep.address}: other-realm")
        async with DaemonClient(rep.address, trust=trust, timeout=0.3) as daemon:
            with pytest.raises(Unreachable, match=refused):
                await daemon.snapshot()
        async with Client("pay", daemons=[rep.address], trust=trust) as client:
            with pytest.raises(NngkitError, match=f"service not found: pay: {refused}"):
                await client.request(b"", timeout=0.3)
        async with DocumentPeer(join=[rep.address], trust=trust) as peer:
            with pytest.raises(TimedOut, match=refused):
                await peer.open("minutes").joined(timeout=0.5)


# What both ends say, by what listens and what dials: the code and the advice of the dialer's error, the listener's line
SHOWN = "with a pass of its realm (--trust FILE, or NNGKIT_TRUST=FILE)"
MISTAKES = {
    ("tcp", "tls+tcp"): ("plain", "have it listen at tls+tcp:// with a pass", "TLS, not SP: have it dial tcp://"),
    ("tcp", "ws"): ("transport", "dial tcp://HOST", "HTTP, not SP: have it dial tcp://"),
    ("tcp", "wss"): ("plain", "have it listen at wss:// with a pass", "TLS, not SP: have it dial tcp://"),
    ("ws", "tcp"): ("transport", "dial ws://HOST, with the path", "SP, not HTTP: have it dial ws://"),
    ("ws", "tls+tcp"): ("plain", "have it listen at tls+tcp:// with a pass", "TLS, not HTTP: have it dial ws://"),
    ("ws", "wss"): ("plain", "have it listen at wss:// with a pass", "TLS, not HTTP: have it dial ws://"),
    ("tls+tcp", "tcp"): ("plain", f"dial tls+tcp://HOST, {SHOWN}", "SP, not TLS: have it dial tls+tcp://"),
    ("tls+tcp", "ws"): ("plain", f"dial wss://HOST/jobs, {SHOWN}", "HTTP, not TLS: have it dial tls+tcp://"),
    ("tls+tcp", "wss"): ("transport", "dial tls+tcp://HOST", "HTTP, not SP: have it dial tls+tcp://"),
    ("wss", "tcp"): ("plain", f"dial tls+tcp://HOST, {SHOWN}", "SP, not TLS: have it dial wss://"),
    ("wss", "ws"): ("plain", f"dial wss://HOST/jobs, {SHOWN}", "HTTP, not TLS: have it dial wss://"),
    ("wss", "tls+tcp"): ("transport", "dial wss://HOST, with the path", "SP, not HTTP: have it dial wss://"),
}


@pytest.mark.parametrize(("listens", "dials"), MISTAKES, ids=lambda scheme: scheme)
def test_both_ends_say_what_the_other_speaks_and_what_to_do(
    farm: OneRealm, listens: str, dials: str, caplog: pytest.LogCaptureFixture
) -> None:
    code, helps, listener = MISTAKES[listens, dials]
    paths = {"ws": "/jobs", "wss": "/jobs"}
    hub, ada = (
        farm.trust(name) if scheme in ("tls+tcp", "wss") else OPEN
        for name, scheme in (("hub", listens), ("desk.ada", dials))
    )
    with Pull(listen=f"{listens}://127.0.0.1:0{paths.get(listens, '')}", trust=hub) as pull:
        host = urlsplit(pull.address).netloc
        with Push(dial=f"{dials}://{host}{paths.get(dials, '')}", trust=ada) as push:
            eventually(lambda: push.cuts and pull.cuts, WAIT)
            with pytest.raises(TimedOut) as late:
                push.wait_for_peers(1, 0.01)
    assert f": {code}: " in str(late.value)
    assert f": {helps.replace('HOST', host)}" in str(late.value)
    (line,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert line.startswith(f"{pull.address}: 127.0.0.1:")
    assert f" speaks {listener}" in line


@pytest.mark.parametrize(
    ("scheme", "says"),
    [("tcp", "bad hello: the peer speaks HTTP"), ("tls+tcp", "TLS handshake failed: the peer speaks HTTP without TLS")],
)
async def test_a_dialer_of_a_page_is_told_that_it_is_one(farm: OneRealm, scheme: str, says: str) -> None:
    async with trio.open_nursery() as nursery:
        server = await nursery.start(partial(serve, Door("nngkit test", {}), port=0))
        trust = OPEN if scheme == "tcp" else farm.trust("desk.ada")
        async with Push(dial=f"{scheme}://{urlsplit(server.url).netloc}", trust=trust) as push:
            await aeventually(lambda: push.cuts)
            with pytest.raises(TimedOut, match=f"{says}: .*, or (dial )?another port"):
                await push.await_for_peers(1, 0.01)
        nursery.cancel_scope.cancel()


def test_the_refusal_is_forgotten_once_the_address_lets_in(farm: OneRealm, strangers: OneRealm) -> None:
    with Rep(listen=ANY, trust=farm.trust("hub")) as rep:
        with Req(dial=rep.address, trust=strangers.trust("desk.ada")) as req, pytest.raises(TimedOut, match="refuses"):
            req.request(b"?", timeout=0.3)
        with Req(dial=rep.address, trust=farm.trust("desk.ada")) as req:
            req.wait_for_peers(1, WAIT)
            with pytest.raises(TimedOut) as late:  # none replies
                req.request(b"?", timeout=0.1)
    assert "refuses" not in str(late.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("right: ada may not call pay", 'a role of ada needs call = ["pay"]'),
        ("right: ada may not call pay/charge (at tls+tcp://h:1)", 'a role of ada needs call = ["pay/charge"]'),
        ("hub refuses minutes: right: ada may not edit minutes", 'a role of ada needs edit = ["minutes"]'),
        ("h refused ada: it may not call pay", 'a role of ada needs call = ["pay"]'),
        ("right: ada may not subscribe any topic", 'a role of ada needs subscribe = ["TOPIC"]'),
        ("right: ada is none of the peers hub", ""),
        ("binding: ada may not speak as 'hub'", ""),
    ],
)
def test_the_line_that_a_policy_lacks_is_found_in_the_text_of_an_error(text: str, line: str) -> None:
    assert missing_line(text) == line


# ---- documents -------------------------------------------------------------------------------------------------------


async def test_a_document_without_the_right_is_refused_at_once_and_by_name(
    farm: OneRealm, caplog: pytest.LogCaptureFixture
) -> None:
    farm.policy('hub | edit = ["*"]', 'guest.* | view = ["minutes"]')
    async with (
        DocumentPeer(listen=ANY, trust=farm.trust("hub")) as hub,
        DocumentPeer(dial=[hub.address], trust=farm.trust("guest.bob")) as bob,
    ):
        for name in ("minutes", "plans"):
            hub.open(name).text("body").insert(0, "hello")
        with trio.fail_after(WAIT):
            with pytest.raises(AccessDenied, match=r"hub refuses plans: right: guest\.bob may not view plans"):
                await bob.open("plans").joined(None)
            minutes = bob.open("minutes")
            await minutes.joined(None)
            minutes.text("body").insert(0, "forged ")
            with pytest.raises(EditRefused, match=r"hub refuses an edit: .*right: guest\.bob may not edit minutes"):
                await minutes.synced(1, timeout=WAIT)
            assert bob.refusals[0].why == "right: guest.bob may not view plans"
            farm.policy('hub | edit = ["*"]', 'guest.* | view = ["minutes", "plans"]')
            await bob.open("plans").joined(None)
    for line in ('view = ["plans"]', 'edit = ["minutes"]'):
        assert f"a role of guest.bob needs {line}" in caplog.text


# ---- tries -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_refused_dialer_comes_ever_more_rarely(farm: OneRealm, strangers: OneRealm) -> None:
    with (
        Pull(listen=ANY, trust=farm.trust("hub"), peers="render.*") as pull,
        Push(dial=pull.address, trust=farm.trust("desk.ada")) as ada,
        Push(dial=pull.address, trust=strangers.trust("render.w1")) as stranger,
    ):
        eventually(lambda: len(ada.cuts) > 1 and len(stranger.cuts) > 1, WAIT)
        time.sleep(4.0)
        before = len(ada.cuts), len(stranger.cuts)
        time.sleep(3.0)
        assert len(ada.cuts) - before[0] <= 2 >= len(stranger.cuts) - before[1]


@pytest.mark.slow
def test_a_policy_that_arrives_at_the_listener_within_two_seconds_counts_two_seconds_later(
    farm: OneRealm, tmp_path: Path
) -> None:
    farm.policy('hub | call = ["x"]')
    late = OneRealm(tmp_path / "late")  # the dialer's files do not change
    hub = farm.trust("hub")
    with (
        Pull(listen=ANY, trust=hub, peers=lambda who: hub.require(who or "", "call", "x")) as pull,
        Push(dial=pull.address, trust=late.trust("desk.ada")) as push,
    ):
        eventually(lambda: push.cuts, WAIT)
        time.sleep(2.0)
        farm.policy('desk.* | call = ["x"]')
        began = time.monotonic()
        push.wait_for_peers(1, WAIT)
        assert time.monotonic() - began < 2.5


@pytest.mark.slow
def test_another_pass_is_shown_at_once(farm: OneRealm, strangers: OneRealm) -> None:
    with (
        Pull(listen=ANY, trust=farm.trust("hub")) as pull,
        Push(dial=pull.address, trust=strangers.trust("desk.ada")) as push,
    ):
        eventually(lambda: push.cuts, WAIT)
        time.sleep(6.0)  # the next try is seconds away
        farm.file("desk.ada").rename(strangers.file("desk.ada"))
        began = time.monotonic()
        push.wait_for_peers(1, WAIT)
        assert time.monotonic() - began < 1.5


@pytest.mark.slow
def test_a_listener_whose_pass_has_ended_is_found_two_seconds_after_it_has_a_new_one(
    farm: OneRealm, tmp_path: Path
) -> None:
    realm, shown = farm.folder.realm, tmp_path / "shown.pem"
    shown.write_text("".join(past(realm, "hub")))
    tls = TLS(ca=realm.authorities, cert=shown, key=shown)
    with Pull(listen=ANY, tls=tls) as pull, Push(dial=pull.address, trust=farm.trust("desk.ada")) as push:
        eventually(lambda: push.cuts, WAIT)
        time.sleep(8.0)  # as long again, if it were another refusal
        with pytest.raises(TimedOut, match=r"desk\.ada refuses \S+: expired: certificate refused"):
            push.wait_for_peers(1, 0.0)
        (tmp_path / "new.pem").write_text("".join(issued(realm, "hub")))
        (tmp_path / "new.pem").rename(shown)
        began = time.monotonic()
        push.wait_for_peers(1, WAIT)
        assert time.monotonic() - began < 2.5


def test_a_lost_connection_is_back_at_once(farm: OneRealm) -> None:
    with (
        Pull(listen=ANY, trust=farm.trust("hub")) as pull,
        Push(dial=pull.address, trust=farm.trust("desk.ada")) as push,
    ):
        push.wait_for_peers(1, WAIT)
        pull.wait_for_peers(1, WAIT)
        pull.disconnect(pull.pipes[0])
        eventually(lambda: push.stats.joined == 2, 1.5)


# ---- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["call", "pay", "-D", "x", "--daemon", "URL", "--timeout", "0.5"],
        ["discover", "--daemon", "URL", "--timeout", "0.5"],
        ["sub", "--dial", "URL", "--recv-timeout", "0.5"],
        ["doc", "cat", "minutes", "--join", "URL", "--timeout", "0.5"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_command_says_in_its_error_who_refuses_and_what_helps(
    farm: OneRealm, strangers: OneRealm, words: list[str]
) -> None:
    with Rep(listen=ANY, trust=farm.trust("hub")) as rep:
        given = [rep.address if word == "URL" else word for word in words]
        done = subprocess.run(
            [sys.executable, "-m", "nngkit", *given],
            capture_output=True,
            text=True,
            env=os.environ | {"NNGKIT_TRUST": str(strangers.file("desk.ada"))},
            timeout=30,
        )
    (last,) = done.stderr.splitlines()
    assert done.returncode in (3, 4)
    assert f"desk.ada refuses {rep.address}: other-realm: " in last
    assert last.endswith("both need a pass of the same realm, or the address is wrong")


@pytest.mark.slow
async def test_a_call_that_the_policy_refuses_says_which_line_is_missing(farm: OneRealm) -> None:
    farm.policy('hub | offer = ["pay"]')
    async with Server("pay", bytes, listen=ANY, discovery=[], trust=farm.trust("hub")) as server:
        command = [sys.executable, "-m", "nngkit", "call", "pay", "-D", "x", "--address", server.address]
        done = await trio.run_process(
            [*command, "--trust", str(farm.file("desk.ada"))], capture_stderr=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode().rstrip().endswith('a role of desk.ada needs call = ["pay"]')
