"""CPU of the host for an empty job: decoding, proposing, applying, granting, results, telling, with all encoding.

    python -m tests.cluster.work_cost 100000 250       # jobs, jobs in one message; --profile for the functions

One submitter and four workers' crews are children of the host; their own CPU is not counted, and links take no time.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
from random import Random
from time import process_time

from nngkit.cluster.jobs.crew import Crew
from nngkit.cluster.jobs.messages import Message, pack, parse
from nngkit.cluster.jobs.queue import LOCAL, WorkHost
from nngkit.cluster.jobs.submitter import SubmitLimits, Submitter
from nngkit.cluster.jobs.table import JobTable
from nngkit.envelope import decode, encode

MOST = 4 * 1024 * 1024


def cost(jobs: int, batch: int, *, workers: int = 4, profile: cProfile.Profile | None = None) -> dict[str, float]:
    """Return microseconds of CPU for each job: of the host by step, and of the rest."""
    now = 0.0
    host = WorkHost("h", term=1, table=JobTable(), now=now, wall=1.7e9, rng=Random(1))
    host.granting = True
    root = Crew("h")
    root.attached(LOCAL, 1, now)
    crews = [Crew(f"w{number}", kinds={"work"}, slots=4) for number in range(workers)]
    for link, crew in enumerate(crews):
        root.child_up(link)
        crew.attached(9, 1, now)
    submitter = Submitter("ada", 1, SubmitLimits(jobs=10**9, batch=batch))
    submitter.attached(1, now)
    spent = {"host": 0.0, "others": 0.0}
    steps: dict[str, float] = {}
    ended = submitted = 0
    waiting: list[list[Message]] = [[] for _ in crews]

    def timed(step: str, start: float) -> None:
        seconds = process_time() - start
        spent["host"] += seconds
        steps[step] = steps.get(step, 0.0) + seconds

    def read(data: bytes, skip: int) -> Message:
        message = parse(decode(data, what="message", limit=MOST)[skip:], "peer")
        assert message is not None
        return message

    while ended < jobs:
        start = process_time()
        while submitted < jobs and submitter.unfinished < 4 * batch:
            submitter.submit("work", b"x" * 16, now)
            submitted += 1
        inbox = [encode([2, "", "ada", *pack(each)]) for each in submitter.take(now).sends]
        reports: list[tuple[int, bytes]] = []
        for link, crew in enumerate(crews):
            messages_up, waiting[link] = [*waiting[link], *crew.take().up], []
            reports += [(link, encode([2, *pack(message)])) for message in messages_up]
        spent["others"] += process_time() - start
        now += 0.001
        if profile is not None:
            profile.enable()
        start = process_time()
        messages = [read(data, 3) for data in inbox]
        timed("decode submissions", start)
        start = process_time()
        for message in messages:
            host.unicast("ada", message, now)
        timed("submit", start)
        start = process_time()
        below = [(link, read(data, 1)) for link, data in reports]
        timed("decode results", start)
        start = process_time()
        for link, report in below:
            root.from_child(link, report, now)
        for report in root.take().up:
            host.receive(LOCAL, report, now)
        timed("results", start)
        start = process_time()
        effects = host.take(now)
        timed("take and propose", start)
        start = process_time()
        host.committed(effects.entries, now)
        timed("commit", start)
        start = process_time()
        told = host.take(now)
        timed("take and grant", start)
        start = process_time()
        for _, message in (*effects.down, *told.down):
            root.from_parent(message, now)
        down = root.take()
        for report in down.up:
            host.receive(LOCAL, report, now)
        timed("pass down", start)
        start = process_time()
        grants = [(link, encode([2, *pack(message)])) for link, message in down.down]
        timed("encode grants", start)
        start = process_time()
        answers = [(to, encode([2, to, "h", *pack(message)])) for to, message in (*effects.unicasts, *told.unicasts)]
        timed("encode answers", start)
        if profile is not None:
            profile.disable()
        start = process_time()
        for link, data in grants:
            crews[link].from_parent(read(data, 1), now)
        for to, data in answers:
            message = read(data, 3)
            if to == "ada":
                submitter.receive(message, now)
            else:
                crews[int(to[1:])].from_host(message)
        for link, crew in enumerate(crews):
            done = crew.take()
            waiting[link] += done.up
            for job in done.start:
                crew.done(job, b"", now)
                done.start += crew._effects.start
                crew._effects.start = []
        ended = submitted - submitter.unfinished
        spent["others"] += process_time() - start
    return {**{step: seconds / jobs * 1e6 for step, seconds in {**steps, **spent}.items()}}


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 250
    profile = cProfile.Profile() if "--profile" in sys.argv else None
    for step, micros in cost(jobs, batch, profile=profile).items():
        sys.stdout.write(f"{step:20} {micros:7.2f} us\n")
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
