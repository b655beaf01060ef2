"""Measurements of trust: requests by a pass beside plain ones, and decisions of a policy."""

from __future__ import annotations

import itertools
import time
from typing import Any

from _child import Meter, cpu_of, others, peak, quantile, report
from _numbered import sequence, wrong
from nngkit.protocols import Rep, Req
from nngkit.trust import Policy, Trust

TURN = 100  # requests before those of the other way
LEAST = 4000  # requests of a way, so that p99 has 40 samples above it


def reply_to_both(task: dict[str, Any]) -> None:
    """Reply to requests by a pass, and at another address to plain ones."""
    with Rep(listen=[task["url"], "tcp://127.0.0.1:0"], trust=Trust(task["passes"][0])) as rep:
        report(url=rep.addresses[0], plain=rep.addresses[1])
        for request in rep:
            request.reply(request.body)


def ask_both(task: dict[str, Any]) -> None:
    """Ask by a pass and plainly, in turns, so that both have the same machine: ``more_us``, the median of the turns'
    differences at p50.
    """
    clock, questions = time.perf_counter, itertools.cycle(sequence(task["size"]))
    with Req(dial=task["url"], trust=Trust(task["passes"][1])) as by_pass, Req(dial=task["plain"]) as plain:
        times: dict[Req, list[float]] = {by_pass: [], plain: []}
        more: list[float] = []
        end = 0.0
        while True:
            middles = []
            for req, taken in times.items():
                turn = []
                for question in itertools.islice(questions, TURN):
                    start = clock()
                    answer = req.request(question)
                    turn.append(clock() - start)
                    if answer != question:
                        wrong(answer, question)
                taken += turn
                middles.append(quantile(turn, 0.5))
            if not end:  # the first turns are the warm-up
                end = clock() + task["seconds"]
                cpu, other, pids = time.process_time(), cpu_of(others(task)), others(task)
                for taken in times.values():
                    taken.clear()
                continue
            more.append(middles[0] - middles[1])
            if clock() > end and len(times[by_pass]) >= LEAST:
                break
        count = sum(map(len, times.values()))
        mine, theirs = time.process_time() - cpu, cpu_of(pids) - other
        report(
            p50_us=quantile(times[by_pass], 0.5) * 1e6,
            p99_us=quantile(times[by_pass], 0.99) * 1e6,
            more_us=quantile(more, 0.5) * 1e6,
            cpu_us=mine / count * 1e6,
            other_us=theirs / count * 1e6,
            rss_mib=peak(),
        )


def decide(task: dict[str, Any]) -> None:
    """Decide as a service does for each call, by a policy of ``roles`` roles; of 1,000 names each has 16 methods."""
    roles = [
        f'[role.r{number}]\nnames = ["render.w{number}", "farm{number}.*"]\ncall = ["quotes{number}", "pay/m*"]\n'
        for number in range(task["roles"])
    ]
    policy = Policy.parse('realm = "farm"\nversion = 1\n' + "".join(roles))
    asked = [(f"render.w{number % task['roles']}", f"pay/m{number % 16}") for number in range(1000)]
    meter, may = Meter(task), policy.may
    while True:
        for name, target in asked:
            if not may(name, "call", target):
                wrong(b"", target.encode())
        if not meter.add(len(asked)):
            return
