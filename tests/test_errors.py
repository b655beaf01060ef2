"""Texts of errors with unknown parts."""

from __future__ import annotations

from nngkit.errors import TooLarge
from nngkit.protocols._nng import library as _nng


def test_an_unknown_size_is_not_reported_as_0() -> None:
    error = _nng.error(_nng.lib.NNG_EMSGSIZE, "tcp://host:1")
    assert isinstance(error, TooLarge)
    assert str(error) == "message from tcp://host:1 is over the size limit"
    assert (error.size, error.limit, error.peer) == (None, None, "tcp://host:1")
