"""Gossip on a simulated network; the page docs/testing-your-code.md includes the sections."""

# --8<-- [start:node]
from nngkit.testing import Conditions, Network


class Gossip:
    """Knows the largest number that any node was given. It decides only: no socket, no clock."""

    def __init__(self, number: int) -> None:
        self.largest = number

    def heard(self, number: int) -> None:
        self.largest = max(self.largest, number)


# --8<-- [end:node]


# --8<-- [start:run]
class Shell:
    """Runs a Gossip as a node that repeats its number every 0.1 s."""

    def __init__(self, network: Network, name: str, number: int) -> None:
        self.network, self.name = network, name
        self.gossip = Gossip(number)
        network.start(name, receive=lambda sender, number: self.gossip.heard(number), step=self.step)
        network.wake(name, network.now)

    def step(self) -> None:
        self.network.broadcast(self.name, self.gossip.largest)
        self.network.wake(self.name, self.network.now + 0.1)


def run(seed: int) -> float:
    """Return the time after which all nodes agree, in spite of losses and a partition of one second."""
    network = Network(seed, Conditions(loss=0.3, duplication=0.1, delay=(0.001, 0.05)))
    nodes = [Shell(network, name, number) for number, name in enumerate("abcde")]
    partition = network.split(["a", "b"])
    network.call_at(1.0, partition.heal)
    agreed = network.run_until(60.0, lambda: all(node.gossip.largest == 4 for node in nodes))
    assert agreed, f"seed {seed}: no agreement after {network.now} s"
    return network.now


def test_nodes_agree_after_a_partition() -> None:
    assert all(1.0 < run(seed) < 3.0 for seed in range(100))


# --8<-- [end:run]
test_nodes_agree_after_a_partition()
print(run(7) == run(7))  # True
