"""Effect of hostile peers on others: requests to an undisturbed Rep, and to one under attack.

    python3 dev.py bench hostile [--rounds N] [--seconds S] [--only TEXT] [--json]

The measured client sends one request at a time. The hostile peer is a process of its own, limited to a tenth of a CPU:
invalid hellos, messages of every length, half messages, a thousand silent connections, requests without end. Python's
own sockets echo beside the same peers, without any framing: what to accept and close them costs on this machine.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way

UNDISTURBED = "undisturbed"
BARE = "Python's sockets, "
NAMES = {
    "hellos": "wrong hellos",
    "lengths": "messages of every length",
    "halves": "half messages",
    "silent": "1,000 silent connections",
    "flood": "requests without an end",
}

SHORT = ("hellos", "lengths", "halves")  # connections that come and go

GROUPS = (
    Group(
        "requests beside a hostile peer, tcp, 16 B",
        (
            Way(UNDISTURBED, "_nngkit:ask", "_nngkit:reply", "other"),
            *(Way(NAMES[kind], "_nngkit:ask", "_nngkit:reply_attacked", "other", {"hostile": kind}) for kind in NAMES),
            Way(BARE + UNDISTURBED, "_bare:ask", "_bare:reply", "other"),
            *(
                Way(BARE + NAMES[kind], "_bare:ask", "_bare:reply_attacked", "other", {"hostile": kind})
                for kind in SHORT
            ),
        ),
        (
            *(Promise(f"p99, {NAMES[kind]}", NAMES[kind], UNDISTURBED, 2, 1.5, "p99_us") for kind in NAMES),
            *(
                Promise(f"p99, {BARE}{NAMES[kind]}", BARE + NAMES[kind], BARE + UNDISTURBED, None, None, "p99_us")
                for kind in SHORT
            ),
        ),
    ),
)

if __name__ == "__main__":
    bench.run("hostile", GROUPS, bench.options(__doc__, rounds=5, seconds=2.0).parse_args())
