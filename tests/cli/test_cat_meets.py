"""`nngkit cat` as the peer of nngcat and nanocat: six protocols, tcp and ipc, either side listening or sending."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.cli.processes import Running
from tests.protocols.programs import INTERVAL, Program, needed, place

PATTERNS = {  # nngkit's shorthands for the repeated sender of `said` and the receiver, and the names in the programs
    "pipeline": ("push", "pull", "--push", "--pull"),
    "pubsub": ("pub", "sub", "--pub", "--sub"),
    "reqrep": ("req", "rep", "--req", "--rep"),
    "survey": ("survey", "respond", "--surveyor", "--respondent"),
    "bus": ("bus", "bus", "--bus", "--bus"),
    "pair": ("pair", "pair", "--pair1", "--pair1"),
}


def marks(name: str, *way: str) -> list[pytest.MarkDecorator]:
    """Yield one combination for each protocol; nngcat repeats in whole seconds, so each takes one or two."""
    return [needed(name)] if way == ("ipc", "it", "hear") else [needed(name), pytest.mark.slow]


CASES = [
    pytest.param(name, pattern, transport, who_listens, we, marks=marks(name, transport, who_listens, we))
    for name in INTERVAL
    for pattern in PATTERNS
    for transport in ("tcp", "ipc")
    for who_listens in ("we", "it")
    for we in ("speak", "hear")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "pattern", "transport", "who_listens", "we"), CASES)
def test_cat_exchanges_messages_with_the_original(
    name: str, pattern: str, transport: str, who_listens: str, we: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    speaks, hears, it_speaks, it_hears = PATTERNS[pattern]
    ours = [speaks if we == "speak" else hears]
    its = [it_hears if we == "speak" else it_speaks]
    if pattern == "pair" and name == "nanocat":
        ours, its = ["cat", "--pair0"], ["--pair"]
    answers = pattern in ("reqrep", "survey")
    saying, hearing = ["--data", "said", "--interval"], ["--data", "answered"] if answers else []
    ours += [*saying, "200ms"] if we == "speak" else hearing
    # nngcat ends if it waits for replies beyond its interval: a request waits for a peer, and a busy machine may
    # delay it for a second
    interval = {"reqrep": "30", "survey": "3"}.get(pattern, INTERVAL[name])
    its += [*saying, interval] if we == "hear" else hearing
    if we == "speak" or pattern not in ("pipeline", "pubsub"):  # nngcat has no format for senders
        its.append("--quoted")
    with ExitStack() as stack:
        there = stack.enter_context(place(transport, tmp_path_factory.mktemp("s")))
        patient = ["--async"] if name == "nngcat" else []  # it gives up at once without a listener
        if who_listens == "we":
            we_run = stack.enter_context(Running(*ours, "--listen", there))
            it = stack.enter_context(Program(name, *its, *patient, "--connect", there))
        else:
            it = stack.enter_context(Program(name, *its, "--bind", there))
            we_run = stack.enter_context(Running(*ours, there))
        if we == "speak":
            assert it.line() == '"said"'
            assert not answers or we_run.line() == "answered"
        else:
            assert we_run.line() == "said"
            assert not answers or it.line() == '"answered"'
