"""Pairs of sockets that make a device."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit import protocols
from nngkit.devices.kinds import KINDS, kind_of
from nngkit.errors import ConfigError

NAMES = sorted({name for kind in KINDS.values() for name in (kind.front, kind.back)})


@given(st.sampled_from(NAMES), st.sampled_from(NAMES))
def test_socket_pairs_make_the_devices_of_the_table_or_none(front: str, back: str) -> None:
    expected = [kind for kind in KINDS.values() if (kind.front, kind.back) == (front, back)]
    if expected:
        assert [kind_of(front, back)] == expected
    else:
        with pytest.raises(ConfigError, match="make none; valid pairs are Rep and Req"):
            kind_of(front, back)


def test_every_socket_name_is_a_protocol_class() -> None:
    for name in NAMES:
        assert issubclass(getattr(protocols, name), protocols.Socket)
    assert [kind.name for kind in KINDS.values()] == list(KINDS)
