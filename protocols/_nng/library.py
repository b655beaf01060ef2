"""NNG as shipped by pynng: its library handle, its error codes as our exceptions, and payloads.

Everything here is private to ``protocols/``. May not know: sockets, event loops.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pynng

from nngkit.errors import AccessDenied, Broken, Closed, ConfigError, NngkitError, TooLarge, Unreachable

lib: Any = pynng.lib
ffi: Any = pynng.ffi
NULL = ffi.NULL
IOVS: Final = 8  # buffers of one operation; nng_aio_set_iov refuses more, and the previous ones would be used again
uninitialized = ffi.new_allocator(should_clear_after_alloc=False)


def _complete() -> None:
    """Let cffi build all functions and types that are used, here and not in the first calls.

    It builds each on first use, in steps between which Python 3.11 may collect garbage, and so run another thread. One
    of NNG's threads that came to the same type then ended the process ("lost a struct/union!", or SIGSEGV).
    """
    for name in dir(lib):
        getattr(lib, name)
    where = ffi.new("nng_sockaddr *")
    for member in (where.s_in, where.s_in6):
        ffi.buffer(ffi.addressof(member, "sa_addr"))
    for kind in ("nng_iov[]", "char[]"):
        ffi.new(kind, 1)
    for kind in ("nng_aio **", "nng_stream_dialer **", "nng_stream_listener **", "uint64_t *", "int *"):
        ffi.new(kind)
    for kind in ("nng_stream *", "char *", "void *", "uintptr_t"):
        ffi.cast(kind, NULL)


_complete()


def no_such_family(code: int) -> bool:
    """Return True if NNG finds no address of that IP version usable; it adds getaddrinfo's negative code to its own."""
    return 0 < int(lib.NNG_ESYSERR) - code < 64


def strerror(code: int) -> str:
    """Return NNG's text for an error code, with a lower-case first letter."""
    if no_such_family(code):
        return "this host has no other address of that IP version"
    text: str = ffi.string(lib.nng_strerror(code)).decode()
    return text[:1].lower() + text[1:]


def error(code: int, where: str) -> NngkitError:
    """Return our exception for NNG's error ``code`` at ``where``."""
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
    """Raise the exception for ``code``, unless it is 0."""
    if code:
        raise error(code, where)


def new_aio(callback: Any = NULL, argument: Any = NULL) -> Any:
    """Return a new aio, which the caller frees."""
    slot = ffi.new("nng_aio **")
    check(lib.nng_aio_alloc(slot, callback, argument), "aio")
    return slot[0]


if TYPE_CHECKING:
    from typing_extensions import Buffer  # type checkers know it under every Python version; nothing is installed
elif sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:
    Buffer = bytes | bytearray | memoryview  # memoryview() accepts more, but 3.11 has no type for that

Payload: TypeAlias = Buffer
"""Type of a message to send: any bytes-like object."""


def size_of(data: Payload) -> int:
    """Return the bytes of ``data``. Raises TypeError."""
    if type(data) is bytes:
        return len(data)
    if isinstance(data, str):
        raise TypeError("a message must be bytes, not str: encode it first")
    return memoryview(data).nbytes


def as_bytes(data: Payload) -> bytes:
    """Return ``data`` as immutable bytes; copy it unless it is bytes already."""
    if type(data) is bytes:
        return data
    if isinstance(data, str):
        raise TypeError("a message must be bytes, not str: encode it first")
    return bytes(memoryview(data))
