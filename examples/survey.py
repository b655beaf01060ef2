"""SURVEYOR/RESPONDENT: one question to all, and every answer that comes before the deadline.

::

    python3 examples/survey.py

prints::

    lunch at noon? 3 of 4 answered in time
      ada: yes
      bob: no
      cleo: yes
    and at one? 4 of 4 answered, 4 yes, before the deadline: True

Dan takes longer than the first deadline, so his answer comes too late to count (``stats.late`` counts it). The second
survey says ``early=True``: it ends as soon as everybody who was asked has answered, long before its deadline. Who did
not answer is known too: each reply carries the connection that it came by.
"""

import trio

from nngkit.protocols import Respondent, Surveyor

NOON, ONE = b"lunch at noon?", b"and at one?"
VOTES = {"ada": b"yes", "bob": b"no", "cleo": b"yes", "dan": b"yes"}


async def respondent(name: str, address: str) -> None:
    async with Respondent(dial=address) as socket:
        async for query in socket:
            if query.body == NOON:
                if name == "dan":
                    await trio.sleep(0.6)  # longer than the deadline
                await query.areply(f"{name}: ".encode() + VOTES[name])
            else:
                await query.areply(b"yes")


async def main() -> None:
    async with Surveyor(listen="tcp://127.0.0.1:0") as surveyor, trio.open_nursery() as nursery:
        for name in VOTES:
            nursery.start_soon(respondent, name, surveyor.address)
        await surveyor.await_for_peers(len(VOTES), timeout=5)

        result = await surveyor.asurvey(NOON, timeout=0.4)
        print(f"{NOON.decode()} {result.answered} of {result.expected} answered in time")
        for vote in sorted(reply.body.decode() for reply in result.replies):
            print(" ", vote)

        result = await surveyor.asurvey(ONE, timeout=5, early=True)
        yes = sum(reply.body == b"yes" for reply in result.replies)
        print(
            f"{ONE.decode()} {result.answered} of {result.expected} answered, {yes} yes,"
            f" before the deadline: {result.elapsed < 5}"
        )
        nursery.cancel_scope.cancel()


trio.run(main)
