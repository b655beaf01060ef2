"""The table of commands: name, summary, and the module that implements each. Pure."""

from __future__ import annotations

from typing import Final

COMMANDS: Final = {
    "discoverd": "run a discovery daemon: survey services, and answer queries for them by name",
    "discover": "list the services that the discovery daemons know",
    "resolve": "print the address of one provider of a service",
    "ask": "ask services a question, print their answers",
    "call": "call a service by its name, print the replies",
    "gateway": "let HTTP clients call services, publish and subscribe, and submit jobs",
    "serve": "make a shell command a provider of a service",
    "watch": "print each change of the services, run a command at it, or fill in a template",
    "host": "run a node of a cluster that may be its host",
    "join": "join a cluster: do its jobs with a program, or print its messages",
    "submit": "submit jobs to a cluster, print their results",
    "cluster": "show the state and the tree of a cluster, drain a node, issue tickets",
    "cat": "send and receive by any protocol: nngcat and nanocat in one, and more",
    "pub": "publish: send each message to all subscribers",
    "sub": "subscribe: print published messages, all or by topic",
    "push": "send each message to one of the pullers",
    "pull": "print pushed messages",
    "req": "send requests, print the replies",
    "rep": "print requests and reply to them",
    "survey": "survey all respondents, print their responses",
    "respond": "print surveys and respond to them",
    "bus": "exchange messages with all directly connected peers",
    "pair": "exchange messages with one peer",
    "completion": "print a completion script for bash, zsh or fish",
    "man": "print or write the manual pages",
    "nngcat": "stand in for NNG's nngcat: same options, output and exit codes",
    "nanocat": "stand in for nanomsg's nanocat; nn_push, nn_pull and so on are links to it",
    "device": "forward messages between two addresses: queue, forwarder, streamer, bus, pair",
    "record": "record the messages that sockets receive in a journal",
    "replay": "send the records of a journal again: at their pace, faster, or at full speed",
    "consume": "process the records of a journal as a durable consumer, or serve it to consumers",
    "journal": "list, verify, count and export the records of a journal",
    "bench": "measure rates, drops and latencies of the six protocols",
    "ping": "measure round-trip times repeatedly",
    "top": "show message rates by peer and topic, and losses",
    "doc": "edit, print, store and serve synchronized documents",
    "trust": "make realms, passes and policies: names of peers, and their rights",
    "doctor": "diagnose why two sockets do not communicate",
    "spark": "analyze a journal with Spark",
}
SHORTHANDS: Final = {  # of cat, with the protocol of each
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
PROGRAMS: Final = {  # nanocat's links, with the protocol of each
    f"nn_{name}": name for name in ("push", "pull", "pub", "sub", "req", "rep", "surveyor", "respondent", "bus", "pair")
}
STAND_INS: Final = {"nngcat", "nanocat", *PROGRAMS}
DAEMONS: Final = (  # that run until they are stopped: with a file of settings, see config/
    *("discoverd", "serve", "host", "join", "record", "consume", "device", "gateway"),
    *("doc serve", "trust serve"),
)
PACKAGES: Final = {
    **dict.fromkeys(("cat", "nngcat", "nanocat"), "cat"),
    **dict.fromkeys(("ask", "call", "discoverd", "discover", "resolve", "serve", "watch"), "discovery"),
    **dict.fromkeys(("consume", "journal", "record", "replay", "spark"), "journal"),
    **dict.fromkeys(("bench", "completion", "device", "doctor", "gateway", "man", "ping", "top", "trust"), "tools"),
    **dict.fromkeys(("cluster", "host", "join", "submit"), "cluster"),
    "doc": "doc",
}


def module_of(command: str) -> str:
    """Return the full name of the module that implements `command` or a link of nanocat's.

    >>> module_of("ping"), module_of("push"), module_of("nn_push")
    ('nngkit.cli.tools.ping', 'nngkit.cli.cat.cat', 'nngkit.cli.cat.nanocat')
    """
    name = "cat" if command in SHORTHANDS else "nanocat" if command in PROGRAMS else command
    return f"nngkit.cli.{PACKAGES[name]}.{name}"
