"""NNG's byte streams: their options, their descriptors, and what is known of the other end.

docs/nng.md has the findings about NNG behind this module. Independent of SP, messages and nngkit's sockets.
"""

from __future__ import annotations

import os
import socket as sockets
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from nngkit.protocols._nng import descriptors
from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._nng.library import check, ffi, lib, new_aio
from nngkit.protocols._nng.operations import atomically


def configure(kind: str, handle: Any, address: Address) -> None:
    """Set the options that a listener and a dialer have in common."""
    setting = getattr(lib, f"nng_stream_{kind}_set_bool")
    if address.ported:
        setting(handle, b"tcp-nodelay", True)  # off by default on streams, where each then stalls for 40 ms once
        setting(handle, b"tcp-keepalive", True)


def close(stream: Any) -> None:
    """Close and free a stream: its operations end, and their callbacks follow."""
    atomically(*closing(stream))


def closing(stream: Any) -> list[tuple[Any, ...]]:
    """Return ``close`` as calls for ``atomically``."""
    return [(lib.nng_stream_close, stream), (lib.nng_stream_free, stream)]


def wrap(sock: sockets.socket) -> tuple[Any, int | None]:
    """Return ``sock`` as a stream, which owns it from then on, and its descriptor."""
    slot = ffi.new("nng_stream_listener **")
    check(lib.nng_stream_listener_alloc(slot, b"socket://"), "inproc")
    listener, aio, number = slot[0], new_aio(), sock.fileno()
    try:
        check(lib.nng_stream_listener_listen(listener), "inproc")
        lib.nng_stream_listener_accept(listener, aio)
        check(lib.nng_stream_listener_set_int(listener, b"socket:fd", number), "inproc")
        sock.detach()
        lib.nng_aio_wait(aio)  # it has the descriptor it waits for
        check(lib.nng_aio_result(aio), "inproc")
        return ffi.cast("nng_stream *", lib.nng_aio_get_output(aio, 0)), number if descriptors.available else None
    finally:
        lib.nng_aio_free(aio)
        lib.nng_stream_listener_close(listener)
        lib.nng_stream_listener_free(listener)


def expected_descriptor(address: Address) -> int | None:
    """Return the likely descriptor of the next stream, if streams of this transport have one that is found by names."""
    return descriptors.lowest_free() if descriptors.available and address.ported else None


def find_descriptor(stream: Any, expected: int | None) -> int | None:
    """Return the descriptor of a TCP stream, or None if it is unknown."""
    ends = both_ends(stream) if descriptors.available else None
    return None if ends is None else descriptors.by_names(*ends, expected)


def both_ends(stream: Any) -> tuple[descriptors.HostPort, descriptors.HostPort] | None:
    """Return both ends of a TCP stream, the local one first; None once it has closed."""
    local, remote = _host_port(stream, b"local-address"), _host_port(stream, b"remote-address")
    return None if local is None or remote is None else (local, remote)


def unix_path(url: str) -> bytes:
    """Return the name of a Unix socket as the system has it."""
    scheme, _, name = url.partition("://")
    return b"\0" + unquote_to_bytes(name) if scheme == "abstract" else os.fsencode(name)


def _host_port(stream: Any, which: bytes) -> descriptors.HostPort | None:
    where = ffi.new("nng_sockaddr *")
    if lib.nng_stream_get_addr(stream, which, where):
        return None
    if where.s_family == lib.NNG_AF_INET:
        host = sockets.inet_ntop(sockets.AF_INET, bytes(ffi.buffer(ffi.addressof(where.s_in, "sa_addr"))))
        return host, sockets.ntohs(where.s_in.sa_port)
    if where.s_family == lib.NNG_AF_INET6:
        host = sockets.inet_ntop(sockets.AF_INET6, bytes(ffi.buffer(ffi.addressof(where.s_in6, "sa_addr"))))
        return host, sockets.ntohs(where.s_in6.sa_port)
    return None


def remote(stream: Any, number: int | None = None, *, mapped: bool = False) -> str | None:
    """Return host and port of the other end; None if it has none or has closed. A link-local host has its interface.

    An IPv4 address is returned as such even if it is that of an IPv6 socket, unless ``mapped``. ``number``: the
    descriptor, for a stream that ``wrap`` has made, of which NNG knows no address.
    """
    where = _host_port(stream, b"remote-address")
    if where is not None:
        return _text(*where, mapped=mapped, zone=_zone(stream))
    name = None if number is None else descriptors.peer_name(number)
    return None if name is None else shown(name, mapped=mapped)


def shown(name: Sequence[Any], *, mapped: bool = False) -> str:
    """Return the system's name of the end of a TCP connection as ``remote`` does."""
    zone = _interface(name[3]) if len(name) > 3 and name[3] else ""
    return _text(name[0].partition("%")[0], name[1], mapped=mapped, zone=zone)


def _text(host: str, port: int, *, mapped: bool, zone: str) -> str:
    if "." in host and not mapped:
        host = host.removeprefix("::ffff:")
    return f"[{host}{zone}]:{port}" if ":" in host else f"{host}:{port}"


def _zone(stream: Any) -> str:
    """Return % and the interface to a link-local peer, or its index if it is gone; "" for any other peer."""
    where = ffi.new("nng_sockaddr *")
    if lib.nng_stream_get_addr(stream, b"remote-address", where) or where.s_family != lib.NNG_AF_INET6:
        return ""
    index = int(where.s_in6.sa_scope)
    return _interface(index) if index else ""


def _interface(index: int) -> str:
    try:
        return f"%{sockets.if_indextoname(index)}"
    except OSError:
        return f"%{index}"


def peer_user(stream: Any) -> int | None:
    """Return the user at the other end of a Unix socket; None if it is unknown."""
    number = ffi.new("uint64_t *")
    return None if lib.nng_stream_get_uint64(stream, b"ipc:peer-uid", number) else int(number[0])


def peer_process(stream: Any) -> int | None:
    """Return the process id at the other end of a Unix socket; None if it is unknown."""
    number = ffi.new("uint64_t *")
    return None if lib.nng_stream_get_uint64(stream, b"ipc:peer-pid", number) else int(number[0])
