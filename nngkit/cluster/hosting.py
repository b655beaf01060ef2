"""Host and Member: the two ways to make an endpoint of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Unpack

from nngkit.cluster.endpoint import Endpoint, EndpointOptions
from nngkit.cluster.shell.options import check_voters
from nngkit.errors import ConfigError
from nngkit.trust import Trust, chosen


class Host(Endpoint):
    """An endpoint that may be the host of its cluster: one of its voters.

    Alone it is the only voter, and host at once. With `voters` it is one of several that elect the host; then a
    cluster survives the death of a minority of them, and of its host. Its `id` is "host" by default, with a trust the
    name of the pass. See Endpoint for the options.

    Without `voters`, a host that comes back after its death begins a new cluster: its members join again, what it had
    accepted is in its `store` or lost.
    """

    def __init__(
        self,
        cluster: str,
        *,
        listen: str | None = None,
        id: str | None = None,
        voters: Mapping[str, str] | None = None,
        **options: Unpack[EndpointOptions],
    ) -> None:
        if listen is None and options.get("transport") is None:
            raise ConfigError("listen", "a host accepts members at an address")
        trust = chosen(options.get("trust"), options.get("tls"))
        own = trust.name if isinstance(trust, Trust) else "host"
        check_voters(voters, named := own if id is None else id)
        super().__init__(cluster, listen=listen, id=named, voters=voters, alone=voters is None, **options)

    @property
    def address(self) -> str:
        """Address at which other nodes reach it."""
        address = super().address
        assert address is not None  # a voter without one is not opened
        return address


class Member(Endpoint):
    """An endpoint that joins a cluster. With `listen` it may have children; see Endpoint for the options."""

    def __init__(
        self,
        cluster: str,
        *,
        dial: str | Iterable[str] = (),
        daemons: str | Iterable[str] = (),
        id: str | None = None,
        listen: str | None = None,
        **options: Unpack[EndpointOptions],
    ) -> None:
        if not dial and not daemons:
            raise ConfigError("dial", "a member needs the address of a node of the cluster, or discovery daemons")
        super().__init__(cluster, dial=dial, daemons=daemons, id=id, listen=listen, **options)
