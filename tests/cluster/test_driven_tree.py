"""Parts of a place in a tree, each by itself, decide what was recorded: see tests/driving.py."""

from __future__ import annotations

from typing import Final

import pytest

from nngkit.cluster.tree.load import LoadGauge
from nngkit.cluster.tree.members import MemberTable
from nngkit.cluster.tree.messages import Ancestry, Member
from nngkit.cluster.tree.path import Standing
from nngkit.cluster.tree.root import BUSY, Balance, Doubles, shape_of
from nngkit.cluster.tree.shape import Branch, Joiner, Move, Shape, choose, depths_of, ideal_depth, plan_moves, sibling
from nngkit.cluster.tree.values import PlaceLimits, PlaceStats
from tests.driving import Drive, driven, limits, names, recorded


def tree(drive: Drive) -> Shape:
    """Draw a tree of any form: chains, stars, crowded nodes, leaves above hosts, nodes that no root reaches."""
    rng = drive.rng
    fanouts, leaves, chain = rng.choice(((1, 2), (2,), (2, 3), (1, 4))), rng.choice((0.0, 0.3, 0.6)), rng.random()
    parents: dict[str, str | None] = {"a": None}
    fanout = {"a": rng.choice(fanouts)}
    hosts = ["a"]
    names = [chr(ord("b") + number) for number in range(rng.randint(0, 20))]
    rng.shuffle(names)  # the order of the names is not that of the levels
    for name in names:
        parents[name] = hosts[-1] if rng.random() < chain else rng.choice(hosts)
        if rng.random() < leaves:
            fanout[name] = 0
        else:
            fanout[name] = rng.choice(fanouts)
            hosts.append(name)
    if rng.random() < 0.1:
        parents |= {"x": "y", "y": "x", "z": "gone"}
        fanout |= dict.fromkeys("xyz", 1)
    busy = rng.sample(hosts, min(len(hosts), rng.choice((0, 0, 1, 2))))
    return Shape(dict(rng.sample(list(parents.items()), len(parents))), fanout, frozenset(busy))


def shapes(drive: Drive) -> None:
    """Plan the moves of trees, carry them out, and plan again; some fail, and are avoided."""
    rng = drive.rng
    for _ in range(300):
        shape = tree(drive)
        avoid: list[Move] = []
        with limits(cluster__tree__shape={"REPAIR": rng.choice((1, 3, 16))}):
            for _ in range(rng.randint(1, 4)):
                lighten = sorted(shape.busy)[: rng.randint(0, 2)]
                moves = drive.call(plan_moves, shape, rng.choice((1, 2, 4, 16)), avoid=avoid, lighten=lighten)
                failed = [move for move in moves if rng.random() < 0.3]
                avoid += failed
                made = {move.node: move.parent for move in moves if move not in failed}
                shape = shape._replace(parents=dict(shape.parents) | made)
        drive.note(depths_of(shape.parents), ideal_depth(shape.fanout.values()))
        drive.step()


def joiners(drive: Drive) -> None:
    """Answer joiners at nodes with few children, many of them equal."""
    rng = drive.rng
    for _ in range(1000):
        children = [rng.randint(1, 9) for _ in range(rng.randint(0, 4))]
        branches = {child: Branch(*(rng.choice((0, 0, 1, 1, 2, 3)) for _ in range(3))) for child in children}
        used, fanout = rng.randint(0, 6), rng.randint(1, 3)
        drive.call(choose, branches, used, fanout, Joiner(rng.randint(0, 2), rng.choice((1, 1, 1, 2))))
        drive.call(sibling, children, rng.randint(1, 9))
        drive.step()


def balances(drive: Drive) -> None:
    """Plan for trees that change seldom, so that moves fail, and plans of few moves are repeated."""
    rng = drive.rng
    stats = PlaceStats()
    balance = Balance(PlaceLimits(quiet=0.5, plan=1.0, moves=rng.choice((1, 16))), stats)
    shape = tree(drive)
    small = {"MOST_FAILED": rng.choice((2, 64)), "LONGEST_PAUSE": 12, "LIGHTEN": 1}
    with limits(cluster__tree__shape={"REPAIR": 1}, cluster__tree__root=small):
        for _ in range(800):
            chance, now = rng.random(), drive.go_on(balance.wake_at)
            if chance < 0.03:
                balance.stop()
            elif chance < 0.15:
                shape = tree(drive) if chance < 0.06 else shape
                for _ in range(rng.choice((0, 9))):
                    made = {move.node: move.parent for move in plan_moves(shape, 16)}
                    shape = shape._replace(parents=dict(shape.parents) | made)
                balance.changed(now)
            else:
                moves = balance.plan(shape, now)
                drive.note(moves)
                if moves and rng.random() < 0.4:
                    shape = shape._replace(parents=dict(shape.parents) | {move.node: move.parent for move in moves})
            drive.note(balance.wake_at, stats.moves)
            drive.step()


def doubles(drive: Drive) -> None:
    """Note ids that are claimed twice, over three links."""
    rng, stats, table = drive.rng, PlaceStats(), MemberTable(4)
    found = Doubles(table, stats)
    with limits(cluster__tree__root={"MOST_DOUBLES": 2}):
        for _ in range(400):
            chance, now = rng.random(), drive.go_on(found.wake_at)
            name, link = rng.choice("abcdef"), rng.randint(1, 3)
            if chance < 0.5:
                facts = rng.choice(({}, {BUSY: True}, {BUSY: 1}))
                row = (name, rng.randint(1, 3), rng.randint(0, 1), rng.choice("rabc"), None, rng.randint(0, 2), facts)
                table.add(link, Member(*row))
            elif chance < 0.6:
                drive.call(table.remove, link, name)
            elif chance < 0.62:
                drive.call(table.drop, link)
            found.note(now)
            drive.note(found.probes(now), found.later(name, rng.randint(0, 3)), found.wake_at, stats, table.changes())
            drive.note(
                shape_of("r", 2, {BUSY: chance < 0.3}, table), table.branch(link), table.route(name), table.refused
            )
            drive.note(table.news() if chance < 0.2 else [table.waiting])
            if chance > 0.98:
                table.forget_told()
            drive.step()


def standings(drive: Drive) -> None:
    """Take paths and labels of few terms, numbers and depths."""
    rng, own = drive.rng, Standing("d")
    for _ in range(1000):
        path = tuple(rng.sample("abcdef", rng.choice((0, 1, 1, 2, 2, 3)))) if rng.random() < 0.9 else ("a",) * 64
        place = Ancestry(
            max(0, own.known + rng.randint(-1, 1)), rng.randint(0, 2), path[: rng.choice((63, 64))], "h", "g", "s"
        )
        chance = rng.random()
        drive.call(own.usable, place)
        if drive.call(own.allows, place, childless=rng.random() < 0.3) and chance < 0.4:
            own.attach(place)
        elif chance < 0.7:
            drive.call(own.follow, place, frozen=rng.random() < 0.3)
        elif chance < 0.75:
            drive.call(own.lead, max(0, own.term + rng.randint(-1, 1)), "tcp://d:1")
        elif chance < 0.8:
            own.renumber()
        elif chance < 0.85:
            own.lose()
        elif chance < 0.9:
            own.hear(own.term + rng.randint(-1, 1))
        if own.known > 9:
            own = Standing("d")
        drive.note([getattr(own, name) for name in own.__slots__], own.term, own.stale, own.announced("g", "s"))
        drive.step()


def gauges(drive: Drive) -> None:
    """Measure the load of a node."""
    gauge, load = LoadGauge(), 0.0
    for _ in range(400):
        load = drive.rng.choice((load, load, load, -0.5, 0.0, 0.5, 0.75, 0.9, 1.0, 1.5))
        if drive.rng.random() < 0.1:  # exactly at a limit
            gauge.load = load = drive.rng.choice((0.5, 0.85))
        drive.note(gauge.add(load), gauge.load, gauge.busy)
        drive.step()


DRIVES: Final = {
    "shapes": (shapes, 5),
    "joiners": (joiners, 1),
    "balances": (balances, 3),
    "doubles": (doubles, 2),
    "standings": (standings, 1),
    "gauges": (gauges, 1),
}


@pytest.mark.parametrize("name", names(DRIVES))
def test_parts_of_a_place_decide_what_was_recorded(name: str) -> None:
    assert driven(DRIVES, name) == recorded(name)
