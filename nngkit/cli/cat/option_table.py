"""Every option of the cat commands, in one table: parsers, helps, man pages, completion and docs/command.md read it.

A row says under which names each of the three commands knows the option (`cat`: nngkit cat and the shorthands, `nngcat`
and `nanocat`: the stand-ins; empty: it has none such), what it takes and what it means::

    Row("dial", "addresses", "URL", "connect to URL", cat="--dial --connect", nngcat="--dial --connect", ...)

Order matters: it is the order of helps, and of the candidates in nanocat's message about an ambiguous prefix.
Knows no socket and no other module of ours, so that reading it costs a `--help` next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["FORMATS", "GROUPS", "PROTOCOLS", "ROWS", "SHORTHANDS", "Row", "rows_of"]


class Row(NamedTuple):
    """One option. `takes` is what stands for its value in a help, empty for a flag."""

    key: str
    group: str
    takes: str
    help: str
    cat: str = ""
    nngcat: str = ""
    nanocat: str = ""
    fits: str = ""  # the patterns it makes sense for, empty for all; held by `nngkit cat`
    repeats: bool = False

    def names(self, command: str) -> tuple[str, ...]:
        """What it is called in `command`, long names with their two dashes."""
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
SHORTHANDS: Final = {  # command: the protocol that it says
    "pub": "pub",
    "sub": "sub",
    "push": "push",
    "pull": "pull",
    "req": "req",
    "rep": "rep",
    "survey": "surveyor",
    "respond": "respondent",
    "bus": "bus",
    "pair": "pair1",
}
FORMATS: Final = ("no", "raw", "ascii", "quoted", "msgpack", "hex")
GROUPS: Final = {
    "general": "General",
    "protocol": "Protocol, exactly one",
    "addresses": "Addresses, one or more",
    "socket": "Socket",
    "tls": "TLS, for tls+tcp and wss",
    "output": "What is printed for a message received",
    "input": "What is sent",
    "pace": "When, and how often",
}


def _protocol(name: str, what: str, *, nanocat: bool = True) -> Row:
    zero = f"--{name}0 --{name}"
    return Row(name, "protocol", "", what, cat=zero, nngcat=zero, nanocat=f"--{name}" if nanocat else "")


def _both(key: str, group: str, takes: str, what: str, names: str, *, repeats: bool = False, fits: str = "") -> Row:
    return Row(key, group, takes, what, cat=names, nngcat=names, nanocat=names, repeats=repeats, fits=fits)


def _nng(key: str, group: str, takes: str, what: str, names: str, *, fits: str = "") -> Row:
    return Row(key, group, takes, what, cat=names, nngcat=names, fits=fits)


def _ours(
    key: str, group: str, takes: str, what: str, names: str = "", *, repeats: bool = False, fits: str = ""
) -> Row:
    return Row(key, group, takes, what, cat=names or f"--{key.replace('_', '-')}", repeats=repeats, fits=fits)


SENDS: Final = "push pub req surveyor rep respondent bus pair0 pair1"
TALKS: Final = "push pub req surveyor bus pair0 pair1"
RECEIVES: Final = "pull sub req surveyor rep respondent bus pair0 pair1"

ROWS: Final = (
    _both(
        "verbose", "general", "", "say on standard error what connects; nngcat: addresses, on stdout", "--verbose -v"
    ),
    _both("silent", "general", "", "say less; what goes wrong is said all the same", "--silent -q"),
    _both("help", "general", "", "print this and exit", "--help -h"),
    _nng("version", "general", "", "print the version and exit", "--version -V"),
    _protocol("push", "send each message to one of the pullers"),
    _protocol("pull", "receive what is pushed"),
    _protocol("pub", "send each message to all subscribers"),
    _protocol("sub", "receive messages of some topics, or of all"),
    _protocol("req", "send a request, receive the reply"),
    _protocol("rep", "receive requests, send replies"),
    _protocol("surveyor", "ask all respondents, receive their answers"),
    _protocol("respondent", "receive surveys, send answers"),
    _protocol("bus", "send to all and receive from all that are directly connected"),
    Row("pair0", "protocol", "", "talk to one peer, version 0, as nanomsg does", cat="--pair0", nngcat="--pair0"),
    Row("pair1", "protocol", "", "talk to one peer, version 1, NNG's own", cat="--pair1", nngcat="--pair1"),
    Row(
        "pair",
        "protocol",
        "",
        "talk to one peer: version 1; nanocat, and nngcat with --compat: version 0",
        cat="--pair",
        nngcat="--pair",
        nanocat="--pair",
    ),
    Row(
        "listen",
        "addresses",
        "URL",
        "accept connections at URL",
        cat="--listen --bind",
        nngcat="--listen --bind",
        nanocat="--bind",
        repeats=True,
    ),
    Row(
        "dial",
        "addresses",
        "URL",
        "connect to URL",
        cat="--dial --connect",
        nngcat="--dial --connect",
        nanocat="--connect",
        repeats=True,
    ),
    _both("listen_ipc", "addresses", "PATH", "accept connections at ipc://PATH", "--bind-ipc -X", repeats=True),
    _both("dial_ipc", "addresses", "PATH", "connect to ipc://PATH", "--connect-ipc -x", repeats=True),
    _both(
        "listen_port",
        "addresses",
        "PORT",
        "accept connections at tcp://127.0.0.1:PORT",
        "--bind-local -L",
        repeats=True,
    ),
    _both("dial_port", "addresses", "PORT", "connect to tcp://127.0.0.1:PORT", "--connect-local -l", repeats=True),
    _both("recv_timeout", "socket", "SECS", "wait that long for a message, then end", "--recv-timeout"),
    _both("send_timeout", "socket", "SECS", "wait that long for room to send, then fail", "--send-timeout"),
    Row(
        "name",
        "socket",
        "NAME",
        "the socket's name, for statistics",
        cat="--name",
        nngcat="--socket-name",
        nanocat="--socket-name",
    ),
    _both(
        "subscribe",
        "socket",
        "TOPIC",
        "receive messages that begin with TOPIC; without it, all",
        "--subscribe",
        repeats=True,
        fits="sub",
    ),
    _nng("recv_max_size", "socket", "BYTES", "largest message let in (1 MiB); 0 is 1 GiB", "--recv-maxsz -Z"),
    Row("compat", "socket", "", "be as nanomsg: dial in the background, pair version 0", nngcat="--compat"),
    Row("background", "socket", "", "go on while nobody listens yet where it dials", nngcat="--async"),
    Row("zt_home", "socket", "PATH", "for ZeroTier, which this NNG has not: does nothing", nngcat="--zt-home"),
    _ours("wait_peers", "socket", "N", "send and receive nothing before N peers are connected"),
    _ours(
        "wait_timeout",
        "socket",
        "SECS",
        "wait that long for the peers, then exit with code 3; a pub, bus or survey that dials: 5 s for its first one",
    ),
    _nng("insecure", "tls", "", "do not check the other side's certificate", "--insecure -k"),
    _nng("cacert", "tls", "FILE", "the other side has to show a certificate of this CA", "--cacert"),
    _nng("cert", "tls", "FILE", "our certificate, with the key unless --key is given", "--cert -E"),
    _nng("key", "tls", "FILE", "the key to our certificate", "--key"),
    _ours("tls_name", "tls", "NAME", "the name demanded of the listener, if not the host of the URL"),
    _both("format", "output", "FORMAT", f"one of {', '.join(FORMATS)}", "--format", fits=RECEIVES),
    _both("raw", "output", "", "the message as it is, and nothing after it", "--raw", fits=RECEIVES),
    _both("ascii", "output", "", "what cannot be printed as dots", "--ascii -A", fits=RECEIVES),
    _both("quoted", "output", "", "a line in double quotes, with escapes as in C", "--quoted -Q", fits=RECEIVES),
    _both("msgpack", "output", "", "a MessagePack byte string, as --records reads it", "--msgpack", fits=RECEIVES),
    _both("hex", "output", "", r"a line in double quotes, each byte as \xNN", "--hex", fits=RECEIVES),
    _ours("json", "output", "", "a JSON object a line (docs/schemas/cat.json); --stats is one, too"),
    _ours(
        "format_string",
        "output",
        "TEXT",
        r"TEXT with {body} {topic} {size} {time} {peer} filled in, {body:quoted} and the like, \n \t \0 \xNN",
        fits=RECEIVES,
    ),
    _ours("timestamp", "output", "", "begin each line with the time of receipt", fits=RECEIVES),
    _ours("stats", "output", "", "at the end, counters on standard error (as JSON with --json)"),
    _both("interval", "pace", "SECS", "send again every SECS seconds", "--interval -i", fits=TALKS),
    _both("delay", "pace", "SECS", "wait before the first message is sent", "--delay -d"),
    _nng("count", "pace", "N", "end after N messages", "--count -C"),
    _ours("expect", "pace", "N", "end after N messages received; fewer is a failure", fits=RECEIVES),
    _both("data", "input", "DATA", "send DATA, or answer with it", "--data -D", fits=SENDS, repeats=True),
    _both("file", "input", "FILE", "the same with what is in FILE; - is standard input", "--file -F", fits=SENDS),
    _ours("lines", "input", "", "each line of FILE or standard input is a message, sent as it comes", fits=TALKS),
    _ours("nul", "input", "", "the same with NUL instead of newline; it ends what is printed, too", "--null -0"),
    _ours("delimiter", "input", "BYTES", r"the same with BYTES (\n \t \0 \xNN are understood)"),
    _ours("records", "input", "", "each MessagePack string of FILE or standard input is a message", fits=TALKS),
    _ours(
        "exec",
        "input",
        "CMD",
        "run CMD for each: its input is the message, its output the answer",
        fits="rep respondent",
    ),
)


def rows_of(command: str) -> Iterable[Row]:
    """The options that `command` (cat, nngcat, nanocat) has, in order."""
    return (row for row in ROWS if row.names(command))
