"""A simulated cluster: the places of many nodes, over links that are in order and lose nothing until they end.

An oracle stands for the election: it lets one voter lead whenever the present host has no majority of them any more.
After every event of a node the invariants of `nngkit.cluster.tree.place` are checked: no loop, one root for each term,
at most twice the fan-out of children, events that fit each other. `settled` is the state that every history must reach.

    python -m tests.many_histories place 20000
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from random import Random

from nngkit.cluster.tree.messages import KINDS, Message
from nngkit.cluster.tree.place import Place
from nngkit.cluster.tree.shape import depths_of, ideal_depth
from nngkit.cluster.tree.values import (
    ChildDown,
    ChildUp,
    Left,
    MemberAdded,
    MemberRemoved,
    ParentDown,
    ParentUp,
    PlaceEvent,
    PlaceLimits,
    PlaceRefused,
    Silent,
)
from nngkit.envelope import decode, encode
from nngkit.testing.network import Network, Partition

MOST_TICKS = 20  # of a node at one moment: a few things may be due one after the other


class Node:
    """One run of a node."""

    def __init__(self, network: PlaceNetwork, name: str, id: str, epoch: int, *, fanout: int, voter: bool) -> None:
        self.network = network
        self.name = name
        self.epoch = epoch
        self.voter = voter
        self.alive = True
        self.links: dict[int, Link] = {}
        self.parents: dict[int, str] = {}
        self.children: dict[int, str] = {}
        self.members: set[str] = set()
        self.refusals: list[PlaceRefused] = []
        self.silent: list[Silent] = []
        self.gone = False
        self.attached_at: list[float] = []
        address = network.address(name) if fanout else None
        self.place = Place(
            id,
            epoch,
            address=address,
            seeds=network.seeds,
            voters={voter: network.address(voter) for voter in network.voters},
            fanout=fanout or 1,
            may_host=voter,
            now=network.net.now,
            rng=network.node_rng,
            limits=network.limits,
            facts={"slots": 1},
        )

    def step(self) -> None:
        """Carry out the effects of the place, and check them."""
        place, network = self.place, self.network
        now = network.net.now
        ticks = 0
        while now >= place.wake_at:
            place.tick(now)
            self._carry_out()
            ticks += 1
            assert ticks < MOST_TICKS, f"{self.name} wakes at once, again and again"
        self._carry_out()
        if self.alive:
            network.net.wake(self.name, max(place.wake_at, now + 1e-4) if place.wake_at < 1e12 else now + 1e6)

    def _carry_out(self) -> None:
        network = self.network
        effects = self.place.take()
        for number, message in effects.sends:
            self.links[number].send(self, message)
        for number in effects.drop:
            link = self.links.pop(number, None)
            if link is not None:
                link.end(self)
        for address in effects.dial:
            network.dial(self, address)
        if effects.events:
            self._check(effects.events)
            self._check_state()

    def _check(self, events: Iterable[PlaceEvent]) -> None:
        for event in events:
            if isinstance(event, ParentUp):
                assert event.link not in self.parents, event
                self.parents[event.link] = event.id
                self.attached_at.append(self.network.net.now)
                self.network.check_loop(self)
            elif isinstance(event, ParentDown):
                assert self.parents.pop(event.link) == event.id
            elif isinstance(event, ChildUp):
                assert event.link not in self.children, event
                self.children[event.link] = event.id
            elif isinstance(event, ChildDown):
                assert self.children.pop(event.link) == event.id
            elif isinstance(event, MemberAdded):
                assert (event.member.id in self.members) == (event.before is not None), event
                self.members.add(event.member.id)
            elif isinstance(event, MemberRemoved):
                self.members.remove(event.member.id)
            elif isinstance(event, PlaceRefused):
                self.refusals.append(event)
            elif isinstance(event, Silent):
                self.silent.append(event)
            elif isinstance(event, Left):
                self.gone = True

    def _check_state(self) -> None:
        place = self.place
        if place.id not in self.network.shared_ids:  # else a path with the own id is no loop: it has that of another
            assert place.stats.loops == 0, self.name
        assert len(place.children) <= 2 * max(1, place.fanout), (self.name, place.children)
        assert set(place.children) == set(self.children)
        assert place.parent is None or place.parent in self.parents
        assert not (place.leading and place.parent is not None)


class Link:
    """One connection: two numbers, one at each end, and two queues in order."""

    def __init__(self, network: PlaceNetwork, one: Node, other: Node) -> None:
        self.network = network
        self.ends = (one, other)
        self.numbers = {id(one): network.number(), id(other): network.number()}
        self.open = {id(one): False, id(other): False}
        self.arrival = {id(one): 0.0, id(other): 0.0}
        self.ended = False  # by one of the ends
        self.stalled: dict[int, list[Message | None]] = {id(one): [], id(other): []}

    def other(self, node: Node) -> Node:
        return self.ends[self.ends[0] is node]

    def open_at(self, node: Node, dialed: str | None) -> None:
        number = self.numbers[id(node)]
        if not node.alive:
            return
        self.open[id(node)] = True
        node.links[number] = self
        node.place.link_up(number, self.network.net.now, dialed=dialed)
        node.step()

    def send(self, sender: Node, message: Message | None) -> None:
        """Send a message; None is the end of the link."""
        network = self.network
        if message is not None:
            network.sent[type(message).__name__] = network.sent.get(type(message).__name__, 0) + 1
            if network.wire:
                again = KINDS.parse(decode(encode(KINDS.pack(message)), what="test", limit=65536), sender.name)
                assert again == message, (again, message)
        receiver = self.other(sender)
        at = max(network.net.now + network.delay(), self.arrival[id(receiver)] + 1e-9)
        self.arrival[id(receiver)] = at
        network.net.call_at(at, lambda: self._arrive(receiver, message))

    def _arrive(self, receiver: Node, message: Message | None) -> None:
        if not receiver.alive or not self.open[id(receiver)]:
            return
        if self.stalled[id(receiver)] or not self.network.reach(receiver, self.other(receiver)):
            self.stalled[id(receiver)].append(message)
            return
        number = self.numbers[id(receiver)]
        if number not in receiver.links:
            return
        if message is None:
            self.open[id(receiver)] = False
            del receiver.links[number]
            receiver.place.link_down(number, self.network.net.now)
        else:
            receiver.place.receive(number, message, self.network.net.now)
        receiver.step()

    def resume(self) -> None:
        """Deliver what a partition has held up."""
        for receiver in self.ends:
            if self.network.reach(receiver, self.other(receiver)):
                held, self.stalled[id(receiver)] = self.stalled[id(receiver)], []
                for message in held:
                    self._arrive(receiver, message)

    def end(self, node: Node) -> None:
        """End the link at one side; the other side hears of it after all that was sent."""
        self.open[id(node)] = False
        self.send(node, None)


class PlaceNetwork:
    """Nodes, links and the oracle. All chance comes from the seed."""

    def __init__(
        self,
        seed: int,
        voters: int = 3,
        *,
        fanout: int = 3,
        delay: tuple[float, float] = (0.001, 0.001),
        limits: PlaceLimits | None = None,
        wire: bool = False,
        lease: float = 0.5,
    ) -> None:
        self.rng = Random(seed)
        self.node_rng = Random(seed + 1)
        self.net = Network(seed, now=1000.0)
        self.limits = limits
        self.fanout = fanout
        self.wire = wire
        self._delay = delay
        self._numbers = 0
        self.sent: dict[str, int] = {}
        self.voters = [f"v{number}" for number in range(voters)]
        self.seeds = [self.address(name) for name in self.voters]
        self.nodes: dict[str, Node] = {}
        self.shared_ids: set[str] = set()  # ids that two nodes had at a time
        self.all_links: list[Link] = []
        self.term = 0
        self.host: str | None = None
        self.lease = lease
        self._unheard: float | None = None
        self._told: dict[str, tuple[int, str | None]] = {}
        self.elected_at = 0.0
        self.cuts: list[Partition] = []
        self.net.call_later(0.0, self._oracle)

    # ---- nodes

    def address(self, name: str) -> str:
        return f"sim:{name}"

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def delay(self) -> float:
        low, high = self._delay
        return low if low == high else low + (high - low) * self.rng.random()

    def add(self, name: str, *, fanout: int | None = None, id: str | None = None) -> Node:
        """Start a node, or start it again."""
        voter = name in self.voters
        epoch = int(self.net.now * 1e6) + self.number()
        node = Node(self, name, id or name, epoch, fanout=self.fanout if fanout is None else fanout, voter=voter)
        self.nodes[name] = node
        if node.place.id != name:
            self.shared_ids.add(node.place.id)
        self._told.pop(name, None)
        self.net.start(name, step=node.step)
        node.place.join(self.net.now)
        node.step()
        return node

    def kill(self, name: str, *, silently: bool = False) -> None:
        """Stop a node: its links end at once, or, if its machine has died, give no sign of life."""
        node = self.nodes.pop(name)
        node.alive = False
        self.net.crash(name)
        links, node.links = list(node.links.values()), {}
        for link in links:
            link.open[id(node)] = False
            if not silently:
                link.send(node, None)

    def leave(self, name: str) -> None:
        node = self.nodes[name]
        node.place.leave(self.net.now)
        node.step()

    def reach(self, one: Node, other: Node) -> bool:
        return not any((one.name in cut.side) != (other.name in cut.side) for cut in self.cuts)

    def split(self, side: Collection[str]) -> None:
        self.cuts.append(self.net.split(side))

    def heal(self) -> None:
        self.cuts.clear()
        self.net.heal()
        self.all_links = [link for link in self.all_links if any(link.open.values())]
        for link in self.all_links:
            link.resume()

    def dial(self, node: Node, address: str) -> None:
        """Connect, as TCP does: the accepting side first, the dialing one after a round trip."""

        def failed() -> None:
            if node.alive:
                node.place.dial_failed(address, self.net.now)
                node.step()

        def arrive() -> None:
            target = self.nodes.get(address.removeprefix("sim:"))
            if target is None or not target.alive:
                self.net.call_later(self.delay(), failed)
            elif not self.reach(node, target):
                self.net.call_later(1.0 + self.rng.random(), failed)
            else:
                link = Link(self, node, target)
                self.all_links.append(link)
                at = link.arrival[id(node)] = self.net.now + self.delay()  # before the first message
                self.net.call_at(at, lambda: link.open_at(node, address))
                link.open_at(target, None)

        self.net.call_later(self.delay(), arrive)

    # ---- the election

    def _majority(self, name: str) -> bool:
        node = self.nodes.get(name)
        if node is None:
            return False
        reached = [each for each in self.voters if each in self.nodes and self.reach(node, self.nodes[each])]
        return 2 * len(reached) > len(self.voters)

    def _oracle(self) -> None:
        now = self.net.now
        host = self.nodes.get(self.host) if self.host else None
        if host is not None and host.place.leading and host.place.term == self.term and self._majority(host.name):
            self._unheard = None
        elif self._unheard is None:
            self._unheard = now
        elif now - self._unheard >= self.lease or self.term == 0:
            if host is not None and host.place.leading:
                self.tell(host, self.term, None)
            self.elect()
        host = self.nodes.get(self.host) if self.host else None
        if host is not None and self._unheard is None:
            for name in self.voters:
                node = self.nodes.get(name)
                if node is not None and node is not host and self.reach(node, host):
                    self.tell(node, self.term, self.host)
        self.net.call_later(0.02, self._oracle)

    def tell(self, node: Node, term: int, host: str | None) -> None:
        if self._told.get(node.name) != (term, host):
            self._told[node.name] = term, host
            address = self.address(host) if host else None
            node.place.follow(term, host, address, self.net.now)
            node.step()

    def elect(self) -> None:
        able = [name for name in self.voters if name in self.nodes and self._majority(name)]
        if not able:
            return
        self.host = self.rng.choice(able)
        self.term += 1
        self._unheard = None
        self.elected_at = self.net.now
        node = self.nodes[self.host]
        node.place.lead(self.term, self.net.now)
        assert node.place.leading
        node.step()

    # ---- checks

    def above(self, node: Node) -> Node | None:
        """Return the parent, if the link is open at both ends."""
        link = node.links.get(node.place.parent or -1)
        if link is None:
            return None
        other = link.other(node)
        return other if other.alive and link.open[id(other)] else None

    def check_loop(self, node: Node) -> None:
        seen = {id(node)}
        here = self.above(node)
        while here is not None:
            assert id(here) not in seen, f"a loop at {node.name}"
            seen.add(id(here))
            here = self.above(here)

    def parents(self) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for name, node in self.nodes.items():
            above = self.above(node)
            found[name] = above.name if above is not None else None
        return found

    def attached(self) -> bool:
        """Return True if all nodes have a path to the present host."""
        host = self.host
        if host not in self.nodes or not self.nodes[host].place.leading:
            return False
        return all(node.place.term == self.term and node.place.host == host for node in self.nodes.values())

    def problem(self, *, balanced: bool = True) -> str | None:
        """Return the first reason why the cluster is not as it should be in the end; None if it is."""
        host = self.host
        if host not in self.nodes or not self.nodes[host].place.leading:
            return "no host"
        for name, node in self.nodes.items():
            place = node.place
            if place.term != self.term or place.host != host:
                return f"{name} has the path {place.path} of term {place.term}, the host is {host} of {self.term}"
        parents = self.parents()
        roots = [name for name, parent in parents.items() if parent is None]
        if roots != [host]:
            return f"the roots are {roots}"
        depths = depths_of(parents)
        for name, node in self.nodes.items():
            if len(node.place.path) != depths[name] + 1:
                return f"the path of {name} is {node.place.path}"
            if len(node.parents) > 1:
                return f"{name} has two parents"
        below: dict[str, dict[str, str]] = {name: {} for name in self.nodes}
        for name in self.nodes:
            here: str | None = name
            while here is not None and (parent := parents[here]) is not None:
                below[parent][name] = here
                here = parent
        for name, node in self.nodes.items():
            place = node.place
            if {each.id for each in place.members()} != set(below[name]):
                return f"the members of {name} are {place.members()}, not {below[name]}"
            for each, child in below[name].items():
                link = place.route(each)
                if link is None or place.children.get(link) != child:
                    return f"the route of {name} to {each} is {link}, not over {child}"
                member = place.member(each)
                if member is None or member.parent != parents[each] or member.epoch != self.nodes[each].epoch:
                    return f"{name} takes {each} for {member}"
        if balanced:
            fanouts = {name: node.place.fanout for name, node in self.nodes.items()}
            crowded = [name for name, node in self.nodes.items() if len(node.place.children) > fanouts[name]]
            if crowded:
                return f"too many children: {crowded}"
            ideal = ideal_depth(fanouts.values())
            if max(depths.values()) > ideal + 1:
                return f"the depth is {max(depths.values())} instead of {ideal}"
        return None

    def settle(self, seconds: float, *, balanced: bool = True, step: float = 0.05) -> float:
        """Run until the cluster is as it should be; return how long it took. Raises AssertionError after `seconds`."""
        began = self.net.now
        problem = self.problem(balanced=balanced)
        while problem is not None:
            assert self.net.now < began + seconds, problem
            self.net.run_until(self.net.now + step)
            problem = self.problem(balanced=balanced)
        return self.net.now - began

    def until(self, condition: Callable[[], object], seconds: float) -> float:
        """Run until a condition holds; return how long it took. Raises AssertionError after `seconds`."""
        began = self.net.now
        assert condition() or self.net.run_until(began + seconds, condition), "in vain"
        return self.net.now - began

    def run(self, seconds: float) -> None:
        self.net.run_until(self.net.now + seconds)


def history(seed: int) -> PlaceNetwork:
    """Run one random history of crashes, restarts, partitions and joins, and check how it ends.

    With an odd seed hosts are also replaced while they live, and some nodes take the id of another one for a while.
    """
    rng = Random(f"history {seed}")
    elections = seed % 2 == 1
    network = PlaceNetwork(
        seed,
        rng.choice([1, 3, 3, 5]),
        fanout=rng.choice([2, 3, 4, 8]),
        delay=rng.choice([(0.001, 0.001), (0.0005, 0.02), (0.001, 0.2)]),
        wire=rng.random() < 0.1,
    )
    for name in network.voters:
        network.add(name)
    others = [f"n{number:02}" for number in range(rng.randrange(0, 24))]
    leaves = rng.random() < 0.4
    fanouts = {name: 0 if leaves and rng.random() < 0.4 else network.fanout for name in others}
    for name in others:
        if rng.random() < 0.7:
            network.add(name, fanout=fanouts[name])
        if rng.random() < 0.1:
            network.run(rng.random() * 0.1)
    doubles: list[Node] = []
    for _ in range(rng.randrange(1, 12)):
        network.run(rng.choice([0.001, 0.01, 0.05, 0.3, 1.0, 3.0]) * rng.random() * 2)
        act = rng.random()
        alive = list(network.nodes)
        if elections and rng.random() < 0.3 and network.term:
            network.elect()
        if elections and others and rng.random() < 0.1 and "double" not in network.nodes:
            doubles.append(network.add("double", id=rng.choice(others)))
        if act < 0.35 and alive:
            for name in rng.sample(alive, min(len(alive), rng.choice([1, 1, 1, 2, 3]))):
                network.kill(name, silently=rng.random() < 0.3)
        elif act < 0.65:
            for name in [*network.voters, *others]:
                if name not in network.nodes and rng.random() < 0.5:
                    network.add(name, fanout=fanouts.get(name))
        elif act < 0.75 and alive:
            network.split(rng.sample(alive, rng.randrange(len(alive))))
        elif act < 0.85:
            network.heal()
        elif act < 0.92 and alive:
            name = rng.choice(alive)
            if name not in network.voters:
                network.leave(name)
        elif alive:
            node = network.nodes[rng.choice(alive)]
            links = list(node.links.items())
            if links:
                number, link = rng.choice(links)
                del node.links[number]
                link.end(node)
                node.place.link_down(number, network.net.now)
                node.step()
        for name in [name for name, node in network.nodes.items() if node.gone]:
            network.kill(name)
    network.heal()
    if "double" in network.nodes:
        network.kill("double")
    for name in network.voters:
        if name not in network.nodes:
            network.add(name)
    network.run(6.0)
    for name, node in list(network.nodes.items()):
        expelled = any(each.final for each in node.refusals)
        if expelled:  # rightly: another node had this id before
            assert any(double.place.id == name and double.epoch < node.epoch for double in doubles), name
        if node.gone or expelled:
            network.kill(name)
    hosts = sum(node.place.fanout for node in network.nodes.values())
    for name in list(network.nodes):  # more leaves than places: some cannot be members
        if hosts < len(network.nodes) - 1 and not network.nodes[name].place.fanout:
            network.kill(name)
    network.settle(40.0)
    return network
