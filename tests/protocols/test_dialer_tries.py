"""Tries of many dialers whose packets are dropped: none of them is taken for a connection."""

from __future__ import annotations

import sys

import pytest

from tests.hosts import Hosts, hosts

__all__ = ["hosts"]

PROGRAM = """
import sys, time
from nngkit.protocols import Pull

pulls = [Pull(dial=f"tcp://{sys.argv[1]}:{7000 + number}", handshake_timeout=0.5) for number in range(60)]
time.sleep(8.0)  # four tries of each
print(sum(pull.stats.cut for pull in pulls), sum(pull.stats.joined for pull in pulls))
"""


@pytest.mark.slow
def test_a_try_that_times_out_does_not_make_another_one_look_connected(hosts: Hosts) -> None:
    here, there = hosts.add("here"), hosts.add("there")
    hosts.link("here", "there")
    hosts.cut("here", "there")
    done = here.run([sys.executable, "-c", PROGRAM, there.address])
    assert done.stdout.split() == ["0", "0"], done.stdout + done.stderr
