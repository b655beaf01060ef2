"""Unusable options of an endpoint are refused as it is made, by name."""

from __future__ import annotations

from typing import Any

import pytest

from nngkit.cluster import Host, Member, issue_ticket
from nngkit.errors import ConfigError

LISTEN = "tcp://127.0.0.1:0"
V = {name: f"tcp://127.0.0.1:{port}" for port, name in enumerate("abcdefgh", 7400)}


async def wait(*_: object) -> bool:
    return True


def voters(names: str, **others: Any) -> dict[str, Any]:
    return {name: V[name] for name in names} | others


@pytest.mark.parametrize(
    ("option", "values"),
    {
        "voters": [
            {},
            voters("b"),
            voters("ab"),
            voters("abcdefgh"),
            list(V),
            voters("ab", c="junk"),
            voters("ab", c=5),
        ],
        "advertise": ["junk", 5],
        "discovery": ["junk", 5, [5]],
        "preference": ["x", 1.5, True, 2**53, -(2**53)],
        "fanout": [0, True, "8"],
        "slots": [-1, 2.0],
        "max_members": [0],
        "handlers": [0],
        "recv_max_size": [0, 1000, "x"],
        "lease": [0, float("nan"), "x"],
        "token": [5, b"secret", "", "\udc80", "x" * 2000],
        "ticket": [5, "x" * 2000],
        "authenticator": ["x", wait],
        "load": [0.5, wait],
        "decide": ["x"],
        "transport": ["x"],
        "journal": ["x"],
        "store": ["", 5],
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_host_refuses_unusable_options(option: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ConfigError) as caught:
            Host("c", listen=LISTEN, id="a", **{option: value})
        assert str(caught.value).startswith(f"{option}: "), value


def test_two_voters_at_one_address_are_refused() -> None:
    with pytest.raises(ConfigError, match="voters: two of them have one address"):
        Host("c", listen=LISTEN, id="a", voters=voters("ab", c=V["a"]))


def test_a_secret_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        Host("c", listen=LISTEN, token=b"secret")  # type: ignore[arg-type]
    assert "secret" not in f"{caught.value!r} {caught.value}"


@pytest.mark.parametrize("dial", ["junk", 5, [5], [""], ["tcp://127.0.0.1:7400", "junk"]])
def test_a_member_refuses_unusable_addresses(dial: Any) -> None:
    for option in ("dial", "daemons"):
        with pytest.raises(ConfigError, match=f"{option}: "):
            Member("c", **{option: dial})


@pytest.mark.parametrize(
    ("option", "value"),
    [("token", b"s"), ("token", ""), ("cluster", 5), ("until", float("nan")), ("until", "x"), ("id", "x" * 100)],
)
def test_a_ticket_of_unusable_values_is_refused(option: str, value: Any) -> None:
    given: dict[str, Any] = {"token": "s3cret", "cluster": "c", "until": 1e10, "id": "a"} | {option: value}
    with pytest.raises(ConfigError, match=f"{option}: "):
        issue_ticket(given["token"], given["cluster"], until=given["until"], id=given["id"])
