"""Names in a mesh: a neighbour speaks under its own, an instance of it, or for others if it may carry."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from nngkit.errors import ConfigError
from nngkit.mesh import Mesh, MeshMessage
from nngkit.mesh.limits import MeshLimits
from nngkit.mesh.wire import CONTROL, Digest, Line, data_frame, key_of
from nngkit.protocols import Bus
from nngkit.testing import aeventually
from nngkit.trust import Trust
from tests.trust.one_realm import OneRealm

ANY = "tls+tcp://127.0.0.1:0"
WAIT = 15.0
PATIENCE = 0.5  # seconds after which a node gives up what it takes for missing
RELAY = 'b.relay | carry = ["mesh"]'


@pytest.fixture
def realm(tmp_path: Path) -> OneRealm:
    realm = OneRealm(tmp_path)
    realm.policy(RELAY)
    return realm


@contextlib.asynccontextmanager
async def chain(realm: OneRealm) -> AsyncIterator[tuple[Mesh, Mesh, Mesh, list[MeshMessage]]]:
    """Open a - b.relay - c, and collect what c hears."""
    heard: list[MeshMessage] = []

    async def listen() -> None:
        while True:
            heard.append(await c.recv())

    async with (
        Mesh(listen=ANY, trust=realm.trust("a")) as a,
        Mesh(listen=ANY, dial=a.address, trust=realm.trust("b.relay"), patience=PATIENCE, digest=0.1) as b,
        Mesh(dial=b.address, trust=realm.trust("c"), patience=PATIENCE, digest=0.1) as c,
        trio.open_nursery() as nursery,
    ):
        for node, count in ((a, 1), (b, 2), (c, 1)):
            await node.wait_for_neighbours(count, WAIT)
        nursery.start_soon(listen)
        yield a, b, c, heard
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def member(node: Mesh, trust: Trust) -> AsyncIterator[Bus]:
    """Connect a member that sends what it likes."""
    async with Bus(dial=node.address, trust=trust) as bus:
        await bus.await_for_peers(1, WAIT)
        yield bus


def test_an_id_is_the_name_or_an_instance_of_it(realm: OneRealm) -> None:
    own = realm.trust("render.w1")
    assert Mesh(trust=own).id == "render.w1"
    assert Mesh(trust=own, id="render.w1:2").id == "render.w1:2"
    for other in ("render.w2", "render.w1.x", "a"):
        with pytest.raises(ConfigError, match=r"neither 'render\.w1'"):
            Mesh(trust=own, id=other)
    assert Mesh(id="a").id == "a"


async def test_a_forged_number_silences_no_one(realm: OneRealm, caplog: pytest.LogCaptureFixture) -> None:
    async with chain(realm) as (a, b, c, heard):
        await a.send(b"one")
        await aeventually(lambda: len(heard) == 1)
        key = key_of("a", heard[0].epoch)
        with caplog.at_level(logging.WARNING, "nngkit.trust"):
            async with member(b, realm.trust("x")) as bus:
                await bus.asend(data_frame(key, 60_000, b"forged"))
                await bus.asend(data_frame(key, 2, b"forged"))
                lines = (Line("a", heard[0].epoch, 1, 1, 60_000, 100),)
                await bus.asend(CONTROL.encode(Digest("x", 1, lines)))  # own name, others' numbers
                await bus.asend(CONTROL.encode(Digest("a", heard[0].epoch, lines)))  # another's name
                await aeventually(lambda: b.stats.refused.get("binding") == 4)
                assert [each.id for each in b.neighbours if each.id not in ("a", "c")] == ["x"]
        await trio.sleep(2 * PATIENCE)  # in which what is missing would be given up
        for number in range(100):
            await a.send(b"%d" % number)
        await aeventually(lambda: len(heard) == 101)
        assert [each.body for each in heard[1:]] == [b"%d" % number for number in range(100)]
        assert (b.stats.gaps, c.stats.gaps, c.stats.unconfirmed, c.stats.refused) == (0, 0, 0, {})
    assert "mesh: binding: x may not speak as 'a': a role of x needs carry = [\"mesh\"]" in caplog.messages


async def test_what_a_member_says_under_its_own_name_goes_on(realm: OneRealm) -> None:
    async with chain(realm) as (_, b, _, heard), member(b, realm.trust("x")) as bus:
        for said in ("x", "x:2"):
            await bus.asend(data_frame(key_of(said, 7), 1, said.encode()))
        await bus.asend(data_frame(key_of("x.y", 7), 1, b"of another"))
        await aeventually(lambda: len(heard) == 2)
        await aeventually(lambda: b.stats.refused == {"binding": 1})  # it may arrive after these were heard
        assert [(each.origin, each.body) for each in heard] == [("x", b"x"), ("x:2", b"x:2")]


async def test_a_policy_takes_carrying_away_and_gives_it_back(realm: OneRealm) -> None:
    async with chain(realm) as (a, b, c, heard):
        await a.send(b"one")
        await aeventually(lambda: len(heard) == 1)
        realm.policy("none")
        await trio.sleep(0.3)  # for what is on its way
        before = dict(c.stats.refused)
        await a.send(b"two")
        await b.send(b"of b")
        await aeventually(lambda: len(heard) == 2)
        assert heard[1].origin == "b.relay"
        assert c.stats.refused == before, "b relays nothing that c would refuse"
        realm.policy(RELAY)
        await aeventually(lambda: [each.body for each in heard if each.origin == "a"] == [b"one", b"two"])
        assert c.stats.gaps == 0


async def test_a_relay_without_the_right_is_refused_by_those_that_know(realm: OneRealm, tmp_path: Path) -> None:
    free = OneRealm(tmp_path / "free")  # where b.relay has a policy that grants it more than c's does
    free.policy(RELAY)
    realm.policy("none")
    async with (
        Mesh(listen=ANY, trust=free.trust("a")) as a,
        Mesh(listen=ANY, dial=a.address, trust=free.trust("b.relay")) as b,
        Mesh(dial=b.address, trust=realm.trust("c")) as c,
    ):
        await b.wait_for_neighbours(2, WAIT)
        await a.send(b"one")
        await aeventually(lambda: c.stats.refused.get("binding", 0) > 0)
        await b.send(b"own")
        assert (await c.recv(WAIT)).body == b"own"
        assert b.stats.delivered == 1


async def test_without_a_policy_names_speak_for_themselves_and_this_machine_for_all(tmp_path: Path) -> None:
    realm = OneRealm(tmp_path)
    async with chain(realm) as (a, b, _, heard):
        await a.send(b"one")
        assert (await b.recv(WAIT)).body == b"one"
        await b.send(b"two")
        await aeventually(lambda: [each.body for each in heard] == [b"two"])
    plain = "tcp://127.0.0.1:0"
    async with (
        Mesh(listen=plain, trust=realm.trust("a")) as a,
        Mesh(listen=plain, dial=a.address, trust=realm.trust("b")) as b,
        Mesh(dial=b.address, id="of no realm") as c,
    ):
        await b.wait_for_neighbours(2, WAIT)
        await a.send(b"one")
        assert (await c.recv(WAIT))[::3] == ("a", b"one")
        await c.send(b"two")
        assert (await a.recv(WAIT))[::3] == ("of no realm", b"two")


def test_limits_hold_for_voices_too() -> None:
    """A frame whose origin is no text is refused or bad, and costs nothing that stays."""
    from nngkit.mesh.state import MeshState

    class Refusing:
        refused = 0

        def speaks(self, link: int, origin: str) -> bool:
            self.refused += 1
            return False

        tells = speaks

        def carries(self, link: int) -> bool:
            return False

    voices = Refusing()
    state = MeshState("me", 1, 0.0, MeshLimits(), voices=voices)
    state.link_up(1, 0.0)
    state.receive(1, [data_frame(b"\0" * 8 + b"\xff\xfe", 1, b""), b"\xd1", b"", b"\xd1" + b"\xff" * 40], 0.0)
    assert (voices.refused, state.stats.bad, state.stats.streams) == (2, 2, 0)
