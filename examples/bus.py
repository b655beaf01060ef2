"""BUS: every node talks to every node it is connected to, and hears all of them but itself.

::

    python3 examples/bus.py

prints::

    ada heard: bob is here, cleo is here, dan is here
    bob heard: ada is here, cleo is here, dan is here
    cleo heard: ada is here, bob is here, dan is here
    dan heard: ada is here, bob is here, cleo is here

A message goes one hop: to the peers that are connected, and not through them to others. So that all may hear all,
each node dials all that were there before it. Best effort: a node that is too slow, or comes too late, misses what was
said. What has to arrive wants an answer (REQ/REP) or a repair.
"""

import trio

from nngkit.protocols import Bus

NAMES = ("ada", "bob", "cleo", "dan")


async def say_and_listen(name: str, node: Bus) -> str:
    await node.asend(f"{name} is here".encode())
    heard = [(await node.arecv()).decode() for _ in range(len(NAMES) - 1)]
    return f"{name} heard: {', '.join(sorted(heard))}"


async def main() -> None:
    nodes: dict[str, Bus] = {}
    try:
        for name in NAMES:
            others = [node.address for node in nodes.values()]
            nodes[name] = Bus(listen="tcp://127.0.0.1:0", dial=others, recv_timeout=5)
        for node in nodes.values():
            await node.await_for_peers(len(NAMES) - 1, timeout=5)

        lines: list[str] = []

        async def node_task(name: str) -> None:
            lines.append(await say_and_listen(name, nodes[name]))

        async with trio.open_nursery() as nursery:
            for name in NAMES:
                nursery.start_soon(node_task, name)
        print("\n".join(sorted(lines)))
    finally:
        for node in nodes.values():
            node.close()


trio.run(main)
