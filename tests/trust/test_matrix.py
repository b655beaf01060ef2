"""Each room, each peer that is to be refused, each end: none gets in, both ends know why, honest ones are undisturbed.

The cells are the product of PLACES, CASES and WAYS, without those that NONE explains. A stranger speaks TLS by hand
(strangers.py): what is refused gets as far as no message of a room, and no byte comes before the refusal. What a member
that was let in may not do, a room decides by its messages: FURTHER has a function of the room for such a cell.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

import pytest
import trio
from cryptography import x509

from nngkit.discovery import Provider, Service, ServiceDiscovery
from nngkit.discovery.messages import SurveyQuery, SurveyReply, is_cbor
from nngkit.errors import NngkitError
from nngkit.protocols import Pull, Push, Respondent, Surveyor
from nngkit.protocols.sp import refusal
from nngkit.testing import aeventually
from nngkit.trust import Trust, passes
from nngkit.trust.names import uri_of
from nngkit.trust.policy import BY_PREFIX, RIGHTS
from nngkit.trust.realm import Realm
from tests.trust import rooms
from tests.trust.one_realm import OneRealm
from tests.trust.rooms import ANY, ROOMS, WAIT
from tests.trust.strangers import ALERT, HELLO, Heard, certified, context, future, issued, knock, past, waiting

Serving = Callable[[Trust, Path], AbstractAsyncContextManager[str]]
Asks = Callable[[str, Trust], Awaitable[None]]
Certified = Callable[[OneRealm], tuple[str, str]]
Peer = Callable[[OneRealm, bool], ssl.SSLContext | None]

BAD: Final = "desk.eve"
GRANTS: Final = " | ".join(f'{right} = ["{"" if right in BY_PREFIX else "*"}"]' for right in RIGHTS if right != "enrol")
HONEST: Final = f"hub desk.ada @local | {GRANTS}"
MEMBER: Final = f"{BAD} | {GRANTS}"
WAYS: Final = ("dials", "listens")

# ---- rooms -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def pull(trust: Trust, folder: Path) -> AsyncIterator[str]:
    async with Pull(
        listen=rooms.ANY, trust=trust, peers=lambda who: trust.require(who or "", "publish", "x")
    ) as running:
        yield running.address


async def pushes(url: str, trust: Trust) -> None:
    async with Push(dial=url, trust=trust, peers=lambda who: trust.require(who or "", "publish", "x")) as push:
        await push.await_for_peers(1, WAIT)
        await push.asend(b"x", timeout=WAIT)


NAMES: Final = ("discovery", "calls", "fan-out", "consumers", "mesh", "documents", "cluster")
PLACES: Final[dict[str, tuple[Serving, Asks]]] = {
    **dict(zip(NAMES, ROOMS, strict=True)),
    "bare sockets": (pull, pushes),
}

# ---- peers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A peer that is refused. `peer`: its TLS, by realm and whether it listens.

    `dials`, `listens`: patterns of the reason at the room, and of what the peer sees: OpenSSL's reason, or "closed".
    `policy`: roles. `revoked`: what of them.
    """

    peer: Peer
    dials: tuple[str, str]
    listens: tuple[str, str]
    policy: tuple[str, ...] = (HONEST, MEMBER)
    revoked: str = ""


def shows(make: Certified, *, low: bool = False, version: str = "TLSv1_3") -> Peer:
    def peer(realm: OneRealm, server: bool) -> ssl.SSLContext:
        chain, key = make(realm)
        return context(realm.folder.realm, server=server, chain=chain, key=key, low=low, version=version)

    return peer


def nothing(realm: OneRealm, server: bool) -> ssl.SSLContext:
    """Without a pass; a listener of TLS has to have a certificate, which is of no realm."""
    chain, key = certified(None, x509.DNSName("x")) if server else ("", "")
    return context(realm.folder.realm, server=server, chain=chain, key=key)


def speaks_plainly(realm: OneRealm, server: bool) -> None:
    return None


def tls_to_plain(realm: OneRealm, server: bool) -> ssl.SSLContext | None:
    """A listener of TLS answers what it cannot read with an alert."""
    return None if server else own(realm, server)


def two_uris(realm: OneRealm) -> tuple[str, str]:
    return certified(
        realm.folder.realm, *(x509.UniformResourceIdentifier(uri_of("farm", name)) for name in (BAD, "hub"))
    )


def passed(realm: OneRealm) -> tuple[str, str]:
    found = passes.read(realm.file(BAD))
    return found.chain, found.key


own: Final = shows(passed)
UNKNOWN: Final = "certificate refused: unable to get local issuer certificate", "TLSV1_ALERT_UNKNOWN_CA"
EXPIRED: Final = "certificate refused: certificate has expired", "SSLV3_ALERT_CERTIFICATE_EXPIRED"
NOT_YET: Final = "certificate refused: certificate is not yet valid", "SSLV3_ALERT_BAD_CERTIFICATE"
REVOKED: Final = r"revoked: desk\.eve \(serial [0-9a-f]+\)", "closed"
NO_RIGHT: Final = r"right: desk\.eve may not .*", "closed"
TWO_URIS: Final = "binding: the certificate has 2 URIs.*", "closed"
NO_URI: Final = "binding: the certificate has no URIs.*", "closed"
NO_VERSION: Final = "TLS handshake failed: no common version.*"
NO_TLS: Final = "TLS handshake failed: the peer speaks SP without TLS", "closed"
NO_HELLO: Final = "bad hello: the peer speaks TLS"
VERSIONS: Final = (NO_VERSION, "TLSV1_ALERT_PROTOCOL_VERSION"), (NO_VERSION, "UNSUPPORTED_PROTOCOL")

CASES: Final[dict[str, Case]] = {
    "no pass": Case(
        nothing,
        ("certificate refused: the peer presented none", "TLSV13_ALERT_CERTIFICATE_REQUIRED"),
        ("certificate refused: self-signed certificate", "TLSV1_ALERT_UNKNOWN_CA"),
    ),
    "other realm, same name": Case(shows(lambda realm: issued(Realm.new("farm"), BAD)), UNKNOWN, UNKNOWN),
    "expired": Case(shows(lambda realm: past(realm.folder.realm, BAD)), EXPIRED, EXPIRED),
    "not yet valid": Case(shows(lambda realm: future(realm.folder.realm, BAD)), NOT_YET, NOT_YET),
    "revoked by name": Case(own, REVOKED, REVOKED, revoked="name"),
    "revoked by serial": Case(own, REVOKED, REVOKED, revoked="serial"),
    "two URIs": Case(shows(two_uris), TWO_URIS, TWO_URIS),
    "DNS only": Case(
        shows(lambda realm: certified(realm.folder.realm, x509.DNSName(f"{BAD}.farm"))),
        NO_URI,
        NO_URI,
    ),
    "plain to TLS": Case(speaks_plainly, NO_TLS, NO_TLS),
    "TLS to plain": Case(tls_to_plain, (NO_HELLO, "WRONG_VERSION_NUMBER"), (NO_HELLO, "closed")),
    "TLS 1.2": Case(shows(passed, version="TLSv1_2"), *VERSIONS),
    "TLS 1.1": Case(shows(passed, version="TLSv1_1", low=True), *VERSIONS),
    "right name, wrong right": Case(own, NO_RIGHT, NO_RIGHT, policy=(HONEST,)),
    "right right, wrong id": Case(own, ("", ""), ("", "")),  # by the functions of FURTHER only
}


# ---- what members may not --------------------------------------------------------------------------------------------


@asynccontextmanager
async def surveyed(realm: OneRealm) -> AsyncIterator[tuple[ServiceDiscovery, Provider]]:
    """A discovery with an honest provider, which is undisturbed at the end."""
    async with (
        ServiceDiscovery(listen=ANY, interval=0.05, deadline=0.5, trust=realm.trust("hub")) as discovery,
        Service("pay", "tcp://127.0.0.1:9", discovery=discovery.address, trust=realm.trust("desk.ada"), sigterm=False),
    ):
        await aeventually(lambda: "pay" in discovery.snapshot())
        yield discovery, discovery.resolve("pay")
        assert [each.address for each in discovery.snapshot()["pay"]] == ["tcp://127.0.0.1:9"]


async def states(realm: OneRealm, discovery: ServiceDiscovery, record: Provider, code: str) -> None:
    async with Respondent(dial=discovery.address, trust=realm.trust(BAD)) as respondent:
        async for query in respondent:
            if is_cbor(query.body):
                await query.areply(SurveyReply("x", (record,)).encode())
            if discovery.stats.refused.get(code, 0) >= 2:
                return


async def offers_without_the_right(realm: OneRealm) -> None:
    async with surveyed(realm) as (discovery, _):
        await states(realm, discovery, Provider("pay", "tcp://127.0.0.1:6", f"{BAD}:1", 1), "right")


async def states_the_record_of_another(realm: OneRealm) -> None:
    async with surveyed(realm) as (discovery, pay):
        await states(realm, discovery, Provider(*pay.key, draining=True), "binding")


async def surveys_as_another(realm: OneRealm) -> None:
    async with (
        surveyed(realm) as (discovery, _),
        Surveyor(listen=ANY, trust=realm.trust(BAD)) as false,
        Service(
            "pay",
            "tcp://127.0.0.1:9",
            discovery=[false.address, discovery.address],
            trust=realm.trust("desk.ada"),
            sigterm=False,
        ) as service,
    ):
        await false.await_for_peers(1, WAIT)
        with await false.astart(SurveyQuery("hub:1", 1).encode(), timeout=None) as survey:
            await aeventually(lambda: service.stats.refused == {"binding": 1})
            assert survey.fresh() == []


RIGHT: Final = "right name, wrong right"
ID: Final = "right right, wrong id"
Cell = tuple[str, str, str]
FURTHER: Final[dict[Cell, tuple[Callable[[OneRealm], Awaitable[None]], tuple[str, ...]]]] = {
    ("discovery", RIGHT, "dials"): (offers_without_the_right, (HONEST, f'{BAD} | call = ["pay"]')),
    ("discovery", ID, "dials"): (states_the_record_of_another, (HONEST, f'{BAD} | offer = ["pay"]')),
    ("discovery", ID, "listens"): (surveys_as_another, (HONEST, f'{BAD} | offer = ["*"]')),
}
SAID: Final = "members are let in; tests/trust/test_rights_{}.py has what they say"
NONE: Final[dict[Cell, str]] = {
    ("discovery", RIGHT, "listens"): "a daemon needs no right: what it says of others is not believed",
    **{("calls", ID, way): "a call and its reply name no peer" for way in WAYS},
    **{("bare sockets", ID, way): "a message of a bare socket names no peer" for way in WAYS},
    **{
        (room, ID, way): SAID.format(room.replace("-", ""))
        for room, way in product(("fan-out", "consumers", "mesh", "documents", "cluster"), WAYS)
    },
    **{
        (room, RIGHT, way): SAID.format(room)
        for room, way in product(("consumers", "mesh", "documents", "cluster"), WAYS)
    },
}
CELLS: Final = [cell for cell in product(PLACES, CASES, WAYS) if cell not in NONE]
QUICK: Final = {  # in each run: each case and way in one room, in turn
    (places[number % len(places)], case, way)
    for number, (case, way) in enumerate(product(CASES, WAYS))
    for places in [[room for room in PLACES if (room, case, way) not in NONE]]
}

# ---- cells -----------------------------------------------------------------------------------------------------------


def test_what_does_not_apply_is_explained() -> None:
    every = set(product(PLACES, CASES, WAYS))
    assert every == set(CELLS) | set(NONE)
    assert set(FURTHER) <= set(CELLS)
    assert {cell for cell in CELLS if cell[1] == ID} <= set(FURTHER)
    assert all(NONE.values())
    named = {found[0] for reason in NONE.values() if (found := re.search(r"test_rights_\w+\.py", reason))}
    assert {each for each in named if not Path(__file__).with_name(each).exists()} == set()
    assert {room for room, _, _ in QUICK} == set(PLACES)


@pytest.mark.parametrize(
    ("room", "case", "way"),
    [pytest.param(*cell, id=" - ".join(cell), marks=() if cell in QUICK else pytest.mark.slow) for cell in CELLS],
)
async def test_a_peer_that_is_to_be_refused(
    room: str,
    case: str,
    way: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    realm = OneRealm(tmp_path / "realm")
    if (further := FURTHER.get((room, case, way))) is not None:
        realm.policy(*further[1])
        with trio.fail_after(WAIT):
            await further[0](realm)
        return
    this = CASES[case]
    realm.policy(*this.policy)
    if this.revoked:
        realm.folder.revoke(BAD if this.revoked == "name" else f"serial:{passes.read(realm.file(BAD)).serial}")
    if case == "TLS to plain":
        monkeypatch.setattr(rooms, "ANY", "tcp://127.0.0.1:0")
    serving, asks = PLACES[room]
    hub, ada = realm.trust("hub"), realm.trust("desk.ada")
    heard = Heard()
    with caplog.at_level(logging.INFO, "nngkit.protocols"), trio.fail_after(WAIT):
        async with serving(hub, tmp_path) as url:
            if way == "dials":
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(asks, url, ada)
                    for _ in range(2):
                        for each in url.split():
                            await knock(each, this.peer(realm, False), heard)
            else:
                await meets(this.peer(realm, True), heard, asks, url, ada, plain=case == "TLS to plain")
    check(this, heard, caplog, way, plain=case == "TLS to plain")


async def meets(tls: ssl.SSLContext | None, heard: Heard, asks: Asks, url: str, trust: Trust, *, plain: bool) -> None:
    """Dial a listener that is to be refused, until it was twice; and the honest one beside it."""

    async def vainly(place: str) -> None:
        scheme = "tcp" if plain else "tls+tcp"
        with suppress(NngkitError):
            await asks(" ".join(f"{scheme}://{place}" for _ in url.split()), trust)
            raise AssertionError("it was served")

    async with waiting(tls, heard, hello=ALERT if plain else HELLO) as place, trio.open_nursery() as nursery:
        nursery.start_soon(vainly, place)
        await asks(url, trust)
        await aeventually(lambda: len(heard.ends) >= 2)
        ends = list(heard.ends)
        nursery.cancel_scope.cancel()
    heard.ends[:] = ends  # a try that this end interrupts was not refused


def check(this: Case, heard: Heard, caplog: pytest.LogCaptureFixture, way: str, *, plain: bool) -> None:
    here, there = this.dials if way == "dials" else this.listens
    reasons = {found[1] for record in caplog.records if (found := re.search(r": cut: (.*)", record.getMessage()))}
    assert reasons
    assert all(re.fullmatch(here, reason) for reason in reasons), reasons
    assert all(re.fullmatch(there, end) for end in heard.ends), heard.ends
    for data in heard.data:
        if plain:  # the hello says what the room is, and is sent at once where there is no TLS
            assert data == b"" or (data[:4], len(data)) == (HELLO[:4], 8)
        elif this.peer is speaks_plainly and way == "dials":
            assert data == ALERT
        elif this.peer is speaks_plainly:
            assert data[:3] == b"\x16\x03\x01"  # of TLS: the first word of a handshake
        elif way == "dials" and there == "closed":
            assert data in {refusal(reason) for reason in reasons}
        else:
            assert data == b""
