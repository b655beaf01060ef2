"""Whole endpoints in memory, killed, restarted and separated: see endpoint_network.py."""

from __future__ import annotations

import pytest

from tests.cluster.endpoint_network import check


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_history_of_faults_ends_well(seed: int) -> None:
    history = check(seed)
    assert history.kills + history.cuts > 0
    assert history.accepted
