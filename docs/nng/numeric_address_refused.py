"""A host whose only IPv4 address is 127.0.0.1 cannot listen at it.

pynng 0.9.0 (NNG 1.11.0). It needs `unshare` and `ip`, to make a host with an IPv6 address on an interface.
Expected: a listener at tcp://127.0.0.1:0, as with any program that calls bind().
Observed: an unknown error, -9 of getaddrinfo. NNG looks up numbers too, with AI_ADDRCONFIG, which leaves out the IP
versions of which the host has loopback addresses only. The same holds for ::1 on a host without IPv6, and for dialers.
tcp://[::ffff:127.0.0.1]:0 works.
"""

from _harness import done, error_of, in_own_host
from pynng import ffi, lib

in_own_host(
    "ip link set lo up && ip link add v0 type veth peer name v1 && ip addr add fd00::1/64 dev v0 nodad && "
    "ip link set v0 up && ip link set v1 up"
)


def listen(url):
    """Return the error code of a listener."""
    listener = ffi.new("nng_stream_listener **")
    if code := lib.nng_stream_listener_alloc(listener, url.encode()):
        return code
    code = lib.nng_stream_listener_listen(listener[0])
    lib.nng_stream_listener_free(listener[0])
    return code


number, mapped = listen("tcp://127.0.0.1:0"), listen("tcp://[::ffff:127.0.0.1]:0")
found = f"127.0.0.1: {error_of(number)}; ::ffff:127.0.0.1: {mapped}"
done(found, number == lib.NNG_ESYSERR - 9 and mapped == 0)
