"""`nngkit nngcat`: a stand-in for NNG's nngcat 1.5.2, with its options, output, error lines and exit codes.

docs/command.md lists the differences: `--pair` works, `--recv-maxsz 0` is 1 GiB, and sent messages are written before
it ends. As in the original, an argument that is not an option ends the options, and the rest is ignored.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from nngkit.cli.cat.command_line.option_table import FORMATS, OPTIONS, PROTOCOLS, CatOption
from nngkit.cli.cat.command_line.plan import LARGEST, MIB, Address, Plan, Shown, Stopped, Wrong
from nngkit.cli.cat.formats import FORMATTERS
from nngkit.cli.cat.lazy_bricks import load_bricks
from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.protocols import TLS

ORIGINAL: Final = "1.5.2"  # the version it stands in for, printed by --version
DAY: Final = 86400  # seconds, the largest time
NAMES: Final = {name: option for option in OPTIONS for name in option.names("nngcat")}
TLS_FILES: Final = {"cacert": "CA Certificate", "cert": "Cert", "key": "Key"}
NO_FORMAT: Final = ("push", "pub")
NO_DATA: Final = ("pull", "sub")
NO_INTERVAL: Final = ("pull", "sub", "rep", "respondent")
NEEDS_DATA: Final = ("push", "pub", "req", "surveyor")


def fail(text: str) -> NoReturn:
    """Raise Wrong: one line, exit code 1."""
    raise Wrong(f"{text}\n", 1)


def scan(arguments: Sequence[str]) -> Iterator[tuple[CatOption, str]]:
    """Yield the options in order with their values, "" for flags."""
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        given = rest.pop(0)
        option, value = _option(given)
        if option.takes and value is None:
            if not rest:
                fail(f"Option {given} requires argument.")
            value = rest.pop(0)
        yield option, value or ""


def _option(given: str) -> tuple[CatOption, str | None]:
    if not given.startswith("--"):
        option = NAMES.get(given[:2])
        if option is None or (given[2:] and not option.takes):
            fail(f"Option {given} is invalid.")
        return option, given[2:] or None
    end = min((given.index(each) for each in "=:" if each in given), default=len(given))
    found: dict[str, tuple[CatOption, str | None]] = {}
    for name, option in NAMES.items():
        if not name.startswith("--"):
            continue
        # only options with values may have one attached
        typed, value = (given[:end], given[end + 1 :] if end < len(given) else None) if option.takes else (given, None)
        if name == typed:
            return option, value
        if name.startswith(typed):
            found[option.key] = (option, value)
    if not found:
        fail(f"Option {given} is invalid.")
    if len(found) > 1:
        fail(f"Option {given} is ambiguous (specify in full).")
    return next(iter(found.values()))


def whole(text: str, most: int = 2**31 - 1) -> int:
    """Parse a number as nngcat does: digits only."""
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
    """Read the whole file; `-` is standard input."""
    try:
        file = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115 - standard input stays open
    except OSError as error:
        if error.strerror != "Is a directory":  # C opens a directory
            fail(f"Cannot open file {path}: {error.strerror}")
        fail(f"Read from {path} failed: {error.strerror}")
    with file:
        try:
            return file.read()
        except OSError as error:
            fail(f"Read from {path} failed: {error.strerror}")


class _Given:
    """The arguments so far, checked as they come."""

    def __init__(self) -> None:
        self.protocol = ""
        self.format = ""
        self.data: bytes | None = None
        self.addresses: list[Address] = []
        self.topics: list[bytes] = []
        self.flags: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.files: dict[str, bytes] = {}

    def take(self, option: CatOption, value: str) -> None:
        match option.key:
            case "help":
                from nngkit.cli.cat.command_line.help_text import nngcat_help

                raise Shown(nngcat_help(), 1)
            case "version":
                raise Shown(f"{ORIGINAL}\n", 0)
            case key if option.group == "protocol":
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
                self.addresses.append(Address(what, value))
            case "listen_port" | "dial_port" as key:
                url = f"tcp://127.0.0.1:{whole(value, 65536)}"
                self.addresses.append(Address("listen" if key == "listen_port" else "dial", url))
            case "listen_ipc" | "dial_ipc" as key:
                # three slashes: relative paths become absolute, in the original as well
                self.addresses.append(Address("listen" if key == "listen_ipc" else "dial", f"ipc:///{value}"))
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
        """Check combinations, in the original's order."""
        protocol, data = self.protocol, self.data
        if not self.addresses:
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
    """Return the plan that nngcat's arguments make. Raises Wrong, Shown."""
    given = _Given()
    for option, value in scan(arguments):
        given.take(option, value)
    given.check()
    compat = "compat" in given.flags
    protocol = ("pair0" if compat else "pair1") if given.protocol == "pair" else given.protocol
    assert protocol in PROTOCOLS
    numbers, data = given.numbers, given.data
    show = FORMATTERS["nngcat"][given.format or "no"]
    return Plan(
        protocol=protocol,
        addresses=tuple(given.addresses),
        show=lambda received: show(received.body),
        topics=tuple(given.topics) or (b"",),
        data=() if data is None else (data,),
        answer=None if data is None else lambda _: data,
        count=numbers.get("count", 0),
        delay=numbers.get("delay"),
        interval=numbers.get("interval"),
        recv_timeout=numbers.get("recv_timeout") or None,  # 0 is no limit there
        send_timeout=numbers.get("send_timeout") or None,
        recv_max_size=min(numbers.get("recv_max_size", MIB) or LARGEST, LARGEST),
        tls=_tls(given),
        open=True,
        dial_waits=not (compat or "background" in given.flags),
        request_waits=True,
        on_address=_say if "verbose" in given.flags and "silent" not in given.flags else None,
    )


def _tls(given: _Given) -> TLS | None:
    if not any(url.startswith(("tls", "wss")) for _, url in given.addresses):
        return None
    load_bricks()
    from nngkit.protocols import TLS

    certificate = given.files.get("cert")
    for pem in (given.files.get("cacert"), certificate):
        if pem is not None and b"-----BEGIN" not in pem:
            fail("Unable to configure TLS: Cryptographic error")
    key = given.files.get("key", certificate) if certificate is not None else None
    trusted = given.files.get("cacert")
    return TLS(ca=trusted, cert=certificate, key=key, verify="insecure" not in given.flags, tls12=True)


def _say(what: str, _: str, address: str) -> None:
    text = f"Listening at: {address}\n" if what == "listen" else f"Connected to: {address}\n"
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


def stopped_text(stopped: Stopped) -> str:
    """Return nngcat's error text."""
    from nngkit.cli.cat.error_texts import nng_reason

    reason, url = nng_reason(stopped.error, stopped.url), stopped.url
    match stopped.stage:
        case "listen" | "dial" as stage:
            if isinstance(stopped.error, ConfigError) and stopped.error.what == "tls":
                why = "Cryptographic error" if " refused: " in stopped.error.why else stopped.error.why
                return f"Unable to configure TLS: {why}"
            if reason == "Invalid argument" or reason == "Not supported" or _malformed(stage, url):
                return f"Unable to create {'listener' if stage == 'listen' else 'dialer'} for {url}: {reason}"
            return f"Unable to {stage} on {url}: {reason}"
        case "send":
            return f"Send error: {reason}"
        case _:
            return f"Receive error: {reason}"


def _malformed(stage: str, url: str) -> bool:
    # NNG checks a listener's address when it is created, a dialer's when it starts
    port = url.rpartition(":")[2].partition("/")[0]
    host = url.partition("://")[2].rpartition(":")[0]
    return stage == "listen" and ((port.isdigit() and int(port) > 65535) or any(each.isalpha() for each in host))


def command(name: str, arguments: Sequence[str]) -> int:
    """Run as nngcat; return the exit code."""
    from nngkit.cli.cat.running import run_stand_in

    return run_stand_in(lambda: plan_of(arguments), lambda stopped: (stopped_text(stopped), 1))
