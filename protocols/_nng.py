"""NNG as pynng ships it: its library handle, its error codes as ours, and bytes to send.

Everything here is private to ``protocols/``. May not know: sockets, event loops.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import pynng

from nngkit.errors import AccessDenied, Broken, Closed, ConfigError, NngkitError, TooLarge, Unreachable

lib: Any = pynng.lib
ffi: Any = pynng.ffi
NULL = ffi.NULL
uninitialized = ffi.new_allocator(should_clear_after_alloc=False)


def strerror(code: int) -> str:
    """NNG's own words for an error code, lower-cased as the rest of our messages are."""
    text: str = ffi.string(lib.nng_strerror(code)).decode()
    return text[:1].lower() + text[1:]


def error(code: int, where: str) -> NngkitError:
    """The error of ours that says what NNG's ``code`` means for a caller at ``where``."""
    text = strerror(code)
    if code == lib.NNG_ECLOSED:
        return Closed(f"{where}: closed")
    if code in (lib.NNG_EADDRINVAL, lib.NNG_EINVAL, lib.NNG_ENOTSUP, lib.NNG_EBADTYPE, lib.NNG_EREADONLY):
        return ConfigError(where, text)
    if code == lib.NNG_EMSGSIZE:
        return TooLarge(None, None, where)
    if code in (lib.NNG_EPEERAUTH, lib.NNG_EPERM, lib.NNG_ECRYPTO):
        return AccessDenied(f"{where}: {text}")
    if code in (lib.NNG_EADDRINUSE, lib.NNG_ECONNREFUSED, lib.NNG_EUNREACHABLE, lib.NNG_ENOENT, lib.NNG_ENOFILES):
        return Unreachable(where, text)
    return Broken(f"{where}: {text}")


def check(code: int, where: str) -> None:
    """Raise what ``code`` means, if it means a failure."""
    if code:
        raise error(code, where)


def new_aio(callback: Any = NULL, argument: Any = NULL) -> Any:
    """A fresh aio; whoever asks frees it."""
    slot = ffi.new("nng_aio **")
    check(lib.nng_aio_alloc(slot, callback, argument), "aio")
    return slot[0]


if TYPE_CHECKING:
    from typing_extensions import Buffer  # type checkers know it under every Python; nothing is installed
elif sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:
    Buffer = bytes | bytearray | memoryview  # and whatever else memoryview() takes: there is no type for that in 3.11

Payload: TypeAlias = Buffer
"""What a message may be: any bytes-like object."""


def as_bytes(data: Payload) -> bytes:
    """``data`` as bytes that stay what they are; a copy unless they are bytes already."""
    if type(data) is bytes:
        return data
    if isinstance(data, str):
        raise TypeError("a message is bytes, not str: encode it first")
    return bytes(memoryview(data))
