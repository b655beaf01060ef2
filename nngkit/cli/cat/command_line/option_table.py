"""The options of the cat commands in one table, for parsers, help texts, man pages, completion and docs/command.md.

Each has its names in the three commands (`cat`: nngkit cat and the shorthands, `nngcat` and `nanocat`: the stand-ins;
empty: not available), the placeholder of its value, and its help::

    CatOption("dial", "URL", "connect to URL", cat="--dial --connect", nngcat="--dial --connect", ...)

The order is that of help texts, and of the candidates in nanocat's message about an ambiguous prefix.
Imports no other module of nngkit, so that `--help` starts fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple


class CatOption(NamedTuple):
    """An option. `takes` is the placeholder of its value, empty for a flag."""

    key: str
    takes: str
    help: str
    cat: str = ""
    nngcat: str = ""
    nanocat: str = ""
    fits: str = ""  # protocols it applies to, empty for all; enforced by `nngkit cat`
    repeats: bool = False
    group: str = ""

    def names(self, command: str) -> tuple[str, ...]:
        """Return its names in `command`, long ones with two dashes."""
        names: str = getattr(self, command)
        return tuple(names.split())


# name in a plan: the class in nngkit.protocols
PROTOCOLS: Final = {
    "req": "Req",
    "rep": "Rep",
    "pub": "Pub",
    "sub": "Sub",
    "push": "Push",
    "pull": "Pull",
    "surveyor": "Surveyor",
    "respondent": "Respondent",
    "bus": "Bus",
    "pair0": "Pair0",
    "pair1": "Pair1",
}
FORMATS: Final = ("no", "raw", "ascii", "quoted", "msgpack", "hex")
GROUPS: Final = {
    "general": "General",
    "protocol": "Protocol, exactly one",
    "addresses": "Addresses, one or more",
    "socket": "Socket",
    "tls": "TLS, for tls+tcp and wss",
    "output": "Format of received messages",
    "input": "Messages to send",
    "pace": "Times and counts",
}


def _group(name: str, *options: CatOption) -> tuple[CatOption, ...]:
    return tuple(option._replace(group=name) for option in options)


def _protocol(name: str, what: str) -> CatOption:
    return _common(name, "", what, f"--{name}0 --{name}", nanocat=f"--{name}")


def _common(key: str, takes: str, what: str, names: str, **more: Any) -> CatOption:
    return CatOption(key, takes, what, **{"cat": names, "nngcat": names, "nanocat": names} | more)


def _nng(key: str, takes: str, what: str, names: str, **more: Any) -> CatOption:
    return _common(key, takes, what, names, **{"nanocat": ""} | more)


def _cat_only(key: str, takes: str, what: str, names: str = "", **more: Any) -> CatOption:
    return CatOption(key, takes, what, names or f"--{key.replace('_', '-')}", **more)


SENDS: Final = "push pub req surveyor rep respondent bus pair0 pair1"
TALKS: Final = "push pub req surveyor bus pair0 pair1"
RECEIVES: Final = "pull sub req surveyor rep respondent bus pair0 pair1"

OPTIONS: Final = (
    *_group(
        "general",
        _common("verbose", "", "report addresses on standard error; nngcat: on stdout", "--verbose -v"),
        _common("silent", "", "report errors only", "--silent -q"),
        _common("help", "", "print this and exit", "--help -h"),
        _nng("version", "", "print the version and exit", "--version -V"),
    ),
    *_group(
        "protocol",
        _protocol("push", "send each message to one of the pullers"),
        _protocol("pull", "receive pushed messages"),
        _protocol("pub", "send each message to all subscribers"),
        _protocol("sub", "receive published messages, all or by topic"),
        _protocol("req", "send a request, receive the reply"),
        _protocol("rep", "receive requests, send replies"),
        _protocol("surveyor", "survey all respondents, receive their responses"),
        _protocol("respondent", "receive surveys, send responses"),
        _protocol("bus", "exchange messages with all directly connected peers"),
        _nng("pair0", "", "exchange messages with one peer, version 0, nanomsg's", "--pair0"),
        _nng("pair1", "", "exchange messages with one peer, version 1, NNG's", "--pair1"),
        _common(
            "pair",
            "",
            "exchange messages with one peer: version 1; nanocat, and nngcat with --compat: version 0",
            "--pair",
        ),
    ),
    *_group(
        "addresses",
        _nng("listen", "URL", "accept connections at URL", "--listen --bind", nanocat="--bind", repeats=True),
        _nng("dial", "URL", "connect to URL", "--dial --connect", nanocat="--connect", repeats=True),
        _common("listen_ipc", "PATH", "accept connections at ipc://PATH", "--bind-ipc -X", repeats=True),
        _common("dial_ipc", "PATH", "connect to ipc://PATH", "--connect-ipc -x", repeats=True),
        _common("listen_port", "PORT", "accept connections at tcp://127.0.0.1:PORT", "--bind-local -L", repeats=True),
        _common("dial_port", "PORT", "connect to tcp://127.0.0.1:PORT", "--connect-local -l", repeats=True),
    ),
    *_group(
        "socket",
        _common("recv_timeout", "SECS", "wait this long for a message, then end", "--recv-timeout"),
        _common("send_timeout", "SECS", "wait this long for room to send, then fail", "--send-timeout"),
        _common("name", "NAME", "the socket's name, for statistics", "--socket-name", cat="--name"),
        _common(
            "subscribe",
            "TOPIC",
            "receive messages that begin with TOPIC; without it, all",
            "--subscribe",
            repeats=True,
            fits="sub",
        ),
        _cat_only(
            "pattern",
            "PATTERN",
            "receive messages that begin with such a topic: orders.*.eu, orders.>",
            fits="sub",
            repeats=True,
        ),
        _cat_only("lag", "", "from a Publisher: report missing messages on standard error", fits="sub"),
        _cat_only("last", "", "from a Publisher: begin with its last message of each topic", fits="sub"),
        _cat_only("snail", "N", "from a Publisher: fail when N messages wait for the output", fits="sub"),
        _nng("recv_max_size", "BYTES", "largest message accepted (1 MiB); 0 is 1 GiB", "--recv-maxsz -Z"),
        _cat_only("ipc_mode", "MODE", "permissions of the ipc sockets listened at, in octal: 600"),
        CatOption("compat", "", "behave as nanomsg: dial in the background, pair version 0", nngcat="--compat"),
        CatOption("background", "", "dial in the background", nngcat="--async"),
        CatOption("zt_home", "PATH", "for ZeroTier, which NNG is built without: ignored", nngcat="--zt-home"),
        _cat_only("wait_peers", "N", "send and receive nothing before N peers are connected"),
        _cat_only(
            "wait_timeout",
            "SECS",
            "wait this long for the peers, then exit with code 3; a pub, bus or survey that dials: 5 s for the first "
            "one",
        ),
    ),
    *_group(
        "tls",
        _nng("insecure", "", "do not check the peer's certificate", "--insecure -k"),
        _nng("cacert", "FILE", "require a certificate of this CA from the peer", "--cacert"),
        _nng("cert", "FILE", "own certificate, with its key unless --key is given", "--cert -E"),
        _nng("key", "FILE", "key of the certificate", "--key"),
        _cat_only("tls_name", "NAME", "expected name of the listener (default: the host of the URL)"),
        _cat_only("tls12", "", "admit TLS 1.2, which older NNG needs"),
        _cat_only("trust", "PASS", "prove names by this pass, or: open, then other machines need no proof"),
    ),
    *_group(
        "output",
        _common("format", "FORMAT", f"one of {', '.join(FORMATS)}", "--format", fits=RECEIVES),
        _common("raw", "", "the message unchanged, without a newline", "--raw", fits=RECEIVES),
        _common("ascii", "", "unprintable bytes as dots", "--ascii -A", fits=RECEIVES),
        _common("quoted", "", "a line in double quotes, with escapes as in C", "--quoted -Q", fits=RECEIVES),
        _common("msgpack", "", "a MessagePack byte string, as --records reads it", "--msgpack", fits=RECEIVES),
        _common("hex", "", r"a line in double quotes, each byte as \xNN", "--hex", fits=RECEIVES),
        _cat_only("json", "", "a JSON object a line (docs/schemas/cat.json); also for --stats"),
        _cat_only(
            "format_string",
            "TEXT",
            r"TEXT with {body} {topic} {size} {time} {peer} filled in, {body:quoted} and the like, \n \t \0 \xNN",
            fits=RECEIVES,
        ),
        _cat_only("timestamp", "", "begin each line with the time of arrival", fits=RECEIVES),
        _cat_only("stats", "", "print counters on standard error at the end (as JSON with --json)"),
    ),
    *_group(
        "pace",
        _common("interval", "SECS", "repeat every SECS seconds", "--interval -i", fits=TALKS),
        _common("delay", "SECS", "wait before sending the first message", "--delay -d"),
        _nng("count", "N", "end after N messages", "--count -C"),
        _cat_only("expect", "N", "end after N received messages; fewer is a failure", fits=RECEIVES),
    ),
    *_group(
        "input",
        _common("data", "DATA", "send DATA, or reply with it", "--data -D", fits=SENDS, repeats=True),
        _common("file", "FILE", "send the content of FILE; - is standard input", "--file -F", fits=SENDS),
        _cat_only("lines", "", "send each line of FILE or standard input as it arrives", fits=TALKS),
        _cat_only("nul", "", "the same with NUL instead of newline, also in the output", "--null -0"),
        _cat_only("delimiter", "BYTES", r"the same with BYTES (with \n \t \0 \xNN)"),
        _cat_only("records", "", "send each MessagePack string of FILE or standard input", fits=TALKS),
        _cat_only(
            "exec",
            "CMD",
            "run CMD for each message: the message is its input, its output the reply",
            fits="rep respondent",
        ),
    ),
)


def options_of(command: str) -> Iterable[CatOption]:
    """Return the options of `command` (cat, nngcat, nanocat), in order."""
    return (option for option in OPTIONS if option.names(command))
