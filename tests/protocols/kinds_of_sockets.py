"""Kinds of sockets, and what the tests of their life share."""

from __future__ import annotations

import pytest

from nngkit.protocols import (
    Bus,
    Pair0,
    Pair1,
    Pub,
    Pull,
    Push,
    Rep,
    Req,
    Respondent,
    Sub,
    Surveyor,
)

TCP = "tcp://127.0.0.1:0"
KINDS = (Pair0, Pair1, Req, Rep, Push, Pull, Bus, Pub, Sub, Surveyor, Respondent)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
