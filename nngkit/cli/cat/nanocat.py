"""`nngkit nanocat`: a stand-in for nanomsg's nanocat 1.1.5, and for its links nn_push, nn_pull and so on.

It has nanocat's options (any order, unique prefixes, short ones clustered), output, error texts and exit codes: 1 for
usage, 2 for a file, 3 for the network. docs/command.md lists the differences: several `-L`, `-l`, `-X` or `-x` work.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, NoReturn

from nngkit.cli.cat.command_line.option_table import FORMATS, OPTIONS, CatOption
from nngkit.cli.cat.command_line.plan import Address, Plan, Shown, Stopped, Wrong
from nngkit.cli.cat.command_line.scanning import words
from nngkit.cli.cat.formats import FORMATTERS
from nngkit.cli.commands import PROGRAMS

OWN: Final = tuple(option for option in OPTIONS if option.nanocat)
NAMES: Final = {name: option for option in OWN for name in option.names("nanocat")}
PROTOCOL: Final = tuple(option for option in OWN if option.group == "protocol")
ADDRESS: Final = tuple(option for option in OWN if option.group == "addresses")
SOURCES: Final = tuple(option for option in OWN if option.key in ("data", "file"))
WRITERS: Final = tuple(option for option in PROTOCOL if option.key not in ("pull", "sub"))
READERS: Final = tuple(option for option in PROTOCOL if option.key not in ("push", "pub"))
NEEDS: Final = {  # option: at least one of these is required with it
    **dict.fromkeys(("push", "pub", "req", "surveyor"), SOURCES),
    **dict.fromkeys(("interval", "data", "file", "send_timeout"), WRITERS),
    **dict.fromkeys(("recv_timeout", "format", *FORMATS[1:]), READERS),
    "subscribe": tuple(option for option in PROTOCOL if option.key == "sub"),
}
NUMBERS: Final = ("recv_timeout", "send_timeout", "interval", "delay")
LONGEST_NAME: Final = 63  # bytes


class Use(NamedTuple):
    """An option as used: its name in error texts, and its value."""

    option: CatOption
    typed: str
    value: str


class _Parser:
    def __init__(self, program: str) -> None:
        self.program = program
        self.uses: dict[str, list[Use]] = {}

    def fail(self, text: str) -> NoReturn:
        raise Wrong(f"{self.program}: {text}\n", 1)

    def fail_with(self, text: str, options: Sequence[CatOption]) -> NoReturn:
        names = [name for option in options for name in option.names("nanocat")]
        self.fail("\n".join([text, *(f"    {name}" for name in names)]))

    def scan(self, arguments: Sequence[str]) -> Iterator[Use]:
        for kind, given, rest in words(arguments):
            match kind:
                case "long":
                    yield self._long(given, rest)
                case "short":
                    yield from self._short(given, rest)
                case _ if given != "-":  # nanocat ignores a lone dash
                    self.fail(f"Unexpected argument ``{given}''")

    def _long(self, given: str, rest: list[str]) -> Use:
        typed, equals, value = given.partition("=")
        option = NAMES.get(typed)
        name = typed
        if option is None:
            candidates = [
                (name, option) for name, option in NAMES.items() if name.startswith(typed) and name.startswith("--")
            ]
            if not candidates:
                self.fail(f"Unknown option ``{given}''")
            if len(candidates) > 1:
                self.fail("\n".join([f"Ambiguous option ``{given}'':", *(f"    {name[2:]}" for name, _ in candidates)]))
            name, option = candidates[0]
        shown = given if name == typed else f"{typed}[{name[len(typed) :]}]"
        if not option.takes:
            if equals:
                self.fail(f"Option {shown} does not accept argument")
            return Use(option, shown, "")
        if not equals:
            if not rest:
                self.fail(f"Option {shown} requires an argument")
            value = rest.pop(0)
        return Use(option, shown, value)

    def _short(self, given: str, rest: list[str]) -> Iterator[Use]:
        letters = given[1:]
        while letters:
            letter, letters = f"-{letters[0]}", letters[1:]
            option = NAMES.get(letter)
            if option is None:
                self.fail(f"Unknown option ``{letter}''")
            shown = f"{letter} ({option.names('nanocat')[0]})"
            if not option.takes:
                yield Use(option, shown, "")
                continue
            if not letters and not rest:
                self.fail(f"Option {shown} requires an argument")
            yield Use(option, shown, letters or rest.pop(0))
            return

    def take(self, use: Use) -> None:
        """Add an option, checked against earlier ones, as in the original."""
        option = use.option
        if option.key == "help":
            from nngkit.cli.cat.command_line.help_text import nanocat_help

            raise Shown(nanocat_help(self.program), 0)
        for rivals in (PROTOCOL, SOURCES):
            if option in rivals:
                used = [each for rival in rivals for each in self.uses.get(rival.key, ())]
                if used:
                    typed = use.typed if used[0].option is option else used[0].typed
                    self.fail(f"Option {use.typed} conflicts with the following options:\n    {typed} ")
        if option.key == "format" and use.value not in FORMATS:
            lines = [
                f"Invalid value ``{use.value}'' for {use.typed} . Options are:",
                *(f"    {one}" for one in FORMATS),
            ]
            self.fail("\n".join(lines))
        if option.key in NUMBERS:
            self._seconds(use)
        self.uses.setdefault(option.key, []).append(use)

    def _seconds(self, use: Use) -> float | None:
        try:
            text = use.value.strip()
            number = float.fromhex(text) if "x" in text.lower() else float(text)
        except ValueError:
            self.fail(f"Option {use.typed} requires float point argument")
        return None if math.isnan(number) or number < 0 or number > 1e6 else number

    def seconds(self, key: str) -> float | None:
        """Return the seconds given last; None (no limit) if not given, negative or over 1e6."""
        return self._seconds(self.uses[key][-1]) if key in self.uses else None

    def check(self) -> None:
        """Check for missing options."""
        for option in OWN:
            needed = NEEDS.get(option.key)
            if option.key in self.uses and needed and not any(each.key in self.uses for each in needed):
                self.fail_with(
                    f"Option {self.uses[option.key][0].typed} requires at least one of the following options:", needed
                )
        groups = [group for group in (PROTOCOL, ADDRESS) if not any(option.key in self.uses for option in group)]
        if groups:
            self.fail_with("At least one of the following required:", [option for group in groups for option in group])


def scan(arguments: Sequence[str], program: str = "nanocat") -> Iterator[tuple[CatOption, str]]:
    """Yield the options in order with their values, "" for flags."""
    return ((use.option, use.value) for use in _Parser(program).scan(arguments))


def plan_of(arguments: Sequence[str], program: str = "nanocat") -> Plan:
    """Return the plan that nanocat's arguments make; links (PROGRAMS) imply the protocol. Raises Wrong, Shown."""
    parser = _Parser(program)
    implied = PROGRAMS.get(program.rpartition("/")[2])
    if implied:
        parser.uses[implied] = [Use(NAMES[f"--{implied}"], f"{program} (executable)", "")]
    addresses = []
    data: bytes | None = None
    form = "no"
    for use in parser.scan(arguments):
        parser.take(use)
        match use.option.key:
            case "listen" | "dial" as what:
                addresses.append(Address(what, use.value))
            case "listen_ipc" | "dial_ipc" as key:
                addresses.append(Address("listen" if key == "listen_ipc" else "dial", f"ipc://{use.value}"))
            case "listen_port" | "dial_port" as key:
                url = f"tcp://127.0.0.1:{use.value}"
                addresses.append(Address("listen" if key == "listen_port" else "dial", url))
            case "data":
                data = use.value.encode("utf-8", "surrogateescape")
            case "file":
                data = content(use.value)
            case "format":
                form = use.value
            case "raw" | "ascii" | "quoted" | "msgpack" | "hex" as key:
                form = key
    parser.check()
    addresses.sort(key=lambda each: each.what == "dial")  # nanocat binds first
    protocol = next(option.key for option in PROTOCOL if option.key in parser.uses)
    show = FORMATTERS["nanocat"][form]
    topics = [use.value.encode("utf-8", "surrogateescape") for use in parser.uses.get("subscribe", ())]
    name = parser.uses["name"][-1].value if "name" in parser.uses else None
    if name is not None and len(name.encode()) > LONGEST_NAME:
        raise Wrong("Can't set socket name: Invalid argument\n", 3)
    for what, url in addresses:
        if (why := _not_for_nanomsg(what, url)) is not None:
            raise Wrong(f"Can't {'bind' if what == 'listen' else 'connect'}: {why}\n", 3)
    return Plan(
        protocol="pair0" if protocol == "pair" else protocol,
        addresses=tuple(addresses),
        show=lambda received: show(received.body),
        topics=tuple(topics) or (b"",),
        data=() if data is None else (data,),
        answer=None if data is None else lambda _: data,
        delay=parser.seconds("delay"),
        interval=parser.seconds("interval"),
        recv_timeout=parser.seconds("recv_timeout"),
        send_timeout=parser.seconds("send_timeout"),
        name=name,
        open=True,
    )


def _not_for_nanomsg(what: str, url: str) -> str | None:
    """Return nanomsg's reason for refusing an address that NNG accepts, or None.

    For NNG a missing port is any port and a missing host every interface; a listener's host may be a name, and a
    WebSocket listener may have a path. nanomsg has no IPv6 by default, and no path of a listener.
    """
    scheme, _, rest = url.partition("://")
    if scheme not in ("tcp", "ws"):
        return None
    if scheme == "ws" and what == "dial":
        rest = rest.partition("/")[0]
        rest = rest if ":" in rest else f"{rest}:80"
    host, _, port = rest.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return "Invalid argument"
    if what == "dial":
        return None if re.fullmatch("[A-Za-z0-9.-]+", host) else "Invalid argument"
    return None if host == "*" or re.fullmatch(r"[0-9]+(\.[0-9]+){3}", host) else "No such device"


def content(path: str) -> bytes:
    """Read the whole file; `-` is standard input."""
    try:
        if path == "-":
            return sys.stdin.buffer.read()
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Wrong(f"Error opening file ``{path}'': {error.strerror}\n", 2) from error


def stopped_text(stopped: Stopped) -> str:
    """Return nanocat's error text."""
    from nngkit.cli.cat.error_texts import posix_reason

    what = {"listen": "bind", "dial": "connect"}.get(stopped.stage, stopped.stage)
    return f"Can't {what}: {posix_reason(stopped.error, stopped.url)}"


def command(name: str, arguments: Sequence[str]) -> int:
    """Run as nanocat or one of its links; return the exit code."""
    from nngkit.cli.cat.running import run_stand_in

    return run_stand_in(lambda: plan_of(arguments, name), lambda stopped: (stopped_text(stopped), 3))
