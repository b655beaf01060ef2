"""What the options of `nngkit doc` speak of: a peer, with whom it meets, and a store.

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

from nngkit.cli.main import say
from nngkit.cli.signals import until_signal
from nngkit.cli.tls import tls_of
from nngkit.cli.tokens import joining
from nngkit.documents import Document, DocumentPeer
from nngkit.documents.store import Store
from nngkit.errors import NotFound

__all__ = ["found", "in_trio", "is_new", "meets_others", "opened", "settings", "stored", "user", "warnings"]


def user(arguments: argparse.Namespace) -> str:
    """Who sits here: --name, or the login."""
    if arguments.me:
        return str(arguments.me)
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as containers have it
        return f"user {os.getuid()}"


def meets_others(arguments: argparse.Namespace) -> bool:
    """Whether somebody was named who has to be there."""
    return bool(arguments.dial or arguments.join or arguments.discovery)


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments for DocumentPeer. Raises ConfigError."""
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
    """The peer. `new`: its store may be made. Raises what entering one raises, and NotFound."""
    if arguments.store is not None and not new and not meets_others(arguments) and not arguments.listen:
        existing(arguments.store)
    async with DocumentPeer(store=arguments.store, **settings(arguments)) as peer:
        yield peer


def existing(path: str) -> str:
    """A store that is there: whoever only reads makes no new one. Raises NotFound."""
    if not Path(path).exists():
        raise NotFound(f"--store: there is no {path}")
    return path


async def found(peer: DocumentPeer, name: str, arguments: argparse.Namespace, *, new: bool = False) -> Document:
    """The document, once all is here that those have who were named and can be reached. Raises TimedOut, AccessDenied.

    NotFound where neither the store nor anybody else has anything of it, unless it may be `new`.
    """
    document = peer.open(name)
    if meets_others(arguments):
        await document.joined(arguments.timeout)
    if not new and is_new(document):
        raise NotFound(f"there is no document {name!r}")
    return document


def is_new(document: Document) -> bool:
    """Whether nobody has ever written anything in it, as far as is known here."""
    return document.engine.state() == Document(document.name).engine.state()


@contextmanager
def stored(path: str) -> Iterator[Store]:
    """The store at `path`, without a peer. Raises NotFound, ConfigError, StoreDamaged."""
    store = Store.open(existing(path))
    try:
        yield store
    finally:
        store.close()


def in_trio(work: Callable[[], Awaitable[None]], tell: Callable[[str], None] | None = None) -> int:
    """Run `work` under trio, until it ends or a signal comes; the exit code. Warnings go to `tell`, or to stderr."""
    with warnings(tell or (lambda text: say("nngkit doc", text))):
        return trio.run(until_signal, work)


class _Told(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


@contextmanager
def warnings(tell: Callable[[str], None]) -> Iterator[None]:
    """Have warnings of the documents room (what was refused, a disk that fails) told by `tell` meanwhile."""
    log, handler = logging.getLogger("nngkit.documents"), _Told(tell)
    before, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before
