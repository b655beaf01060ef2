"""Cost of starting the command: CPU of a whole process, compared with bare Python and with importing pynng.

    python3 dev.py bench start_up [--rounds N] [--only TEXT] [--json]

Each way starts its program repeatedly, at least five times. ``cpu_us`` is the CPU of the process, all threads,
``p50_us`` the time until it has ended. A ratio must be below its target.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way


def way(name: str, *arguments: str) -> Way:
    return Way(name, "_start_up:start", task={"arguments": arguments})


def promise(name: str, base: str, most: float, aim: float) -> Promise:
    return Promise(f"{name} beside {base}", name, base, most, aim, "cpu_us")


BARE = way("bare Python", "-c", "pass")
PYNNG = way("import pynng", "-c", "import pynng")
CATS = {
    "cat": ("cat", "--pull", "-L0", "--recv-timeout", "0"),
    "nngcat": ("nngcat", "--pub", "-L0", "--data", "x"),
    "nanocat": ("nanocat", "--pull", "-l1", "--recv-timeout", "0"),
}
HELPS = ("cat", "sub", "nngcat", "nanocat", "discover", "discoverd", "resolve")

GROUPS = (
    Group(
        "a cat that has nothing to do",
        (BARE, PYNNG, *(way(name, "-m", "nngkit", *arguments) for name, arguments in CATS.items())),
        (promise("cat", "import pynng", 1.3, 1.2), promise("cat", "bare Python", 10, 3)),
    ),
    Group(
        "--help",
        (BARE, way("nngkit", "-m", "nngkit", "--help"), *(way(name, "-m", "nngkit", name, "--help") for name in HELPS)),
        tuple(promise(name, "bare Python", 4, 3) for name in ("nngkit", *HELPS)),
    ),
)

if __name__ == "__main__":
    bench.run("start_up", GROUPS, bench.options(__doc__, rounds=5, seconds=0.5).parse_args())
