"""`nngkit nngcat`: a stand-in for NNG's nngcat 1.5.2. Its options, its output, its error lines and its exit codes.

What differs is in docs/command.md: `--pair` works, `--recv-maxsz 0` is 1 GiB, and what was sent is written before it
ends. An argument that is no option ends the options, and what follows is ignored; so does the original.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from nngkit.cli.cat.formats import FORMATTERS
from nngkit.cli.cat.lazy_bricks import load_bricks
from nngkit.cli.cat.option_table import FORMATS, PROTOCOLS, ROWS, Row
from nngkit.cli.cat.plan import LARGEST, MIB, Endpoint, Plan, Shown, Stopped, Wrong
from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.protocols import TLS

__all__ = ["command", "plan_of", "scan", "stopped_text"]

ORIGINAL: Final = "1.5.2"  # the version it stands in for, and what --version prints
DAY: Final = 86400  # seconds, the most it takes
NAMES: Final = {name: row for row in ROWS for name in row.names("nngcat")}
TLS_FILES: Final = {"cacert": "CA Certificate", "cert": "Cert", "key": "Key"}
NO_FORMAT: Final = ("push", "pub")
NO_DATA: Final = ("pull", "sub")
NO_INTERVAL: Final = ("pull", "sub", "rep", "respondent")
REFUSED: Final = "certificate, key or ca refused: "  # what NNG says of them is the original's text
NEEDS_DATA: Final = ("push", "pub", "req", "surveyor")


def fail(text: str) -> NoReturn:
    """Wrong usage: one line, exit code 1."""
    raise Wrong(f"{text}\n", 1)


def scan(arguments: Sequence[str]) -> Iterator[tuple[Row, str]]:
    """The options in order, each with its value, "" for flags."""
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        given = rest.pop(0)
        row, value = _option(given)
        if row.takes and value is None:
            if not rest:
                fail(f"Option {given} requires argument.")
            value = rest.pop(0)
        yield row, value or ""


def _option(given: str) -> tuple[Row, str | None]:
    if not given.startswith("--"):
        row = NAMES.get(given[:2])
        if row is None or (given[2:] and not row.takes):
            fail(f"Option {given} is invalid.")
        return row, given[2:] or None
    end = min((given.index(each) for each in "=:" if each in given), default=len(given))
    found: dict[str, tuple[Row, str | None]] = {}
    for name, row in NAMES.items():
        if not name.startswith("--"):
            continue
        # only an option that takes a value has one cut off
        typed, value = (given[:end], given[end + 1 :] if end < len(given) else None) if row.takes else (given, None)
        if name == typed:
            return row, value
        if name.startswith(typed):
            found[row.key] = (row, value)
    if not found:
        fail(f"Option {given} is invalid.")
    if len(found) > 1:
        fail(f"Option {given} is ambiguous (specify in full).")
    return next(iter(found.values()))


def whole(text: str, most: int = 2**31 - 1) -> int:
    """A number as nngcat reads them: digits alone."""
    if not text:
        fail("Empty integer argument.")
    if not (text.isascii() and text.isdigit()):
        fail("Integer argument expected.")
    digits = text.lstrip("0")
    number = int(digits or "0") if len(digits) <= 10 else 2**31
    if number > most:
        fail("Integer argument overflow." if most == 2**31 - 1 else "Integer argument too large.")
    return number


def content(path: str) -> bytes:
    """The whole file; `-` is standard input."""
    try:
        file = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115 - standard input stays open
    except OSError as error:
        if error.strerror != "Is a directory":  # opens, for C
            fail(f"Cannot open file {path}: {error.strerror}")
        fail(f"Read from {path} failed: {error.strerror}")
    with file:
        try:
            return file.read()
        except OSError as error:
            fail(f"Read from {path} failed: {error.strerror}")


class _Given:
    """What the arguments have said so far, checked as they come."""

    def __init__(self) -> None:
        self.protocol = ""
        self.format = ""
        self.data: bytes | None = None
        self.endpoints: list[Endpoint] = []
        self.topics: list[bytes] = []
        self.flags: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.files: dict[str, bytes] = {}

    def take(self, row: Row, value: str) -> None:
        match row.key:
            case "help":
                from nngkit.cli.cat.help_text import nngcat_help

                raise Shown(nngcat_help(), 1)
            case "version":
                raise Shown(f"{ORIGINAL}\n", 0)
            case key if row.group == "protocol":
                if self.protocol:
                    fail("Only one protocol may be specified.")
                self.protocol = key
            case "format" | "raw" | "ascii" | "quoted" | "msgpack" | "hex" as key:
                if self.format:
                    fail("Format may be specified only once.")
                self.format = value if key == "format" else key
                if self.format not in FORMATS:
                    fail("Invalid format specified.")
            case "data" | "file" as key:
                if self.data is not None:
                    fail("Data (--file, --data) may be specified only once.")
                self.data = content(value) if key == "file" else value.encode("utf-8", "surrogateescape")
            case "listen" | "dial" as what:
                self.endpoints.append(Endpoint(what, value))
            case "listen_port" | "dial_port" as key:
                url = f"tcp://127.0.0.1:{whole(value, 65536)}"
                self.endpoints.append(Endpoint("listen" if key == "listen_port" else "dial", url))
            case "listen_ipc" | "dial_ipc" as key:
                # three slashes: so a relative path is taken from the root, by the original as well
                self.endpoints.append(Endpoint("listen" if key == "listen_ipc" else "dial", f"ipc:///{value}"))
            case "subscribe":
                self.topics.append(value.encode("utf-8", "surrogateescape"))
            case "interval" | "delay" | "recv_timeout" | "send_timeout" as key:
                self.numbers[key] = whole(value, DAY)
            case "count" | "recv_max_size" as key:
                self.numbers[key] = whole(value)
            case "cacert" | "cert" | "key" as key:
                if key in self.files:
                    fail(f"{TLS_FILES[key]} (--{key}) may be specified only once.")
                self.files[key] = content(value)
            case key:
                self.flags.add(key)

    def check(self) -> None:
        """What goes with what, in the original's order."""
        protocol, data = self.protocol, self.data
        if not self.endpoints:
            fail("No address specified.")
        if "compat" in self.flags:
            if "background" in self.flags:
                fail("Options --async and --compat are incompatible.")
            if self.numbers.get("count"):
                fail("Options --count and --compat are incompatible.")
            if protocol == "pair1":
                fail("Protocol does not support --compat.")
        if self.topics and protocol != "sub":
            fail("Protocol does not support --subscribe.")
        if not protocol:
            fail("No protocol specified.")
        if protocol in NO_FORMAT and self.format:
            fail("Protocol does not support --format options.")
        if protocol in NEEDS_DATA and data is None:
            fail("Protocol requires either --file or --data.")
        if protocol in NO_DATA and data is not None:
            fail("Protocol does not support --file or --data.")
        if "interval" in self.numbers:
            if protocol in NO_INTERVAL:
                fail("Protocol does not support --interval.")
            if data is None:
                fail("Option --interval requires either --file or --data.")


def plan_of(arguments: Sequence[str]) -> Plan:
    """The plan that nngcat's arguments make. Raises Wrong, Shown."""
    given = _Given()
    for row, value in scan(arguments):
        given.take(row, value)
    given.check()
    compat = "compat" in given.flags
    protocol = ("pair0" if compat else "pair1") if given.protocol == "pair" else given.protocol
    assert protocol in PROTOCOLS
    numbers, data = given.numbers, given.data
    show = FORMATTERS["nngcat"][given.format or "no"]
    return Plan(
        protocol=protocol,
        endpoints=tuple(given.endpoints),
        show=lambda received: show(received.body),
        topics=tuple(given.topics) or (b"",),
        data=() if data is None else (data,),
        answer=None if data is None else lambda _: data,
        count=numbers.get("count", 0),
        delay=numbers.get("delay"),
        interval=numbers.get("interval"),
        recv_timeout=numbers.get("recv_timeout") or None,  # 0 is for ever there
        send_timeout=numbers.get("send_timeout") or None,
        recv_max_size=min(numbers.get("recv_max_size", MIB) or LARGEST, LARGEST),
        tls=_tls(given),
        dial_waits=not (compat or "background" in given.flags),
        request_waits=True,
        said=_say if "verbose" in given.flags and "silent" not in given.flags else None,
    )


def _tls(given: _Given) -> TLS | None:
    if not any(url.startswith(("tls", "wss")) for _, url in given.endpoints):
        return None
    load_bricks()
    from nngkit.protocols import TLS

    certificate = given.files.get("cert")
    for pem in (given.files.get("cacert"), certificate):
        if pem is not None and b"-----BEGIN" not in pem:
            fail("Unable to configure TLS: Cryptographic error")
    key = given.files.get("key", certificate) if certificate is not None else None
    return TLS(ca=given.files.get("cacert"), cert=certificate, key=key, verify="insecure" not in given.flags)


def _say(what: str, _: str, address: str) -> None:
    text = f"Listening at: {address}\n" if what == "listen" else f"Connected to: {address}\n"
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


def stopped_text(stopped: Stopped) -> str:
    """What nngcat says when that happens."""
    from nngkit.cli.cat.error_texts import nng_reason

    reason, url = nng_reason(stopped.error, stopped.url), stopped.url
    match stopped.stage:
        case "listen" | "dial" as stage:
            if isinstance(stopped.error, ConfigError) and stopped.error.what == "tls":
                return f"Unable to configure TLS: {stopped.error.why.removeprefix(REFUSED)}"
            if reason == "Invalid argument" or reason == "Not supported" or _malformed(stage, url):
                return f"Unable to create {'listener' if stage == 'listen' else 'dialer'} for {url}: {reason}"
            return f"Unable to {stage} on {url}: {reason}"
        case "send":
            return f"Send error: {reason}"
        case _:
            return f"Receive error: {reason}"


def _malformed(stage: str, url: str) -> bool:
    # NNG looks at a listener's address when it is made, at a dialler's when it starts
    port = url.rpartition(":")[2].partition("/")[0]
    host = url.partition("://")[2].rpartition(":")[0]
    return stage == "listen" and ((port.isdigit() and int(port) > 65535) or any(each.isalpha() for each in host))


def command(name: str, arguments: Sequence[str]) -> int:
    """Do as nngcat would."""
    from nngkit.cli.cat.running import run_stand_in

    return run_stand_in(lambda: plan_of(arguments), lambda stopped: (stopped_text(stopped), 1))
