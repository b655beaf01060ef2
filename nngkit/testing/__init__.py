"""Tools for testing programs that use nngkit. They need no test framework.

::

    from nngkit.testing import Conditions, Network, Wire, check_brick, eventually

`eventually` and `aeventually` wait for a condition that has no event. `Network` is a simulated network with a virtual
clock and faults, reproducible from a seed. `check_brick` is the acceptance suite that every socket of nngkit.protocols
passes; a socket class of your own can be checked by it too. Guide: docs/testing-your-code.md.
"""

from nngkit.testing.acceptance import CHECKS, Check, check_brick, select_checks
from nngkit.testing.callers import ASYNCIO, BLOCKING, CALLERS, TRIO, Background, Caller
from nngkit.testing.clock import Timer, VirtualClock
from nngkit.testing.network import Conditions, Network, NetworkStats, Partition
from nngkit.testing.patterns import PATTERNS, Pattern
from nngkit.testing.waiting import aeventually, eventually
from nngkit.testing.wires import TRANSPORTS, Wire, make_wires

__all__ = [
    "ASYNCIO",
    "BLOCKING",
    "CALLERS",
    "CHECKS",
    "PATTERNS",
    "TRANSPORTS",
    "TRIO",
    "Background",
    "Caller",
    "Check",
    "Conditions",
    "Network",
    "NetworkStats",
    "Partition",
    "Pattern",
    "Timer",
    "VirtualClock",
    "Wire",
    "aeventually",
    "check_brick",
    "eventually",
    "make_wires",
    "select_checks",
]
