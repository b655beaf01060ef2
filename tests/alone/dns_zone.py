"""The extra `dns`: a service's name in the DNS."""

from __future__ import annotations

from random import Random

import dns.message

from nngkit.discovery import Provider
from nngkit.discovery.dns.zone import Zone

zone = Zone("nngkit", rng=Random())
zone.update(1, {"answer": [Provider("answer", "tcp://127.0.0.1:9000")]})
reply = zone.reply(dns.message.make_query("answer.service.nngkit", "A").to_wire(), 1232)
assert reply is not None
assert str(dns.message.from_wire(reply).answer[0][0]) == "127.0.0.1"
