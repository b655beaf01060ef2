"""Segments of shared memory: sealed memfds and their mappings. Linux only.

Seals keep both ends safe: the owner cannot shrink a segment, so that reading it does not end a reader; a reader cannot
map it writable, write to it, nor shrink it. May not know: connections, messages.
"""

from __future__ import annotations

import ctypes
import mmap
import operator
import os
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final, NamedTuple

from nngkit.errors import BadMessage
from nngkit.protocols._nng.library import Payload, ffi
from nngkit.protocols.sp import blank_bytes

F_ADD_SEALS, F_GET_SEALS = 1033, 1034
SEALS: Final = 0x01 | 0x02 | 0x04 | 0x10  # SEAL, SHRINK, GROW, FUTURE_WRITE (Linux 5.1)
_FAILED: Final = ctypes.c_void_p(-1).value


@cache
def functions() -> tuple[Any, Any, Any]:
    """Return mmap, munmap and send of C.

    Python's mmap keeps a descriptor for each mapping (until 3.13). This send raises nothing, and keeps the
    interpreter's lock, so that nobody closes its descriptor meanwhile.
    """
    library, locked = ctypes.CDLL(None, use_errno=True), ctypes.PyDLL(None)
    number, size = ctypes.c_int, ctypes.c_size_t
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = ctypes.c_void_p, size, number, number, number, ctypes.c_ssize_t
    library.munmap.argtypes = ctypes.c_void_p, size
    locked.send.argtypes = number, ctypes.c_char_p, size, number
    return library.mmap, library.munmap, locked.send


def pointers(address: int, *steps: Callable[[], object]) -> Iterator[Any]:
    """Return an iterator in C over one pointer to ``address``; its end makes the steps, each a call into C.

    No code of Python runs then, so no signal handler: one that raised there would lose the steps, and its exception.
    """
    # `get` finds nothing, so that `next` makes all steps and returns its last argument, the plain pointer
    end = partial(next, filter({}.get, map(operator.call, steps)))
    return map(ffi.gc, (ffi.cast("char *", address),), (end,))


class Mapping(NamedTuple):
    """Memory of a descriptor, mapped as long as this is kept; it does not keep the descriptor."""

    address: int
    size: int
    pointer: Any


def _map(descriptor: int, size: int, protection: int) -> Mapping:
    to_map, unmap, _ = functions()
    address = to_map(None, size, protection, mmap.MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), "a segment of shared memory cannot be mapped")
    return Mapping(address, size, next(pointers(address, partial(unmap, address, size))))


def create(size: int) -> tuple[int, Mapping]:
    """Return the descriptor of a new segment, which the caller closes, and its writable mapping. Raises OSError."""
    import fcntl  # not on Windows

    descriptor = os.memfd_create("nngkit", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        mapping = _map(descriptor, size, mmap.PROT_READ | mmap.PROT_WRITE)
        fcntl.fcntl(descriptor, F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, mapping


def accept(descriptor: int, size: int) -> Mapping:
    """Return a read-only mapping of a peer's segment. Raises BadMessage, OSError."""
    import fcntl  # not on Windows

    try:
        seals = fcntl.fcntl(descriptor, F_GET_SEALS)
    except OSError:
        raise BadMessage("shm", "a segment that is no sealed memory") from None
    if seals & SEALS != SEALS:
        raise BadMessage("shm", "a segment without its seals: its owner could end this process by shrinking it")
    # of huge pages there may be none left, which would end this process at the first look
    if os.fstatvfs(descriptor).f_bsize != mmap.PAGESIZE:
        raise BadMessage("shm", "a segment of huge pages")
    if not 0 < size <= os.fstat(descriptor).st_size:
        raise BadMessage("shm", f"a segment shorter than the {size} bytes announced")
    return _map(descriptor, size, mmap.PROT_READ)


def view(pointer: Any, size: int) -> memoryview:
    """Return a view of the memory at ``pointer``, which keeps it."""
    return memoryview(ffi.buffer(pointer, size))


def fill(address: int, data: Payload) -> None:
    """Copy ``data``, any contiguous buffer, to ``address``. Other threads run meanwhile."""
    whole = memoryview(data)
    if not whole.c_contiguous:
        whole = memoryview(bytes(whole))
    # The object that exports the view is kept in no variable, as the frame of an interrupted call may become garbage:
    # up to 3.12, CPython's collector clears views that an object in C still exports, and crashes. `whole` keeps memory.
    ctypes.memmove(address, int(ffi.cast("uintptr_t", ffi.from_buffer(whole))), whole.nbytes)


def copy(data: memoryview, header: bytes = b"") -> bytes:
    """Return ``header`` and ``data``. Other threads run meanwhile."""
    body, start = blank_bytes(len(header) + len(data))
    ctypes.memmove(start, header, len(header))
    fill(start + len(header), data)
    return body
