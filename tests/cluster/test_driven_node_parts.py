"""The parts of a node do in random calls what they did when that was recorded: see tests/driving.py."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

import pytest

from nngkit.cluster.admission import Applicant, Secret, issue_ticket, make_secret, prove
from nngkit.cluster.election.values import ElectionLimits
from nngkit.cluster.frames import (
    HEARTBEAT_FRAME,
    Challenge,
    Greeting,
    Proof,
    Refusal,
    greeting_frame,
    parse_greeting,
    parse_local,
)
from nngkit.cluster.jobs.part import JobStart, WorkPart
from nngkit.cluster.jobs.sharing import evenly
from nngkit.cluster.node import letters as of_letters
from nngkit.cluster.node.greetings import Greetings
from nngkit.cluster.node.letters import LetterLimits, Letters
from nngkit.cluster.node.values import NodeConfig
from nngkit.cluster.node.voting import VotingPart
from nngkit.errors import AccessDenied
from nngkit.log_lines import LogLines
from tests.driving import Drive, driven, limits, names, recorded

VOTERS: Final = {"a": "mem://a", "b": "mem://b", "c": "mem://c", "d": "mem://d"}
AHEAD: Final = 1000.0  # of the wall clock
QUICK: Final[dict[str, float]] = {"GREETING": 1.0, "HEARTBEAT": 0.25, "SILENCE": 0.75, "FIRST_PAUSE": 0.0625}


async def admit() -> bool:
    """Admit a node, of which an authenticator must not wait to hear."""
    return True


def secret_of(drive: Drive) -> Secret | None:
    """Return the secret of the node that is driven: none, the token, or a ticket."""
    ticket = issue_ticket("token", "farm", until=1e9, id="b")
    token, shown = ((None, None), ("token", None), (None, ticket))[drive.seed % 3]
    return make_secret("farm", token, shown, lambda: drive.now + AHEAD)


def proof_of(drive: Drive, hello: Greeting, challenge: Challenge | None) -> Proof | Challenge | None:
    """Return the proof of a node that has dialed, mostly a right one, or a frame out of turn; None without either."""
    rng = drive.rng
    if challenge is None:
        out_of_turn = (Challenge("c", 1, bytes(16), b""), Proof(bytes(16), None, b""))
        return rng.choice(out_of_turn) if rng.random() < 0.1 else None
    ticket = issue_ticket("token", "farm", until=drive.now + AHEAD + 1.0, id=rng.choice((hello.id, "", "x")))
    token, ticket_shown = rng.choice((("token", None), ("token", None), (None, ticket)))
    secret = make_secret("farm", token, ticket_shown, lambda: 0.0)
    assert secret is not None
    if rng.random() < 0.1 or (key := secret.key(challenge.shown)) is None:
        return Proof(bytes(16), None, b"")
    whole = ["farm", hello.id, hello.epoch, bytes(16), secret.shown, hello.voter]
    whole += [challenge.id, challenge.epoch, challenge.nonce, challenge.shown]
    return Proof(bytes(16), secret.shown, prove(key, rng.choice(("dialer", "dialer", "acceptor")), *whole))


def greetings(drive: Drive) -> None:
    """Drive the links of a voter, or of another node, with few links and quick times."""
    rng = drive.rng
    drive.remembers = False
    others = VOTERS if drive.seed % 3 else {}
    failures = (ValueError("bad"), KeyError("x"), OSError("away"), AccessDenied("not you"), AccessDenied(""))
    verdicts = (True, True, True, 0, None, float("nan"), "text", b"", 10**400, 7, drive.now + AHEAD + 1.0)

    def decide(applicant: Applicant) -> float | bool | None:
        drive.note(applicant)
        if rng.random() < 0.2:
            raise rng.choice(failures)
        if rng.random() < 0.05:
            return admit()  # type: ignore[return-value]
        return rng.choice((*verdicts, *(drive.now + AHEAD + wait for wait in (0.0, 0.25, 0.5))))  # type: ignore[return-value]

    small = QUICK | ({"MOST_LINKS": 3, "MOST_FAILURES": 2} if drive.seed % 2 else {})
    with limits(cluster__node__greetings=small):
        made = Greetings(
            Greeting("farm", "b", 2, False), {name: at for name, at in others.items() if name != "b"}, decide,
            secret=secret_of(drive), entropy=Random(drive.seed).randbytes,
            rng=Random(drive.seed), now=drive.now, wall=lambda now: now + AHEAD,
        )  # fmt: skip
        said: dict[int, Greeting] = {}
        challenges: dict[int, Challenge] = {}
        dials: list[str] = []
        up: list[int] = []
        for step in range(600):
            now, chance = drive.go_on(made.wake_at), rng.random()
            link = rng.choice(up) if up else 0
            if chance < 0.2 or (now >= made.wake_at and chance < 0.5):
                drive.note([each.link for each in drive.call(made.tick, now)])
            elif chance < 0.6:
                address = (
                    dials.pop(0) if dials and rng.random() < 0.8 else rng.choice((None, None, "mem://c", "mem://e"))
                )
                if address is not None and rng.random() < 0.2:
                    drive.call(made.dial_failed, address, now)
                else:
                    up.append(step)
                    drive.call(made.link_up, step, f"there:{step}", address, now)
            elif chance < 0.9 and link:
                there = made.opened(link)
                if there is not None:
                    there.heard = now
                elif made.knows(link):
                    other, epoch = rng.choice("abccddx"), rng.choice((1, 1, 2))
                    greeting = Greeting("farm" if rng.random() < 0.9 else "barn", other, epoch, rng.random() < 0.6)
                    said.setdefault(link, greeting)
                    first = proof_of(drive, said[link], challenges.pop(link, None)) or greeting
                    frame = greeting_frame(first if rng.random() < 0.9 else Refusal("no"))
                    row = parse_local(frame, limit=1000) if rng.random() < 0.95 else [15, 1, "farm"]
                    drive.call(made.greet, link, row, now)
                    if made.opened(link) is None:
                        drive.call(made.end, link, now)
            elif link:
                up.remove(link)
                drive.call(made.link_down, link, now)
            effects = made.take()
            drive.note(effects)
            dials += effects.dials
            for to, sent in effects.sends:
                answer = parse_greeting(parse_local(sent, limit=1000), None) if sent != HEARTBEAT_FRAME else None
                if isinstance(answer, Challenge):
                    challenges[to] = answer
            drive.note(made.wake_at, [(made.peer(each), made.knows(each), made.opened(each)) for each in up])
            drive.note([made.voter_link(name) for name in VOTERS])
            up = [each for each in up if made.knows(each) or rng.random() < 0.3]
            drive.step()


def letters(drive: Drive) -> None:
    """Drive the letters of a node with two receivers and two senders at a time."""
    rng = drive.rng
    made = Letters(2, LetterLimits(waiting=2, again=0.25, patience=1.0, receivers=2, senders=2))
    drive.texts = {"*": ("n",), "epoch": (2, 2, 2, 1), "number": (1, 1, 2, 2, 3, 4, 5), "base": (1, 1, 2, 3)}
    for _ in range(700):
        now, chance = drive.go_on(made.wake_at), rng.random()
        name = rng.choice("cde")
        if chance < 0.25:
            drive.call(made.tick, now)
        elif chance < 0.5:
            drive.call(made.send, name, "n", b"l", now)
        elif chance < 0.52:
            drive.call(made.own)
        elif chance < 0.6:
            drive.call(made.attached, now)
        else:
            row = of_letters.KINDS.pack(drive.message(of_letters.Envelope, of_letters.Acknowledgement))
            drive.call(made.receive, name, rng.choice((5, 5, 6)), row, now)
        drive.note(made.take(), made.wake_at, made.given_up)
        drive.note([(made.room(each), made.unacknowledged(each)) for each in "cde"])
        drive.step()


def lines(drive: Drive) -> None:
    """Drive the lines of a log about few things, of which it remembers three."""
    made = LogLines()
    with limits(log_lines={"AGAIN": 1, "MOST": 3}):
        for _ in range(400):
            line = f"{drive.rng.choice('abcdef')} at mem://x:{drive.rng.randint(1, 3)}"
            drive.call(made.add, line, drive.go_on(drive.now + 1.0))
            drive.step()


def voting(drive: Drive) -> None:
    """Drive three voters, or one, whose messages come late or never, with few jobs and small snapshots."""
    rng = drive.rng
    drive.remembers = False
    ids = "abc" if drive.seed % 3 else "a"
    voters = {name: VOTERS[name] for name in ids}
    works, parts = {}, {}
    rows: list[tuple[str, str, list[object]]] = []
    tokens = dict.fromkeys(ids, 0)
    running: list[tuple[str, JobStart]] = []
    small = partial(ElectionLimits, log_bytes=900, keep_bytes=50)
    with limits(cluster__node__voting={"LOG_BYTES": 300}, cluster__election__values={"ElectionLimits": small}):
        for name in ids:
            config = NodeConfig(
                cluster="c", id=name, voters=voters, durable=drive.seed % 2 == 0, lease=0.5, preference=int(name == "a")
            )
            works[name] = WorkPart(
                name, 1, kinds=frozenset({"k"}), slots=2, decide=evenly, rng=Random(ord(name)),
                wall=lambda now: now + AHEAD,
            )  # fmt: skip
            parts[name] = VotingPart(
                config, works[name], epoch=5000, now=drive.now, rng=Random(ord(name)), restored=None
            )
        for name in ids:
            for other in ids.replace(name, ""):
                parts[name].peer_up(other, drive.now)
        for _ in range(300):
            drive.now += rng.choice((0.0, 1 / 64) if rows else (1 / 64, 1 / 16))
            now, chance = drive.now, rng.random()
            name = rng.choice(ids)
            work, part = works[name], parts[name]
            if chance < 0.25:
                drive.call(part.tick, now)
                work.tick(now)
            elif chance < 0.7 and rows:
                for _ in range(rng.choice((1, 4, 8))):
                    if rows:
                        sender, to, row = rows.pop(0)
                        if rng.random() < 0.98:
                            drive.call(parts[to].receive, sender, row, now)
            elif chance < 0.8:
                drive.call(work.submitter.submit, "k", b"job" * rng.choice((1, 9)), now)
            elif chance < 0.807:
                drive.call(part.voter.step_down, now)
            elif chance < 0.815:
                drive.call(part.voter.peer_down, rng.choice(ids), now)
            elif chance < 0.85:
                drive.call(part.peer_up, rng.choice(ids), now)
            elif chance < 0.88:
                drive.call(work.attached, part.voter.term, now)
            elif chance < 0.883:
                drive.call(part.receive, rng.choice(ids), [rng.randint(0, 20), 1], now)
            elif running:
                worker, start = running.pop(0)
                drive.call(works[worker].crew.done, start.job, b"result", now)
            for name, part in parts.items():
                work = works[name]
                if rng.random() < 0.9:
                    part.persisted(tokens[name], now)
                if work.host is not None:
                    work.host.granting = part.holds_lease(now)
                effects = part.take(now)
                drive.note(name, effects.sends, effects.changes, effects.events, effects.warnings)
                rows += [(name, to, row) for to, row in effects.sends]
                for store in effects.events:
                    tokens[name] = max([tokens[name], *(step.token for step in getattr(store, "steps", ()))])
                made = work.take(now)
                drive.note(made.nodes, made.events)
                running += [(name, event) for event in made.events if isinstance(event, JobStart)]
                if made.entries:
                    drive.call(part.propose, made.entries, now)
                for to, row in made.nodes:
                    for each in [each for each in ids if each == to or (not to and works[each].host is not None)]:
                        drive.call(works[each].from_node, name, row, now)
            drive.note(part.waits_for(), part.holds_lease(now), part.table.bytes, part.table.clock, work.wake_at)
            drive.note(sorted(work.counters().items()), list(work.counts()), part.voter.load)
            drive.step()


DRIVES: Final = {"greetings": (greetings, 6), "letters": (letters, 3), "lines": (lines, 2), "voting": (voting, 4)}


@pytest.mark.parametrize("name", names(DRIVES))
def test_a_part_of_a_node_does_what_was_recorded(name: str) -> None:
    assert driven(DRIVES, name) == recorded(name)
