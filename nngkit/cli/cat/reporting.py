"""The end of `nngkit cat`: a report of lost and missing messages, and the exit code.

====  ===============================================================================================
code  when
====  ===============================================================================================
0     everything asked for was done
1     fewer messages than --expect, or replies than requests; a connection ended amid a message of push or pair
2     a wrong option or address, or malformed input
3     cannot listen, or no peer ever connected
4     timed out with nothing received, or before everything was sent
====  ===============================================================================================
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from nngkit.cli.cat.command_line.plan import Plan, Stopped
from nngkit.cli.cat.conversation import Conversation
from nngkit.cli.cat.hints import hinting, hints
from nngkit.cli.cat.running import interruptible, output, say_exactly
from nngkit.cli.exit_codes import exit_code
from nngkit.cli.option_errors import named
from nngkit.cli.refused import explained
from nngkit.errors import ConfigError, Unreachable

if TYPE_CHECKING:
    from nngkit.cli.probe import Credentials


def run(
    plan: Plan, say: Callable[[str], None], *, stats: bool, as_json: bool, credentials: Callable[[], Credentials | None]
) -> int:
    """Run the plan; return the exit code. `credentials` are for the probes of hints.py."""
    with interruptible() as interruption:
        conversation = Conversation(plan, output())
        dialed = [url for what, url in plan.addresses if what == "dial"]
        topics = (*plan.topics, *(each.text for each in plan.patterns))
        look = partial(hints, conversation.socket, plan.protocol, dialed, topics, credentials)
        try:
            try:
                with nullcontext() if plan.on_address is None else hinting(look, say):
                    conversation.run()
                code = _shortfall(conversation, say) or _broken(conversation)
            except Stopped as stopped:
                if stopped.stage == "recv":  # no further request: a normal end
                    return _shortfall(conversation, say)
                error = stopped.error
                say(explained(named(error, stopped.stage) if isinstance(error, ConfigError) else error))
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
    """Report missing messages; return the exit code."""
    plan, received = conversation.plan, conversation.received
    if plan.protocol in ("pub", "bus") and conversation.sent and not conversation.ever_connected:
        return _no_peer(plan, say)  # neither waits for a peer: everything was lost
    asks = plan.protocol in ("req", "surveyor")
    wanted = plan.expect or (conversation.sent if plan.protocol == "req" else 1 if asks else 0)
    if not wanted and plan.recv_timeout is not None and plan.protocol not in ("push", "pub"):
        wanted = 1  # it waited for a message until the timeout
    if received >= wanted:
        return 0
    if not conversation.ever_connected:
        return _no_peer(plan, say)
    say(f"{received} of {wanted} {'replies' if asks else 'messages'} received")
    return 1 if received else 4


def _no_peer(plan: Plan, say: Callable[[str], None]) -> int:
    """Report that no peer ever connected; return the exit code."""
    say(explained(Unreachable(" ".join(url for _, url in plan.addresses), "no peer connected")))
    return 3


def _broken(conversation: Conversation) -> int:
    """Return 1 if a message was lost with its connection under a protocol that promises more than best effort."""
    return 1 if conversation.stats.broken and conversation.plan.protocol in ("push", "pair0", "pair1") else 0


def _losses(conversation: Conversation, say: Callable[[str], None]) -> None:
    """Report messages that were dropped on either side, and those whose arrival is unknown."""
    stats, protocol = conversation.stats, conversation.plan.protocol
    # a bus drops in both directions; a message read is either received or dropped
    unseen = {"sub": stats.dropped, "bus": stats.read - stats.received}.get(protocol, 0)
    if dropped := stats.dropped - unseen:
        reason = "a receiver was too slow, or left" if protocol in ("pub", "bus") else "no peer took them"
        say(f"{dropped} messages were dropped: {reason}")
    if unseen:
        say(f"{unseen} received messages were dropped: this side was too slow")
    if stats.broken:
        say(f"{stats.broken} messages were being sent when their connection ended, and may not have arrived")
    if stats.too_large:
        say(f"{stats.too_large} messages were too large")


def stats_line(conversation: Conversation, as_json: bool) -> str:
    """Format the counters: messages printed by the command, then the socket's (docs/protocols.md)."""
    counters = {"printed": conversation.received, **dataclasses.asdict(conversation.stats)}
    if as_json:
        return json.dumps(counters)
    return ", ".join(f"{name} {count}" for name, count in counters.items())
