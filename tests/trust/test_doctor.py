"""`nngkit doctor URL --trust PASS`: which peer is there, why it refuses or is refused, and what the pass may."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit.protocols import Pull, Rep
from nngkit.trust import Rights, passes
from nngkit.trust.realm import Realm
from tests.cli.commands import assert_fails, nngkit, valid
from tests.trust.one_realm import OneRealm
from tests.trust.rooms import ANY
from tests.trust.strangers import Heard, context, future, issued, past, waiting

pytestmark = pytest.mark.slow  # programs
CLOCKS = r"it is valid from \S+Z until \S+Z, and here it is \S+Z"


@pytest.fixture
def realm(tmp_path: Path) -> OneRealm:
    realm = OneRealm(tmp_path / "realm")
    realm.policy('desk.* | call = ["quotes"] | publish = [""]')
    return realm


def doctor(url: str, own: Path, *more: str) -> dict[str, Any]:
    done = nngkit("doctor", url, "--trust", str(own), "--json", *more)
    assert done.stderr == ""
    found: dict[str, Any] = valid(done.stdout, "doctor.json")
    assert found["exit_code"] == done.returncode
    return {each["code"]: (each["what"], each["advice"]) for each in found["findings"]} | {"exit": done.returncode}


@contextmanager
def listening(realm: OneRealm, make: Callable[[Realm], tuple[str, str]], **more: Any) -> Iterator[str]:
    """Listen as a stranger, in a thread."""
    chain, key = make(realm.folder.realm)
    tls = context(realm.folder.realm, server=True, chain=chain, key=key, **more)
    ready, places, ends = threading.Event(), list[str](), list[Callable[[], object]]()

    async def main() -> None:
        async with waiting(tls, Heard()) as place:
            scope = trio.CancelScope()
            token = trio.lowlevel.current_trio_token()
            ends.append(lambda: token.run_sync_soon(scope.cancel))
            places.append(f"tls+tcp://{place}")
            ready.set()
            with scope:
                await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    assert ready.wait(15)
    try:
        yield places[0]
    finally:
        ends[0]()
        thread.join(15)


def test_it_names_the_peer_and_what_the_pass_may(realm: OneRealm) -> None:
    hub = realm.trust("hub")
    with Pull(listen=ANY, trust=hub) as pull:
        found = doctor(pull.address, realm.file("desk.ada"), "--protocol", "push")
        assert found["exit"] == 0
        assert re.fullmatch(rf"hub of farm is there, until \S+Z, serial {hub.own.serial}", found["who"][0])
        assert found["peer"][0] == "a PULL listens there, for a PUSH"
        assert found["may"][0] == "desk.ada may call quotes; publish everything (by version 1 of the policy)"
        assert pull.stats.joined == 0
        assert doctor(pull.address, realm.file("desk.ada"), "--protocol", "sub")["exit"] == 1
        assert "may do nothing" in doctor(pull.address, realm.file("render.w1"))["may"][0]
    with Rep(listen="wss://127.0.0.1:0/x", trust=hub) as rep:
        assert doctor(rep.address, realm.file("desk.ada"))["peer"][0] == "a REP listens there, for a REQ"


def test_it_says_why_the_listener_refuses_and_which_line_is_missing(realm: OneRealm, tmp_path: Path) -> None:
    hub = realm.trust("hub")
    rights = Rights(hub, "calls", carry="calls")
    with Pull(listen=ANY, trust=hub, peers=lambda who: rights.require(who, "call", "pay/charge")) as pull:
        found = doctor(pull.address, realm.file("desk.ada"))
        assert found["right"] == (
            "it refuses desk.ada: right: desk.ada may not call pay/charge",
            'a role of desk.ada needs call = ["pay/charge"]',
        )
        assert found["exit"] == 1
        other = tmp_path / "other.pass"
        passes.write(other, Realm.new("farm").issue("desk.ada"))
        helps = doctor(pull.address, other)["other-realm"][1]
        assert helps == "both need a pass of the same realm, or the address is wrong"
        realm.folder.revoke("desk.ada")
        hub.refresh(now=True)
        assert doctor(pull.address, realm.file("desk.ada"))["revoked"][0].startswith("desk.ada is revoked by version 2")


@pytest.mark.parametrize(
    ("make", "more", "code", "what"),
    [
        (lambda realm: past(realm, "hub"), {}, "expired", rf"its certificate is refused: .*expired: {CLOCKS}"),
        (lambda realm: future(realm, "hub"), {}, "not-yet", rf"its certificate is refused: .*not yet valid: {CLOCKS}"),
        (lambda realm: issued(Realm.new("farm"), "hub"), {}, "other-realm", r"its certificate is refused: .*"),
        (
            lambda realm: issued(realm, "hub"),
            {"version": "TLSv1_2"},
            "version",
            r"it speaks no version of TLS .*: 1\.3",
        ),
    ],
    ids=["expired", "not yet valid", "other realm", "TLS 1.2"],
)
def test_it_says_why_the_listener_is_refused(
    make: Callable[[Realm], tuple[str, str]], more: dict[str, Any], code: str, what: str, realm: OneRealm
) -> None:
    with listening(realm, make, **more) as url:
        found = doctor(url, realm.file("desk.ada"))
        assert re.fullmatch(what, found[code][0]), found
        assert found["exit"] == 1


def test_a_plain_listener_and_a_pass_that_cannot_be_used(realm: OneRealm, tmp_path: Path) -> None:
    with Pull(listen="tcp://127.0.0.1:0") as pull:
        found = doctor(pull.address.replace("tcp", "tls+tcp"), realm.file("desk.ada"))
        assert found["plain"][0] == "it does not speak TLS"
        plain = nngkit("doctor", pull.address, "--trust", str(realm.file("desk.ada")))
        assert_fails(plain, 2, "passes are shown at tls+tcp:// and wss:// addresses")
    assert doctor("tls+tcp://127.0.0.1:9", realm.file("desk.ada"))["exit"] == 3
    for days, why, code in ((-10, "has expired", 2), (10, "is not yet valid", 1)):
        old = tmp_path / f"{days}.pass"
        passes.write(old, realm.folder.realm.issue("desk.ada", days=1, start=datetime.now(UTC) + timedelta(days=days)))
        done = nngkit("doctor", "tls+tcp://127.0.0.1:9", "--trust", str(old))
        assert_fails(done, code, why)
        assert re.search(CLOCKS, done.stderr), done.stderr


def test_people_read_it_as_lines(realm: OneRealm) -> None:
    with Pull(listen=ANY, trust=realm.trust("hub")) as pull:
        lines = nngkit("doctor", pull.address, "--trust", str(realm.file("desk.ada"))).stdout.splitlines()
        assert [line.split()[0] for line in lines] == ["ok"] * 4
        assert nngkit("doctor", pull.address, NNGKIT_TRUST=str(realm.file("desk.ada"))).stdout.splitlines() == lines
