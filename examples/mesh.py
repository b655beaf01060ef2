"""Mesh: a network of nodes behaves as one bus, over several hops and around broken links.

::

    python3 examples/mesh.py

prints::

    ada -- bob -- cleo -- dan -- ada, a ring
    bob heard ada: 1 hello
    cleo heard ada: 1 hello
    dan heard ada: 1 hello
    bob leaves: cleo is reached through dan
    cleo heard ada: 2 still there?
    dan heard ada: 2 still there?

Each node connects to some others only. A message is relayed to all nodes to which there is a path; each program gets
it once, in the order of its origin. Missing messages are asked for: each node keeps the last ones for its neighbours.
"""

import trio

from nngkit import Mesh

NAMES = ("ada", "bob", "cleo", "dan")


async def hear(nodes: dict[str, Mesh], names: tuple[str, ...]) -> None:
    for name in names:
        message = await nodes[name].recv(timeout=5)
        print(f"{name} heard {message.origin}: {message.sequence} {message.body.decode()}")


async def run_node(node: Mesh, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    with trio.CancelScope() as scope:
        async with node:
            task_status.started(scope)
            await trio.sleep_forever()


async def main() -> None:
    async with trio.open_nursery() as nursery:
        nodes: dict[str, Mesh] = {}
        scopes: dict[str, trio.CancelScope] = {}
        for name in NAMES:
            known = [nodes[NAMES[NAMES.index(name) - 1]].address] if nodes else []
            if name == NAMES[-1]:
                known.append(nodes[NAMES[0]].address)
            nodes[name] = Mesh(listen="tcp://127.0.0.1:0", dial=known, id=name)
            scopes[name] = await nursery.start(run_node, nodes[name])
        for node in nodes.values():
            await node.wait_for_neighbours(2, timeout=5)

        print(" -- ".join((*NAMES, NAMES[0])) + ", a ring")
        await nodes["ada"].send(b"hello")
        await hear(nodes, ("bob", "cleo", "dan"))

        print("bob leaves: cleo is reached through dan")
        scopes["bob"].cancel()
        await nodes["ada"].send(b"still there?")
        await hear(nodes, ("cleo", "dan"))
        nursery.cancel_scope.cancel()


trio.run(main)
