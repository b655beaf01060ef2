"""Exceptions of handlers, and ends of those that were stopped, as error replies: encodable, counted, logged once.

A handler may raise anything: text with bytes of a file name in it, a class whose `str` raises, RemoteError with data
that the codec cannot carry. None of it may end the worker that has to report it.
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from typing import Final

import trio

from nngkit.calls.handlers import Handler, cause, order_to_end
from nngkit.calls.messages import DEADLINE, Codec, ErrorReply
from nngkit.calls.texts import text_of
from nngkit.errors import RemoteError
from nngkit.headers import check_headers

log = logging.getLogger("nngkit.calls")

FAILED: Final = "failed"
MOST_CLASSES: Final = 256  # classes remembered as logged; those beyond them are not logged
MOST_KINDS: Final = 64
"""Cap on the kinds that are counted by name: handlers make kinds of their own, perhaps with a number in each."""
OTHER: Final = "other"


class Failures:
    """Error replies of one server, of at most `limit` bytes, and their counts. `ending`: it ends all calls."""

    def __init__(self, name: str, codec: Codec | None = None, limit: int = 0) -> None:
        self._name = name
        self._codec = codec
        self._limit = limit
        self.ending = False
        self._counts: Counter[str] = Counter()
        self._logged: set[type[BaseException]] = set()
        self._data_logged = False
        self._thread_logged = False

    def count(self, kind: str) -> None:
        """Count an error reply."""
        known = kind in self._counts or len(self._counts) < MOST_KINDS
        self._counts[kind if known else OTHER] += 1

    def counts(self) -> dict[str, int]:
        """Return the counts by kind."""
        return dict(self._counts)

    def reply(self, error: BaseException) -> ErrorReply:
        """Return the reply for a handler's exception; log the first of each class with its traceback.

        Raises what of it is no failure: a cancellation, Ctrl-C.
        """
        order = order_to_end(error)
        if order is error:
            raise error
        error = cause(error)
        if order is not None:  # it was stopped, and has failed in its clean-up as well
            log.error("%s: a handler that was stopped raised\n%s", self._name, _traceback(error))
            raise order from None
        if isinstance(error, RemoteError):
            name = text_of(error.error) or type(error).__name__
            return ErrorReply(text_of(error.kind), text_of(error.message), True, name, error.data)
        name = text_of(type(error).__name__)
        if type(error) not in self._logged and len(self._logged) < MOST_CLASSES:
            self._logged.add(type(error))
            text = "%s: a handler raised; further %s are logged for debugging only\n%s"
            log.error(text, self._name, name, _traceback(error))
        elif log.isEnabledFor(logging.DEBUG):
            log.debug("%s: a handler raised\n%s", self._name, _traceback(error))
        lines = text_of(error).splitlines()
        return ErrorReply(FAILED, f"{name}: {lines[0]}" if lines else name, True, name)

    def stopped(self, handler: Handler | None, scope: trio.CancelScope) -> ErrorReply:
        """Return the reply for a handler that `scope` has stopped; log the first thread that runs on."""
        if handler is not None and handler.plain and not self._thread_logged:
            self._thread_logged = True
            why = "after its call has ended, and takes a slot until it returns; further ones are only counted"
            log.warning("%s: the thread of a handler runs on %s", self._name, why)
        if self.ending:
            return ErrorReply("cancelled", f"{self._name} has left")
        if trio.current_time() >= scope.deadline:
            return ErrorReply(DEADLINE, "the handler was stopped at the deadline")
        return ErrorReply("cancelled", "the caller has given up")

    def encode(self, error: ErrorReply) -> bytes:
        """Encode an error reply, without its data and headers if the codec or the limit does not allow them."""
        assert self._codec is not None
        try:
            if error.headers:
                check_headers(error.headers)
            return error.encode(self._codec, self._limit)
        except Exception as unusable:  # a cycle, a map that another thread changes
            if not self._data_logged:
                self._data_logged = True
                text = "%s: data and headers of an error are left out, as of all further ones of this kind: %s"
                log.warning(text, self._name, text_of(unusable))
            return ErrorReply(error.kind, error.message, error.ran, error.error).encode(self._codec)

    def counted(self, error: ErrorReply) -> bytes:
        """Count an error reply; return its bytes."""
        self.count(error.kind)
        return self.encode(error)


def _traceback(error: BaseException) -> str:
    """Return the traceback as text that UTF-8 can carry: not as `exc_info`, which a log file could not."""
    return text_of("".join(traceback.format_exception(error)).rstrip())
