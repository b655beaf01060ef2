"""How a run of `nngkit cat` ends: what was dropped or missed is said, and the exit code is honest.

====  ===============================================================================================
code  when
====  ===============================================================================================
0     all that was asked for was done
1     less was received than --expect, or than requests were sent; a connection ended amid a message of push or pair
2     an option, an address, an input that is not what it was said to be
3     nothing could be listened at, or nobody was ever connected
4     a time ran out with nothing received, or before all was sent
====  ===============================================================================================
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from nngkit.cli.cat.conversation import Conversation
from nngkit.cli.cat.hints import hinting, hints
from nngkit.cli.cat.plan import Plan, Stopped
from nngkit.cli.cat.running import interruptible, output, say_exactly
from nngkit.cli.exit_codes import exit_code
from nngkit.cli.option_errors import named
from nngkit.errors import ConfigError, Unreachable

if TYPE_CHECKING:
    from nngkit.cli.probe import Credentials

__all__ = ["run", "stats_line"]


def run(
    plan: Plan,
    say: Callable[[str], None],
    *,
    stats: bool,
    as_json: bool,
    credentials: Callable[[], Credentials | None],
) -> int:
    """Do what the plan says; the exit code. `credentials`: for the hints, see there."""
    with interruptible() as interruption:
        conversation = Conversation(plan, output())
        dialled = [url for what, url in plan.endpoints if what == "dial"]
        look = partial(hints, conversation.socket, plan.protocol, dialled, plan.topics, credentials)
        try:
            try:
                with nullcontext() if plan.said is None else hinting(look, say):
                    conversation.run()
                code = _shortfall(conversation, say) or _broken(conversation)
            except Stopped as stopped:
                if stopped.stage == "recv":  # the wait for another request: an end like any other
                    return _shortfall(conversation, say)
                error = stopped.error
                say(str(named(error, stopped.stage) if isinstance(error, ConfigError) else error))
                code = _code(stopped, conversation)
            except KeyboardInterrupt:
                code = interruption.code
        finally:
            _losses(conversation, say)
            if stats:
                if as_json:
                    say_exactly(stats_line(conversation, as_json) + "\n")
                else:
                    say(stats_line(conversation, as_json))
        return code


def _code(stopped: Stopped, conversation: Conversation) -> int:
    if stopped.stage in ("listen", "dial"):
        return exit_code(stopped.error)
    return 3 if stopped.stage == "wait" or not conversation.ever_connected else exit_code(stopped.error)


def _shortfall(conversation: Conversation, say: Callable[[str], None]) -> int:
    """What was to be received and was not."""
    plan, received = conversation.plan, conversation.received
    if plan.protocol in ("pub", "bus") and conversation.sent and not conversation.ever_connected:
        return _nobody(plan, say)  # neither waits for a peer: all of it was lost
    asks = plan.protocol in ("req", "surveyor")
    wanted = plan.expect or (conversation.sent if plan.protocol == "req" else 1 if asks else 0)
    if not wanted and plan.recv_timeout is not None and plan.protocol not in ("push", "pub"):
        wanted = 1  # it has waited for a message until the time ran out
    if received >= wanted:
        return 0
    if not conversation.ever_connected:
        return _nobody(plan, say)
    say(f"{received} of {wanted} {'answers' if asks else 'messages'} received")
    return 1 if received else 4


def _nobody(plan: Plan, say: Callable[[str], None]) -> int:
    """Say that no peer was ever connected; the exit code."""
    say(str(Unreachable(" ".join(url for _, url in plan.endpoints), "nobody was connected")))
    return 3


def _broken(conversation: Conversation) -> int:
    """Return 1 if a message was lost with its connection under a protocol that promises more than best effort."""
    return 1 if conversation.stats.broken and conversation.plan.protocol in ("push", "pair0", "pair1") else 0


def _losses(conversation: Conversation, say: Callable[[str], None]) -> None:
    """Report messages that were dropped on either side, and those whose arrival is unknown."""
    stats, protocol = conversation.stats, conversation.plan.protocol
    # a bus drops on both ways, and all that comes by one is either received or dropped
    unseen = {"sub": stats.dropped, "bus": stats.read - stats.received}.get(protocol, 0)
    if dropped := stats.dropped - unseen:
        slow = "who receives them was too slow, or left" if protocol in ("pub", "bus") else "nobody took them"
        say(f"{dropped} messages were dropped: {slow}")
    if unseen:
        say(f"{unseen} messages that came were dropped: this side was too slow")
    if stats.broken:
        say(f"{stats.broken} messages were being sent when their connection ended: nobody knows whether they arrived")
    if stats.too_large:
        say(f"{stats.too_large} messages were too large")


def stats_line(conversation: Conversation, as_json: bool) -> str:
    """The counters: messages printed and handed over by the command, then the socket's (docs/protocols.md)."""
    counters = {"printed": conversation.received, **dataclasses.asdict(conversation.stats)}
    if as_json:
        return json.dumps(counters)
    return ", ".join(f"{name} {count}" for name, count in counters.items())
