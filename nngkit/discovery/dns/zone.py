"""Zone of the services: what each name holds, and the reply to a query. Pure.

=================================  ====================  ======================================================
name                               type                  holds
=================================  ====================  ======================================================
NAME.service.ZONE                  SRV                   priority, weight, port and host of each provider
the same                           A, AAAA               addresses of the providers of the first priority
_NAME._tcp.service.ZONE            SRV                   the same, as RFC 2782 writes it
7f000001.addr.ZONE                 A, AAAA               an address, in hexadecimal: what SRV names as the host
ZONE                               SOA                   its serial is the number of changes
=================================  ====================  ======================================================

A provider whose address has a host name is in SRV by that name, and not in A; one without a port (ipc, inproc) is in
neither. Upper and lower case are the same, as everywhere in the DNS. A service's dots separate labels; one whose parts
are longer than 63 bytes has no name here.

    zone = Zone("nngkit", rng=random.Random())
    zone.update(1, discovery.snapshot())
    reply = zone.reply(query, 1232)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from nngkit.chance import Chance
from nngkit.discovery.provider import Provider
from nngkit.errors import ConfigError
from nngkit.instruments import Total

try:
    import dns.exception
    import dns.flags
    import dns.message
    import dns.name
    import dns.opcode
    import dns.rcode
    import dns.rdata
    import dns.rdataclass
    import dns.rdatatype
    import dns.rrset
    from dns.rdtypes.ANY.SOA import SOA
    from dns.rdtypes.IN.A import A
    from dns.rdtypes.IN.AAAA import AAAA
    from dns.rdtypes.IN.SRV import SRV
except ImportError as error:
    raise ConfigError("--dns", "dnspython is not installed: pip install 'nngkit[dns]'") from error

TTL: Final = 1  # seconds: a provider that is down is asked for no longer
MOST: Final = 32  # providers in a reply, those of the first priorities, and among equals at random
HEADER: Final = 12  # bytes; a datagram with fewer has no id to reply to
LABEL: Final = 63  # bytes
EDNS_SIZE: Final = 1232  # bytes of a datagram that no network fragments (DNS flag day 2020)
PLAIN_SIZE: Final = 512  # bytes of a datagram for a caller without EDNS (RFC 1035)
SERVICE: Final = b"service"
ADDRESS: Final = b"addr"
IN: Final = dns.rdataclass.IN

Host = IPv4Address | IPv6Address | dns.name.Name


class _Place(NamedTuple):
    """A provider as the DNS sees it."""

    priority: int
    weight: int
    port: int
    host: Host


@dataclass(slots=True)
class DnsStats:
    """Counters of a zone and its server."""

    queries: Total = 0
    """Queries answered, or malformed."""
    malformed: Total = 0
    """Malformed queries: answered with FORMERR, or unanswered."""
    refused: Total = 0
    """Queries for another zone, and of another kind."""
    truncated: Total = 0
    """Replies without records, which resolvers ask for again over TCP."""
    dropped: Total = 0
    """Queries left unanswered, over the share of time."""
    cut: Total = 0
    """Connections that were closed at a limit."""


class Zone:
    """A zone, replaced as a whole by each `update`. Raises ConfigError for an apex that is not a name of the DNS.

    `rng` chooses among too many providers.
    """

    def __init__(self, apex: str, *, rng: Chance) -> None:
        try:
            self.apex = dns.name.from_text(apex.encode().decode("ascii"))
            self._soa_names = (dns.name.from_text("ns", self.apex), dns.name.from_text("hostmaster", self.apex))
            dns.name.Name([b"x" * LABEL, ADDRESS, *self.apex.labels])  # there is room for names in it
        except (dns.exception.DNSException, UnicodeError) as error:
            raise ConfigError("--dns-zone", f"{apex!r} is not a domain: {error}", apex) from error
        if len(self.apex) < 2:
            raise ConfigError("--dns-zone", "the root belongs to others", apex)
        self._rng = rng
        self.stats = DnsStats()
        self._version = 0
        self._named: dict[bytes, list[Provider]] = {}  # by name in lower case
        self._made: dict[bytes, list[_Place]] = {}  # of those that were asked for
        self._above: set[bytes] = set()  # names without records that have others below: no error

    def update(self, version: int, providers: Mapping[str, Collection[Provider]]) -> None:
        """Take in the providers by name; `version` is higher at each change."""
        self._version = version & 0xFFFFFFFF
        self._named, self._made, self._above = {}, {}, set()
        for name, several in providers.items():
            key = name.encode().lower()
            labels = key.split(b".")
            if all(0 < len(label) <= LABEL for label in labels):
                self._named.setdefault(key, []).extend(several)
                self._above.update(b".".join(labels[first:]) for first in range(1, len(labels)))
                self._above.update(b".".join([*labels[first:], b"_tcp"]) for first in range(1, len(labels) + 1))

    def reply(self, wire: bytes, most: int | None) -> bytes | None:
        """Return the reply to a query, of at most `most` bytes (None: TCP); None for what gets no reply."""
        self.stats.queries += 1
        try:
            query = dns.message.from_wire(wire)
            if len(query.question) != 1 or query.answer or query.authority:
                raise dns.exception.FormError
            reply = dns.message.make_response(query, our_payload=EDNS_SIZE)
        except (dns.exception.DNSException, ValueError):
            self.stats.malformed += 1
            return _form_error(wire)
        if query.opcode() != dns.opcode.QUERY:
            reply.set_rcode(dns.rcode.NOTIMP)
        elif query.edns > 0:
            reply.set_rcode(dns.rcode.BADVERS)
        else:
            self._fill(reply)
        if reply.rcode() in (dns.rcode.NOTIMP, dns.rcode.REFUSED):
            self.stats.refused += 1
        room = 65535 if most is None else PLAIN_SIZE if query.edns < 0 else max(PLAIN_SIZE, min(most, query.payload))
        with suppress(dns.exception.TooBig):
            return reply.to_wire(max_size=room)
        reply.additional = []  # which callers can ask for
        with suppress(dns.exception.TooBig):
            return reply.to_wire(max_size=room)
        self.stats.truncated += 1
        reply.answer = []
        reply.flags |= dns.flags.TC
        return reply.to_wire(max_size=room)

    def _fill(self, reply: dns.message.Message) -> None:
        (question,) = reply.question
        name, kind = question.name, question.rdtype
        transfer = kind != dns.rdatatype.ANY and dns.rdatatype.is_metatype(kind)
        if question.rdclass != IN or not name.is_subdomain(self.apex) or transfer:
            reply.set_rcode(dns.rcode.REFUSED)
            return
        reply.flags |= dns.flags.AA
        records = self._records(tuple(label.lower() for label in name.relativize(self.apex).labels), kind)
        if records is None:
            reply.set_rcode(dns.rcode.NXDOMAIN)
            records = []
        wanted = [record for record in records if kind in (record.rdtype, dns.rdatatype.ANY)]
        for each in dict.fromkeys(record.rdtype for record in wanted):
            same = [record for record in wanted if record.rdtype == each]
            reply.answer.append(dns.rrset.from_rdata_list(name, TTL, same))
        for target in {record.target for record in wanted if isinstance(record, SRV)}:
            if target.is_subdomain(self.apex):
                glue = [dns.rrset.from_rdata(target, TTL, _address(host)) for host in _hosts(target.labels[0])]
                reply.additional.extend(glue)
        if not wanted:
            reply.authority.append(dns.rrset.from_rdata(self.apex, TTL, self._soa()))

    def _records(
        self, labels: tuple[bytes, ...], kind: dns.rdatatype.RdataType
    ) -> Sequence[SOA | SRV | A | AAAA] | None:
        """Return the records at a name in the zone, at least those of `kind`; None if there is no such name."""
        match labels:
            case ():
                return [self._soa()]
            case (b"service",) | (b"addr",):
                return []
            case (host, b"addr"):
                return [_address(each) for each in _hosts(host)] or None
            case (*words, b"_tcp", b"service") if b".".join(words).startswith(b"_") and (
                (name := b".".join(words)[1:]) in self._named
            ):
                return self._srv(name)
            case (*words, b"service"):
                name = b".".join(words)
                if name in self._named:
                    srv = [] if kind in (dns.rdatatype.A, dns.rdatatype.AAAA) else self._srv(name)
                    return [*srv, *([] if kind == dns.rdatatype.SRV else self._first(name))]
                return [] if name in self._above else None
        return None

    def _srv(self, name: bytes) -> list[SRV]:
        records = []
        for place in self._sample(self._places(name)):
            target = place.host
            if not isinstance(target, dns.name.Name):
                target = dns.name.Name([_hex(target), ADDRESS, *self.apex.labels])
            records.append(SRV(IN, dns.rdatatype.SRV, place.priority, place.weight, place.port, target))
        return records

    def _first(self, name: bytes) -> list[A | AAAA]:
        """Return the addresses of the first priority."""
        numbers = [place for place in self._places(name) if not isinstance(place.host, dns.name.Name)]
        first = [place for place in numbers if place.priority == numbers[0].priority]
        return [_address(place.host) for place in self._sample(first) if not isinstance(place.host, dns.name.Name)]

    def _places(self, name: bytes) -> list[_Place]:
        """Return the providers of a name, those of the first priority first."""
        if name not in self._made:
            found = [
                _Place(each.priority, each.weight, *there)
                for each in self._named[name]
                if (there := _port_and_host(each.address)) is not None
            ]
            self._made[name] = sorted(found, key=lambda place: place.priority)
        return self._made[name]

    def _sample(self, places: list[_Place]) -> list[_Place]:
        if len(places) <= MOST:
            return places
        places = list(places)
        self._rng.shuffle(places)
        return sorted(places, key=lambda place: place.priority)[:MOST]

    def _soa(self) -> SOA:
        return SOA(IN, dns.rdatatype.SOA, *self._soa_names, self._version, TTL, TTL, TTL, TTL)


def _port_and_host(address: str) -> tuple[int, Host] | None:
    """Return where a provider is; None without a port, or without a host that the DNS can name."""
    try:
        parts = urlsplit(address)
        if not parts.port or not parts.hostname:
            return None
        try:
            return parts.port, ip_address(parts.hostname)
        except ValueError:
            return parts.port, dns.name.from_text(parts.hostname.encode("ascii").decode())
    except (ValueError, dns.exception.DNSException):
        return None


def _hex(host: IPv4Address | IPv6Address) -> bytes:
    return host.packed.hex().encode()


def _hosts(label: bytes) -> list[IPv4Address | IPv6Address]:
    """Return the address whose `_hex` is `label`, if it is one's."""
    try:
        return [ip_address(bytes.fromhex(label.decode("ascii")))] if len(label) in (8, 32) else []
    except ValueError:
        return []


def _address(host: IPv4Address | IPv6Address) -> A | AAAA:
    if isinstance(host, IPv4Address):
        return A(IN, dns.rdatatype.A, str(host))
    return AAAA(IN, dns.rdatatype.AAAA, host.compressed.partition("%")[0])


def _form_error(wire: bytes) -> bytes | None:
    """Return FORMERR to what is not a query; None to a reply, so that two servers never go on answering each other."""
    if len(wire) < HEADER or wire[2] & 0x80:
        return None
    reply = dns.message.Message(id=int.from_bytes(wire[:2]))
    reply.flags = dns.flags.QR | (wire[2] & 1) << 8  # RD, as asked
    reply.set_rcode(dns.rcode.FORMERR)
    return reply.to_wire()
