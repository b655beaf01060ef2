"""The zone of services: what each name holds, what is refused, and that no bytes harm it."""

from __future__ import annotations

import socket
import time
from random import Random

import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdatatype
import pytest
import trio
import trio.testing
from hypothesis import example, given
from hypothesis import strategies as st

from nngkit.discovery import Provider
from nngkit.discovery.dns.server import serve
from nngkit.discovery.dns.zone import MOST, DnsStats, Zone
from nngkit.errors import ConfigError

PROVIDERS = {
    "answer": [
        Provider("answer", "tcp://10.0.0.1:9000", id="a", weight=50),
        Provider("answer", "tls+tcp://[2001:db8::2]:9001", id="b", weight=0),
        Provider("answer", "tcp://10.0.0.3:9000", id="c", priority=9),
        Provider("answer", "ipc:///tmp/answer", id="d"),
    ],
    "Pay.eu": [Provider("Pay.eu", "tcp://host.example:80", id="e")],
    "a b": [Provider("a b", "tcp://10.0.0.4:1", id="f")],
    f"{'long' * 16}": [Provider("long" * 16, "tcp://10.0.0.5:1", id="g")],
}


@pytest.fixture
def zone() -> Zone:
    made = Zone("nngkit", rng=Random(1))
    made.update(7, PROVIDERS)
    return made


def ask(zone: Zone, name: str, kind: str = "SRV", most: int | None = 1232) -> dns.message.Message:
    query = dns.message.make_query(name, kind, use_edns=0)
    wire = zone.reply(query.to_wire(), most)
    assert wire is not None
    reply = dns.message.from_wire(wire)
    assert query.is_response(reply)
    return reply


def texts(section: list[dns.rrset.RRset]) -> set[str]:
    assert {each.ttl for each in section} <= {1}
    return {f"{dns.rdatatype.to_text(each.rdtype)} {record}" for each in section for record in each}


def test_srv_has_each_provider_with_a_port_and_addresses_beside(zone: Zone) -> None:
    for name in ("answer.service.nngkit", "ANSWER.Service.nngkit", "_answer._tcp.service.nngkit"):
        reply = ask(zone, name)
        assert texts(reply.answer) == {
            "SRV 8 50 9000 0a000001.addr.nngkit.",
            "SRV 8 0 9001 20010db8000000000000000000000002.addr.nngkit.",
            "SRV 9 100 9000 0a000003.addr.nngkit.",
        }
        assert texts(reply.additional) == {"A 10.0.0.1", "AAAA 2001:db8::2", "A 10.0.0.3"}
        assert reply.flags & dns.flags.AA


def test_addresses_are_those_of_the_first_priority(zone: Zone) -> None:
    assert texts(ask(zone, "answer.service.nngkit", "A").answer) == {"A 10.0.0.1"}
    assert texts(ask(zone, "answer.service.nngkit", "AAAA").answer) == {"AAAA 2001:db8::2"}
    assert texts(ask(zone, "0a000003.addr.nngkit", "A").answer) == {"A 10.0.0.3"}


def test_a_provider_with_a_host_name_is_in_srv_by_it(zone: Zone) -> None:
    assert texts(ask(zone, "pay.eu.service.nngkit").answer) == {"SRV 8 100 80 host.example."}
    assert ask(zone, "pay.eu.service.nngkit", "A").answer == []


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("unknown.service.nngkit", "SRV", dns.rcode.NXDOMAIN),
        ("answer.nngkit", "A", dns.rcode.NXDOMAIN),
        ("answer._tcp.service.nngkit", "SRV", dns.rcode.NXDOMAIN),
        ("0a00000.addr.nngkit", "A", dns.rcode.NXDOMAIN),
        ("a.b.c.nngkit", "A", dns.rcode.NXDOMAIN),
        (f"{'long' * 16}"[:63] + ".service.nngkit", "SRV", dns.rcode.NXDOMAIN),
        ("answer.service.nngkit", "TXT", dns.rcode.NOERROR),
        ("eu.service.nngkit", "SRV", dns.rcode.NOERROR),
        ("_tcp.service.nngkit", "SRV", dns.rcode.NOERROR),  # resolvers that ask label by label stop at NXDOMAIN
        ("eu._tcp.service.nngkit", "SRV", dns.rcode.NOERROR),
        ("us._tcp.service.nngkit", "SRV", dns.rcode.NXDOMAIN),
        ("service.nngkit", "A", dns.rcode.NOERROR),
        ("nngkit", "NS", dns.rcode.NOERROR),
    ],
)
def test_what_is_not_there_is_told_with_the_soa(zone: Zone, name: str, kind: str, code: dns.rcode.Rcode) -> None:
    reply = ask(zone, name, kind)
    assert reply.rcode() == code
    assert reply.answer == []
    assert texts(reply.authority) == {"SOA ns.nngkit. hostmaster.nngkit. 7 1 1 1 1"}


def test_other_zones_kinds_and_operations_are_refused(zone: Zone) -> None:
    assert ask(zone, "example.com", "A").rcode() == dns.rcode.REFUSED
    assert ask(zone, "nngkit", "AXFR").rcode() == dns.rcode.REFUSED
    update = dns.message.make_query("nngkit", "SOA")
    update.set_opcode(dns.opcode.NOTIFY)
    wire = zone.reply(update.to_wire(), 1232)
    assert wire is not None
    assert dns.message.from_wire(wire).rcode() == dns.rcode.NOTIMP
    assert zone.stats.refused == 3


def test_a_reply_is_bounded_and_complete_over_tcp() -> None:
    zone = Zone("nngkit", rng=Random(1))
    zone.update(1, {"a": [Provider("a", f"tcp://10.0.{n // 250}.{n % 250}:1", id=str(n)) for n in range(1000)]})
    query = dns.message.make_query("a.service.nngkit", "SRV", use_edns=False).to_wire()
    for most, edns in ((1232, 0), (1232, False)):
        wire = zone.reply(dns.message.make_query("a.service.nngkit", "SRV", use_edns=edns).to_wire(), most)
        assert wire is not None
        assert len(wire) <= (1232 if edns is not False else 512)
        assert dns.message.from_wire(wire).flags & dns.flags.TC
    assert zone.stats.truncated == 2
    wire = zone.reply(query, None)
    assert wire is not None
    assert len(dns.message.from_wire(wire).answer[0]) == MOST


@pytest.mark.parametrize("apex", ["", ".", "a..b", "ä", "x" * 64, ".".join(["x" * 60] * 4)])
def test_an_apex_is_a_domain(apex: str) -> None:
    with pytest.raises(ConfigError, match="--dns-zone"):
        Zone(apex, rng=Random())


GOOD = dns.message.make_query("answer.service.nngkit", "SRV", use_edns=0).to_wire()


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """Return a query with some bytes replaced, cut or longer."""
    wire = bytearray(GOOD)
    for _ in range(draw(st.integers(1, 4))):
        wire[draw(st.integers(0, len(wire) - 1))] = draw(st.integers(0, 255))
    return bytes(wire[: draw(st.integers(0, len(wire)))]) + draw(st.binary(max_size=8))


@given(st.one_of(changed(), st.binary(max_size=200)))
@example(GOOD[:2] + b"\x80" + GOOD[3:])  # a reply
@example(GOOD[:12] + b"\xc0\x0c" + GOOD[12:])  # a name that points to itself
def test_any_bytes_get_a_reply_to_them_or_none(wire: bytes) -> None:
    zone = Zone("nngkit", rng=Random(1))
    zone.update(1, PROVIDERS)
    reply = zone.reply(wire, 1232)
    assert zone.stats.queries == 1
    if reply is None:
        assert zone.stats.malformed == 1
        assert len(wire) < 12 or wire[2] & 0x80
    else:
        assert len(reply) <= 1232
        assert reply[:2] == wire[:2]
        assert reply[2] & 0x80
        assert not wire[2] & 0x80


async def test_replies_take_no_more_than_their_share_of_the_time() -> None:
    stats = DnsStats()

    def reply(query: bytes, most: int | None) -> bytes:
        time.sleep(0.02)
        return query

    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve, "127.0.0.1", 0, reply, stats)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
            caller.connect(("127.0.0.1", port))
            began = time.monotonic()
            for number in range(100):
                caller.send(bytes([number]))
            with trio.fail_after(10):
                await trio.testing.wait_all_tasks_blocked(0.05)
            assert time.monotonic() - began < 1.5  # all of them would take 2 s
            assert 50 < stats.dropped < 100
            assert caller.recv(10) == b"\x00"
        nursery.cancel_scope.cancel()
