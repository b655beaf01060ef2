"""The extra `template`: a file made from providers."""

from __future__ import annotations

from pathlib import Path

from nngkit.cli.discovery.template import Template
from nngkit.cli.streams.output import provider_fields
from nngkit.discovery import Provider

Path("t").write_text("{% for one in service('answer') %}{{ one.hostport }}{% endfor %}")
provider = provider_fields(Provider("answer", "tcp://127.0.0.1:9000")) | {"usable": True, "state": "up"}
assert Template("t").render([provider])[0] == "127.0.0.1:9000"
