"""`nngkit cat` and its shorthands (`nngkit pub URL` ...): nngcat and nanocat in one, corrected and extended.

::

    tail -f log | nngkit push tcp://host:5555 --wait-peers 1       a message for each line, none lost
    nngkit sub tcp://host:5556 --subscribe weather. --json         a JSON object for each message
    nngkit rep --listen tcp://127.0.0.1:5557 --exec 'tr a-z A-Z'   a command replies

This file makes a Plan of all arguments; arguments.py parses them one by one. An error is one line that names the
option, and nothing is sent then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from nngkit.cli.cat.command_line.arguments import (
    NAMES,
    Use,
    content,
    mode,
    pattern,
    port,
    raw_bytes,
    scan,
    seconds,
    size,
    url,
    whole,
)
from nngkit.cli.cat.command_line.option_table import FORMATS
from nngkit.cli.cat.command_line.plan import MIB, Address, Numbered, Plan, Received, Shown
from nngkit.cli.cat.lazy_bricks import load_bricks
from nngkit.cli.commands import SHORTHANDS
from nngkit.cli.ports import any_port
from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.cli.cat.splitting import Splitter
    from nngkit.cli.probe import Credentials
    from nngkit.protocols import TLS, Pattern

OUTPUTS: Final = (*FORMATS, "json", "format_string")
UNBLOCKED: Final = ("pub", "bus", "surveyor")  # send without waiting for a peer: messages before the first one are lost
FIRST_PEER: Final = 5.0  # seconds that one of these that dials waits for its first peer
SPLITS: Final = ("lines", "nul", "delimiter", "records")  # ways to split input into messages
TEXTUAL: Final = ("line", "ascii", "quoted", "hex", "format_string")  # formats that --timestamp can precede
PIECE: Final = 1 << 16  # bytes read at once: the capacity of a pipe


class Given:
    """All options given, by key, and the values that follow from them together."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.uses: dict[str, Use] = {}
        self.addresses: list[Address] = []
        self.topics: list[bytes] = []
        self.patterns: list[Pattern] = []
        self.data: list[bytes] = []
        self.protocol = SHORTHANDS.get(name, "")
        for each in scan(arguments):
            if isinstance(each, str):
                self.addresses.append(Address("dial", url(Use(NAMES["--dial"], "URL", each))))
            else:
                self._take(each)
        if not self.protocol:
            raise ConfigError("protocol", "none given: --push, --pull, --pub, --sub, --req, --rep and so on")
        if not self.addresses:
            raise ConfigError("address", "none given: --listen URL, or a URL to connect to")
        for use in self.uses.values():
            if use.option.fits and self.protocol not in use.option.fits.split():
                use.fail(f"does not apply to {self.protocol}")
        if len(self.data) > 1 and self.protocol in ("rep", "respondent"):
            self.uses["data"].fail("is given twice, and a request has one reply")

    def _take(self, use: Use) -> None:
        key = use.option.key
        match key:
            case "help":
                raise Shown("help", 0)
            case "version":
                raise Shown("version", 0)
            case _ if use.option.group == "protocol":
                protocol = "pair1" if key == "pair" else key
                if self.protocol:
                    use.fail(f"the protocol is {self.protocol} already")
                self.protocol = protocol
            case "listen" | "dial" as what:
                self.addresses.append(Address(what, url(use)))
            case "listen_ipc" | "dial_ipc":
                self.addresses.append(Address("listen" if key == "listen_ipc" else "dial", f"ipc://{use.value}"))
            case "listen_port" | "dial_port":
                self.addresses.append(Address("listen" if key == "listen_port" else "dial", port(use)))
            case "subscribe":
                self.topics.append(raw_bytes(use))
                self.uses[key] = use
            case "pattern":
                self.patterns.append(pattern(use))
                self.uses[key] = use
            case "data":
                self._once(use)
                self.data.append(raw_bytes(use))
            case _:
                self._once(use)

    def _once(self, use: Use) -> None:
        for rivals in (OUTPUTS, ("data", "file", "exec"), SPLITS):
            for rival in rivals:
                if (
                    use.option.key in rivals
                    and rival != use.option.key
                    and rival in self.uses
                    and not self._agree(use, rival)
                ):
                    use.fail(f"conflicts with {self.uses[rival].typed}")
        if use.option.takes and not use.option.repeats and use.option.key in self.uses:
            use.fail("is given twice")
        self.uses[use.option.key] = use

    @staticmethod
    def _agree(use: Use, rival: str) -> bool:
        return {use.option.key, rival} == {"lines", "delimiter"}

    def seconds(self, key: str) -> float | None:
        """Return a time in seconds, None if not given."""
        return seconds(self.uses[key]) if key in self.uses else None

    def number(self, key: str) -> int:
        """Return a number, 0 if not given."""
        return whole(self.uses[key]) if key in self.uses else 0

    @property
    def delimiter(self) -> bytes:
        """Return the delimiter of messages, in the input and in the output."""
        if "nul" in self.uses:
            return b"\0"
        if (use := self.uses.get("delimiter")) is None:
            return b"\n"
        from nngkit.cli.cat.rendering import unescape

        try:
            found = unescape(use.value)
        except ValueError as error:
            use.fail(str(error))
        if not found:
            use.fail("is empty")
        return found

    def show(self) -> tuple[Callable[[Received], bytes], bool]:
        """Return the formatter of messages, and True if it needs the sender's address."""
        shape = next((key for key in OUTPUTS if key in self.uses), "line")
        topics, end, peers = tuple(self.topics) or (b"",), self.delimiter, False
        if (named := self.uses.get("format")) is not None:
            if named.value not in FORMATS:
                named.fail(f"{named.value!r} is not one of {', '.join(FORMATS)}")
            shape = named.value
        if shape == "line" and "timestamp" not in self.uses:
            return lambda received: received.body + end, False
        from nngkit.cli.cat import rendering  # json, base64 and re: 4 ms

        show: Callable[[Received], bytes]
        if shape == "line":
            show = lambda received: received.body + end  # noqa: E731 - one of several
        elif shape == "json":
            protocol = self.protocol
            show, peers = lambda received: rendering.envelope(received, protocol, topics), True
        elif shape == "format_string":
            use = self.uses["format_string"]
            try:
                parts = rendering.parse_template(use.value)
            except ValueError as error:
                use.fail(str(error))
            show = rendering.template(parts, topics)
            peers = any(isinstance(part, rendering.Token) and part.name == "peer" for part in parts)
        else:
            form = rendering.CAT_FORMATS[shape]
            show = lambda received: form(received.body)  # noqa: E731
        if (stamped := self.uses.get("timestamp")) is not None:
            if shape not in TEXTUAL:
                stamped.fail(f"conflicts with --{shape.replace('_', '-')}")
            bare = show
            show = lambda received: f"{rendering.utc(received.at)} ".encode() + bare(received)  # noqa: E731
        return show, peers

    def stream(self) -> Callable[[], Iterator[list[bytes]]] | None:
        """Return the input to send as it arrives; None if fixed messages are sent, or none."""
        uses, protocol = self.uses, self.protocol
        fills = [uses[key] for key in SPLITS if key in uses]
        sends = protocol in ("push", "pub", "req", "surveyor", "bus", "pair0", "pair1")
        implied = protocol in ("push", "pub", "req", "surveyor") and not {"data", "file"} & uses.keys()
        if not sends or not (fills or implied):
            return None
        if "data" in uses and any(use.option.key in ("lines", "records") for use in fills):
            fills[0].fail(f"conflicts with {uses['data'].typed}")
        if "data" in uses:
            return None  # --delimiter and -0 then apply to the output
        if "file" in uses and not fills:
            return None
        file = uses.get("file")
        descriptor = 0
        if file is not None and file.value != "-":
            try:
                descriptor = os.open(file.value, os.O_RDONLY)
            except OSError as error:
                file.fail(f"{file.value}: {error.strerror}")
        from nngkit.cli.cat.splitting import Delimited, Records

        splitter = Records() if "records" in uses else Delimited(self.delimiter)
        return lambda: pieces(descriptor, splitter, file.value if file is not None else "standard input")

    def tls(self) -> TLS | None:
        """Return the TLS setting; None if no address needs it."""
        keys = ("cacert", "cert", "key", "insecure", "tls_name", "tls12")
        given = [self.uses[each] for each in keys if each in self.uses]
        named = ("" if given else os.environ.get("NNGKIT_TRUST")) or "open"
        if (trust := self.uses.get("trust")) is not None:
            from nngkit.trust import choice

            named = trust.value
            choice.use(choice.read(named, trust.typed))
            if named != "open":
                if given:
                    given[0].fail("is given by the pass of --trust")
                given = [trust]
        if not any(address.startswith(("tls", "wss")) for _, address in self.addresses):
            if given:
                given[0].fail("is for tls+tcp:// and wss:// addresses; there is none")
            return None
        if named != "open":  # a pass, in place of certificates
            return None
        from nngkit.cli.pem import File, check

        load_bricks()
        from nngkit.protocols import TLS

        ca, cert, key = (self.uses.get(each) for each in keys[:3])
        if key is not None and cert is None:
            key.fail("needs --cert")
        key = key or cert  # the file may hold both
        # standard input can be read only once
        check(*(None if use is None or use.value == "-" else File(use.typed, use.value) for use in (ca, cert, key)))
        name = self.uses.get("tls_name")
        read = {use.value: content(use) for use in (ca, cert, key) if use is not None}
        return TLS(
            ca=None if ca is None else read[ca.value],
            cert=None if cert is None else read[cert.value],
            key=None if key is None else read[key.value],
            server_name=None if name is None else name.value,
            verify="insecure" not in self.uses,
            tls12="tls12" in self.uses,
        )

    def credentials(self) -> Credentials | None:
        """Return the TLS credentials for a probe; None if they were read from standard input."""
        from nngkit.cli.probe import Credentials

        ca, cert, key, name = (
            use.value if (use := self.uses.get(each)) is not None else None
            for each in ("cacert", "cert", "key", "tls_name")
        )
        if "-" in (ca, cert, key):
            return None
        return Credentials(ca, cert, key, name, "insecure" in self.uses)


def pieces(descriptor: int, splitter: Splitter, where: str) -> Iterator[list[bytes]]:
    """Yield the messages of an input as they arrive: a line is sent as soon as it is complete."""
    from nngkit.cli.cat.splitting import Malformed

    try:
        while piece := os.read(descriptor, PIECE):
            if messages := splitter.feed(piece):
                yield messages
        if messages := splitter.finish():
            yield messages
    except (Malformed, OSError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(where, why) from error


def plan_of(given: Given, say: Callable[[str], None]) -> Plan:
    """Return the plan that the options make. Raises ConfigError, whose `what` is the option."""
    uses = given.uses
    stream = given.stream()
    show, shows_peers = given.show()
    data = tuple(given.data)
    if "file" in uses and stream is None:
        data = (content(uses["file"]),)
    answer: Callable[[Received], bytes | None] | None = (lambda _: data[0]) if data else None
    if (run := uses.get("exec")) is not None:
        from nngkit.cli.cat.exec_command import answer_by

        answer, shows_peers = answer_by(run.value, given.protocol, say), True
    if "interval" in uses and not data and stream is None:
        uses["interval"].fail("there is nothing to send: give --data, --file or --lines")
    recv_timeout = given.seconds("recv_timeout")

    def on_address(what: str, given: str, address: str) -> None:
        if "verbose" in uses or (what == "listen" and any_port(given)):
            say(f"listens at {address}" if what == "listen" else f"dials {address}")

    listens_locally = any(one.what == "listen" and one.url.startswith(("ipc:", "unix:")) for one in given.addresses)
    if "ipc_mode" in uses and not listens_locally:
        uses["ipc_mode"].fail("needs an ipc:// address to listen at")
    label = uses["name"].value if "name" in uses else None
    wait_peers, wait_timeout = given.number("wait_peers"), given.seconds("wait_timeout")
    dials = any(each.what == "dial" for each in given.addresses)
    if not wait_peers and dials and given.protocol in UNBLOCKED and (data or stream is not None):
        wait_peers, wait_timeout = 1, FIRST_PEER if wait_timeout is None else wait_timeout
    return Plan(
        protocol=given.protocol,
        addresses=tuple(given.addresses),
        show=show,
        shows_peers=shows_peers,
        topics=tuple(given.topics) or (() if given.patterns else (b"",)),
        patterns=tuple(given.patterns),
        data=data,
        stream=stream,
        answer=answer,
        count=given.number("count"),
        expect=given.number("expect"),
        delay=given.seconds("delay"),
        interval=given.seconds("interval"),
        recv_timeout=recv_timeout,
        send_timeout=given.seconds("send_timeout"),
        survey_time=1.0 if recv_timeout is None else recv_timeout,
        recv_max_size=size(uses["recv_max_size"]) if "recv_max_size" in uses else MIB,
        ipc_mode=mode(uses["ipc_mode"]) if "ipc_mode" in uses else None,
        name=label,
        tls=given.tls(),
        request_waits="send_timeout" in uses,
        wait_peers=wait_peers,
        wait_timeout=wait_timeout,
        numbered=_numbered(given),
        on_address=None if "silent" in uses else on_address,
    )


def _numbered(given: Given) -> Numbered | None:
    """Return how to receive from a Publisher; None if the options do not say that there is one."""
    uses = [given.uses[key] for key in ("lag", "last", "snail") if key in given.uses]
    if not uses:
        return None
    if any(each.what == "listen" for each in given.addresses):
        uses[0].fail("needs addresses of publishers to connect to, and does not listen")
    if "wait_peers" in given.uses:
        given.uses["wait_peers"].fail(f"conflicts with {uses[0].typed}")
    return Numbered("lag" in given.uses, "last" in given.uses, given.number("snail"))


def command(name: str, arguments: Sequence[str]) -> int:
    """Run `nngkit cat ...` or a shorthand; return the exit code."""
    from nngkit.cli.streams.stderr import say

    where = f"nngkit {name}"

    def report(text: str) -> None:
        say(where, text)

    try:
        given = Given(name, arguments)
    except Shown as shown:
        from nngkit import __version__
        from nngkit.cli.cat.command_line.help_text import cat_help

        print(cat_help(name) if shown.text == "help" else f"nngkit {__version__}")
        return 0
    plan = plan_of(given, report)
    load_bricks()
    if plan.numbered is not None:
        from nngkit.cli.cat.numbered import run as follow
        from nngkit.cli.cat.running import output

        return follow(plan, plan.numbered, report, output(), stats="stats" in given.uses)
    from nngkit.cli.cat.reporting import run

    return run(
        plan,
        report,
        stats=given.uses.get("stats") is not None,
        as_json="json" in given.uses,
        credentials=given.credentials,
    )
