"""The peer, document and store that the options of `nngkit doc` name.

::

    async with opened(arguments) as peer:
        document = await found(peer, arguments.name, arguments)
"""

from __future__ import annotations

import argparse
import getpass
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio

from nngkit.cli.silence import causes_of
from nngkit.cli.streams.signals import until_signal
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import tls_of
from nngkit.cli.tokens import joining
from nngkit.documents import Document, DocumentPeer
from nngkit.documents.store import Store
from nngkit.errors import ConfigError, NotFound, TimedOut


def user(arguments: argparse.Namespace) -> str:
    """Return the name of the user: --name, or the login."""
    if arguments.me:
        return str(arguments.me)
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return f"user {os.getuid()}"


def meets_others(arguments: argparse.Namespace) -> bool:
    """Return True if the options name peers to connect to."""
    return bool(arguments.dial or arguments.join or arguments.discovery)


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments for DocumentPeer. Raises ConfigError."""
    token, join = joining(arguments.join, arguments.token, "--join")
    return {
        "listen": arguments.listen,
        "dial": arguments.dial,
        "join": join,
        "discovery": arguments.discovery or None,
        "token": token,
        "name": user(arguments),
        "relay": getattr(arguments, "relay", False),
        "tls": tls_of(arguments, *arguments.listen, *arguments.dial, *join, *(arguments.discovery or ())),
    }


@asynccontextmanager
async def opened(arguments: argparse.Namespace, *, new: bool = False) -> AsyncIterator[DocumentPeer]:
    """Run the peer. With `new`, its store is created if missing. Raises NotFound, and the errors of DocumentPeer."""
    if arguments.store is not None and not new and not meets_others(arguments) and not arguments.listen:
        existing(arguments.store)
    async with DocumentPeer(store=arguments.store, **settings(arguments)) as peer:
        yield peer


def existing(path: str) -> str:
    """Return the path of an existing store: commands that only read create none. Raises NotFound."""
    if not Path(path).exists():
        raise NotFound(f"--store: there is no {path}")
    return path


async def found(peer: DocumentPeer, name: str, arguments: argparse.Namespace, *, new: bool = False) -> Document:
    """Open the document, and wait until it has all edits of the named peers that can be reached.

    Raises TimedOut, AccessDenied, and, unless `new`, NotFound if neither the store nor a peer has any edit of it.
    """
    document = peer.open(name)
    if meets_others(arguments):
        try:
            await document.joined(arguments.timeout)
        except TimedOut as late:
            urls = [url.partition("#")[0] for url in arguments.join or ()]
            causes = (
                [] if peer.peers else [*await causes_of(urls, "req"), *await causes_of(arguments.dial or (), "bus")]
            )
            raise TimedOut("; ".join([str(late), *causes]), late.seconds) from late
    if not new and is_new(document):
        raise NotFound(f"there is no document {name!r}")
    return document


def is_new(document: Document) -> bool:
    """Return True if the local copy has no edit at all."""
    return document.engine.state() == Document(document.name).engine.state()


def checked_root(document: Document, root: str) -> str:
    """Return `root`. Raises ConfigError if it exists and is not a text."""
    value = document.plain().get(root)
    if value is not None and not isinstance(value, str):
        raise ConfigError("--text", f"{root!r} of {document.name!r} is not a text", root)
    return root


@contextmanager
def stored(path: str) -> Iterator[Store]:
    """Open the store at `path`, without a peer. Raises NotFound, ConfigError, StoreDamaged."""
    store = Store.open(existing(path))
    try:
        yield store
    finally:
        store.close()


def in_trio(work: Callable[[], Awaitable[None]], warn: Callable[[str], None] | None = None) -> int:
    """Run `work` under trio until it ends or a signal arrives; return the exit code.

    Warnings go to `warn`, by default to standard error.
    """
    with warnings(warn or (lambda text: say("nngkit doc", text))):
        return trio.run(until_signal, work)


class _Forwarding(logging.Handler):
    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._warn = warn

    def emit(self, record: logging.LogRecord) -> None:
        self._warn(record.getMessage())


@contextmanager
def warnings(warn: Callable[[str], None]) -> Iterator[None]:
    """Pass warnings of nngkit.documents (refusals, a failing disk) to `warn` while the block runs."""
    log, handler = logging.getLogger("nngkit.documents"), _Forwarding(warn)
    before, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before
