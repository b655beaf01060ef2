"""`nngkit ask QUESTION`: ask the services that the discovery daemons know, and print their answers.

::

    $ nngkit ask 'record 7' --name archive --first 1
    NAME     ADDRESS               RTT     ANSWER
    archive  tcp://127.0.0.1:9000  1.2 ms  here

Every daemon asks; a service that several of them ask is asked once. A daemon that does not reply is a line on stderr,
and an error only if none does. Providers that failed or did not answer in time are lines on stderr, too.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.streams.output import as_json, as_text, columns, json_line, out, provider_fields, wants_colour
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import add_tls, tls_or_variables
from nngkit.errors import BadMessage, ConfigError, NotFound, ServiceNotFound, TimedOut

if TYPE_CHECKING:  # --help loads no event loop
    from nngkit.discovery.client import DaemonClient
    from nngkit.discovery.provider import Provider
    from nngkit.discovery.questions.messages import AskQuery
    from nngkit.discovery.questions.values import Answer, AskResult, Outcome, Reserved, Until
    from nngkit.discovery.settings import ClientSettings
    from nngkit.protocols import TLS

NAME: Final = "nngkit ask"
EPILOG: Final = """\
Exit codes: 0 an answer arrived, 1 no such service or no answer, 2 usage, 3 no daemon found, 4 no answer in time."""
RESERVED: Final = ("ping", "info", "stats")
SHOWN: Final = 10  # addresses of missing providers that a line names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("question", nargs="?", metavar="QUESTION", help="text to ask; - reads standard input")
    parser.add_argument("--name", metavar="NAME", help="ask this service only (default: all)")
    until = parser.add_mutually_exclusive_group()
    options.add_whole(until, "--first", 1, 10**9, "end with the first N answers (default: wait for all)")
    options.add_whole(until, "--bids", 1, 10**9, "print the N answers with the lowest prices, the lowest first")
    options.add_seconds(parser, "--deadline", 1.0, "seconds to wait for answers, at most 60")
    for name, text in zip(RESERVED, ("which are alive", "for their records", "for their counters"), strict=True):
        parser.add_argument(f"--{name}", nargs="?", const="", metavar="NAME", help=f"ask all, or NAME, {text}")
    options.add(parser, "daemon", "timeout", "json")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask once and print the answers; return the exit code."""
    import trio

    from nngkit.cli.discovery.daemons import settings_of
    from nngkit.discovery.questions.messages import make_ask
    from nngkit.discovery.questions.values import Until

    question, name = _question(arguments)
    until = Until(arguments.deadline, arguments.first, arguments.bids)
    try:
        ask = make_ask(uuid.uuid4().hex, question, name, until)
    except ConfigError as error:
        raise ConfigError("NAME", error.why, name) from error
    settings = settings_of(arguments)
    tls = tls_or_variables(arguments, settings.certificates, "dial", *settings.daemons)
    result = trio.run(_ask, settings, ask, until, arguments.timeout, tls)
    _print(result, arguments)
    for failure in result.failed:
        say(NAME, f"{failure.provider.address}: {failure.message}")
    if result.missing:
        say(NAME, _missing(result))
    if result.answers:
        return 0
    if not result.expected:
        raise ServiceNotFound(name) if name else NotFound("no service is connected")
    if result.missing and not (result.declined or result.failed):
        raise TimedOut(f"no answer in {until.timeout:g} s", until.timeout)
    if not result.failed:
        say(NAME, f"no answer: {len(result.declined)} declined")
    return 1


def _question(arguments: argparse.Namespace) -> tuple[bytes | Reserved, str | None]:
    """Return the question and the name of the service. Raises ConfigError."""
    from nngkit.discovery.questions.values import Reserved

    asked = [name for name in RESERVED if getattr(arguments, name) is not None]
    if len(asked) + (arguments.question is not None) != 1:
        raise ConfigError("QUESTION", "give one of QUESTION, --ping, --info and --stats")
    if asked:
        name = getattr(arguments, asked[0]) or None
        if name and arguments.name:
            raise ConfigError("--name", f"the name is in --{asked[0]} already", arguments.name)
        return Reserved(asked[0]), name or arguments.name
    if arguments.question == "-":
        return sys.stdin.buffer.read(), arguments.name
    return arguments.question.encode("utf-8", "surrogateescape"), arguments.name


async def _ask(settings: ClientSettings, ask: AskQuery, until: Until, timeout: float, tls: TLS | None) -> AskResult:
    import trio

    from nngkit.cli.discovery.daemons import ask_and_say
    from nngkit.discovery.questions.round import OutcomeMerger
    from nngkit.discovery.questions.values import make_result

    async def one(client: DaemonClient) -> tuple[Outcome, ...]:
        return await client.outcomes(ask)

    started = trio.current_time()
    answers = await ask_and_say(NAME, settings, timeout, one, tls)
    merged = OutcomeMerger(ask.count)
    for outcomes in answers.values():
        merged.add(outcomes)
    return make_result(merged.outcomes(), until, trio.current_time() - started)


def _print(result: AskResult, arguments: argparse.Namespace) -> None:
    reserved = arguments.info is not None or arguments.stats is not None
    if arguments.json:
        for answer in result.answers:
            out(json_line(_fields(answer, reserved)))
        rest: list[tuple[str, Provider, str | None]] = [("declined", provider, None) for provider in result.declined]
        rest += [("failed", failure.provider, failure.message) for failure in result.failed]
        rest += [("missing", provider, None) for provider in result.missing]
        for outcome, provider, message in rest:
            out(json_line({**provider_fields(provider), "outcome": outcome, "message": message}))
    elif result.answers:
        priced = any(answer.bid is not None for answer in result.answers)
        head = ("NAME", "ADDRESS", "RTT", *(("PRICE",) if priced else ()), "ANSWER")
        rows = []
        for answer in result.answers:
            price = ("-" if answer.bid is None else f"{answer.bid:g}",) if priced else ()
            provider = answer.provider
            text = json.dumps(_values(answer), ensure_ascii=False) if reserved else _text(answer.body)
            rows.append((provider.name, provider.address, f"{answer.rtt * 1000:.1f} ms", *price, text))
        out(columns(head, rows, wants_colour(sys.stdout)))


def _fields(answer: Answer, reserved: bool) -> dict[str, Any]:
    """Return an answer as docs/schemas/ask.json has it."""
    fields = {**provider_fields(answer.provider), "outcome": "answered", "rtt": answer.rtt, "price": answer.bid}
    if reserved:
        return {**fields, "fields": _values(answer)}
    text, encoding = as_text(answer.body)
    return {**fields, "answer": text, "encoding": encoding}


def _values(answer: Answer) -> Any:
    """Return the map of an answer to INFO or STATS as JSON can have it; None if it is none."""
    try:
        return as_json(answer.fields)
    except BadMessage:
        return None


def _text(body: bytes) -> str:
    """Return an answer for people: its text, or hexadecimal digits if a terminal could not show it unchanged."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body.hex()
    return text if text.isprintable() else json.dumps(text)


def _missing(result: AskResult) -> str:
    addresses = [provider.address for provider in result.missing]
    more = f" and {len(addresses) - SHOWN} more" if len(addresses) > SHOWN else ""
    return f"no answer from {', '.join(addresses[:SHOWN])}{more}"
