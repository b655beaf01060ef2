"""Changed inputs for everything that reads bytes of peers, or files that may have been damaged.

Each target makes samples, which are valid, and a reader. A changed sample is read; an error that is not nngkit's counts
as ``escaped`` and is printed with its input. Targets with a state keep it from input to input, and check at intervals
that an honest peer beside the hostile one is served.
"""

from __future__ import annotations

import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from _child import lowest_peak, peak, report, resident
from nngkit import envelope
from nngkit.cluster.election import messages as election
from nngkit.cluster.election.voter import Voter
from nngkit.cluster.frames import parse_greeting, parse_local, parse_routed
from nngkit.cluster.node import letters, questions
from nngkit.cluster.tree import messages as places
from nngkit.discovery.messages import SurveyReply
from nngkit.discovery.provider import Provider
from nngkit.discovery.registry.registry import Registry
from nngkit.errors import NngkitError
from nngkit.fanout import Consumer, ConsumerServer
from nngkit.journal import Recorder
from nngkit.mesh.state import MeshState
from nngkit.protocols import Req
from nngkit.protocols._wire.tls_layer import Layer
from nngkit.trust import Folder, Policy, Trust, names, passes, realm, signing
from nngkit.trust.issuer import Issuer
from nngkit.trust.renewal import Question, Reply, digest_of, read_reply, with_reply

sys.path.insert(0, str(Path(__file__).parent.parent))  # recorded messages and their readers are the tests'
from tests.cluster import test_wire_of_0_1 as cluster_wire
from tests.test_wire_of_0_1 import FAMILIES, RECORDED

Read = Callable[[bytes], object]
Target = tuple["Changes", Read]

SHOWN: Final = 3  # inputs that are printed
WARM: Final = 0.1  # share of the inputs after which memory is looked at
EVERY: Final = 1000  # inputs between two looks at the honest peer
ODD: Final[tuple[Any, ...]] = (None, True, -1, 0, 1 << 31, (1 << 53) - 1, 1 << 53, (1 << 64) - 1, -(1 << 63), 0.5)
ODDER: Final[tuple[Any, ...]] = (
    float("nan"),
    float("inf"),
    "",
    "x" * 300,
    "\0",
    b"",
    b"x" * 300,
    [],
    {},
    [[]],
    {"": 0},
)


class Changes:
    """Changed copies of samples."""

    def __init__(self, samples: Sequence[bytes]) -> None:
        self.samples = samples
        self.number = 0
        """The sample of which the last one was made."""
        self._rng = random.Random()
        self._values = [self._value(each) for each in samples]

    @staticmethod
    def _value(sample: bytes) -> Any:
        try:
            return envelope.decode(sample, what="sample")
        except NngkitError:
            return None

    def seed(self, seed: int) -> None:
        """Begin anew."""
        self._rng.seed(seed)

    def next(self) -> bytes:
        """Return one: a sample, changed in one to four places."""
        rng = self._rng
        self.number = number = rng.randrange(len(self.samples))
        if isinstance(self._values[number], list | dict) and rng.random() < 0.5:
            try:
                return bytes(envelope.encode(self._changed(self._values[number], 0)))
            except (NngkitError, ValueError, TypeError, OverflowError):
                pass  # a map with a key that cannot be one
        data = bytearray(self.samples[number])
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            self._change(data)
        return bytes(data)

    def _changed(self, value: Any, depth: int) -> Any:
        """Return a copy of decoded CBOR with another value somewhere."""
        rng = self._rng
        if (depth and rng.random() < 0.3) or not value or not isinstance(value, list | dict):
            return rng.choice(ODD + ODDER)
        if isinstance(value, dict):
            key = rng.choice(list(value))
            changed = dict(value)
            if rng.random() < 0.2:
                del changed[key]
            else:
                changed[key] = self._changed(value[key], depth + 1)
            return changed
        where = rng.randrange(len(value))
        way = rng.random()
        if way < 0.1:
            return value[:where]
        if way < 0.2:
            return [*value, value[where]]
        return [*value[:where], self._changed(value[where], depth + 1), *value[where + 1 :]]

    def _change(self, data: bytearray) -> None:
        rng = self._rng
        at = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[at % len(data)] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del data[at : at + rng.choice((1, 2, 8, 64))]
            case 3:
                data[at:at] = rng.randbytes(rng.choice((1, 2, 8, 64)))
            case 4:
                data[at:at] = data[at : at + rng.choice((1, 8, 64, 1024))]
            case 5:
                del data[at:]
            case _:
                other = rng.choice(self.samples)
                data[at:] = other[rng.randrange(len(other) + 1) :]


# ---- messages of all rooms -------------------------------------------------------------------------------------------


def _row(kinds: Any, data: bytes) -> object:
    return kinds.parse(envelope.decode(data, what="input"), "peer")


def _local(data: bytes) -> object:
    return parse_greeting(parse_local(data, limit=1 << 20), "peer")


@contextmanager
def messages() -> Iterator[Target]:
    """Messages of discovery, calls, fan-out, consumers, journals, meshes and clusters."""
    readers: list[tuple[bytes, Read]] = [
        (bytes.fromhex(text), FAMILIES[family]) for family, texts in RECORDED.items() for text in texts
    ]
    kinds = {"election": election.KINDS, "place": places.KINDS, "letter": letters.KINDS, "question": questions.KINDS}
    for part, each in kinds.items():
        readers += [
            (bytes.fromhex(line if isinstance(line, str) else line[0]), partial(_row, each))
            for line in cluster_wire.WIRE[part]
        ]
    readers += [(bytes.fromhex(line[0]), _local) for line in cluster_wire.WIRE["greeting"]]
    readers += [(bytes.fromhex(line[0]), parse_routed) for line in cluster_wire.WIRE["greeting"]]
    inputs = 0

    def read(data: bytes) -> None:
        nonlocal inputs
        inputs += 1
        own = changes.number if inputs % 4 else inputs // 4 % len(readers)  # a quarter is of another family
        readers[own][1](data)

    changes = Changes([sample for sample, _ in readers])
    yield changes, read


# ---- trust -----------------------------------------------------------------------------------------------------------


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@contextmanager
def _folder() -> Iterator[Folder]:
    with tempfile.TemporaryDirectory() as path:
        folder = Folder.new(path, "farm")
        for name in ("hub", "render.w1"):
            passes.write(folder.path / f"{name}.pass", folder.realm.issue(name))
        yield folder


@contextmanager
def pass_files() -> Iterator[Target]:
    """Pass files."""
    with _folder() as folder:
        yield Changes([(folder.path / f"{name}.pass").read_bytes() for name in ("hub", "render.w1")]), _pass


def _pass(data: bytes) -> None:
    passes.parse(_text(data))


@contextmanager
def invitations() -> Iterator[Target]:
    """Invitations: lines of base64."""
    with _folder() as folder:
        text = (folder.path / "hub.pass").read_text()
        yield (
            Changes([passes.invitation(text).encode()]),
            lambda data: passes.parse(passes.from_invitation(_text(data))),
        )


@contextmanager
def policies() -> Iterator[Target]:
    """Policies, of which the rights are then looked up."""
    with _folder() as folder:
        long = "".join(f'[role.r{n}]\nnames = ["a{n}.*"]\ncall = ["s{n}/*", "t"]\n' for n in range(20))
        samples = [(folder.path / "policy.toml").read_bytes(), b'realm = "farm"\nversion = 3\n' + long.encode()]

        def read(data: bytes) -> None:
            policy = Policy.parse(_text(data))
            policy.may("a1.b", "call", "s1/x")
            policy.granting("a1.b", "publish", "orders/")

        yield Changes(samples), read


@contextmanager
def names_of_certificates() -> Iterator[Target]:
    """URIs of certificates."""
    yield (
        Changes([names.uri_of("farm", name).encode() for name in ("hub", "render.w1", "a-b_c.d2")]),
        lambda data: names.name_in([_text(data)], "farm"),
    )


@contextmanager
def signatures() -> Iterator[Target]:
    """Signatures of policies."""
    with _folder() as folder:
        policy = (folder.path / "policy.toml").read_text()
        authorities = folder.realm.authorities
        signature = (folder.path / "policy.sig").read_bytes()
        yield Changes([signature]), lambda data: signing.check(authorities, policy, _text(data))


@contextmanager
def questions_to_the_issuer() -> Iterator[Target]:
    """Questions to an issuer: for what is new, for a pass, for an invitation."""
    with _folder() as folder:
        own = passes.read(folder.path / "hub.pass")
        issuer = Issuer(folder.path, 90.0)
        issuer.refresh()
        asked = (
            Question(own.chain, "other", 0, due=True, wait=1.0),
            Question(realm.public_pem(realm.new_key()), digest_of(own.authorities), None),
            Question("tls+tcp://hub:1", invite="render.w3"),
        )

        def read(data: bytes) -> None:
            issuer.patience(data)
            msgspec.json.decode(issuer.answer("hub", own.serial, data), type=Reply)

        yield Changes([msgspec.json.encode(each) for each in asked]), read


@contextmanager
def replies_of_the_issuer() -> Iterator[Target]:
    """Replies of an issuer, with a new certificate."""
    with _folder() as folder:
        own = passes.read(folder.path / "hub.pass")
        chain = folder.realm.sign("hub", realm.new_key().public_key(), 1.0)
        reply = Reply(chain=chain, authorities=own.authorities)

        def read(data: bytes) -> None:
            with_reply(own, read_reply(data, "an issuer"), own.key)

        yield Changes([msgspec.json.encode(reply)]), read


@contextmanager
def handshakes() -> Iterator[Target]:
    """Bytes of TLS: handshakes, and messages after them, changed on their way to the listener or the dialer."""
    with _folder() as folder:
        hub, own = (Trust(folder.path / f"{name}.pass") for name in ("hub", "render.w1"))
        ends = hub.context(server=True), own.context(server=False)

        def both() -> tuple[Layer, Layer]:
            return Layer(ends[0], server=True, name=None), Layer(ends[1], server=False, name=None)

        def honest(listener: Layer, dialer: Layer, flights: int) -> list[bytes]:
            sent, turn = [], [dialer, listener]
            for number in range(flights):
                end, other = turn[number % 2], turn[1 - number % 2]
                if not end.open:
                    end.shake()
                sent.append(end.outgoing.read())
                other.feed(sent[-1])
            return sent

        samples = honest(*both(), 3)

        def read(data: bytes) -> None:
            which = data[-1] % 3 if data else 0
            listener, dialer = both()
            honest(listener, dialer, which)
            end = (dialer, listener)[1 - which % 2]
            end.feed(data)
            try:
                end.shake()
                if end.open:
                    end.read(1 << 14)
            except OSError:  # of OpenSSL, after the handshake: the connection of the layer makes it a BadMessage
                if not end.open:
                    raise

        yield Changes(samples), read


# ---- states ----------------------------------------------------------------------------------------------------------


class Broken(Exception):
    """The honest peer is not served any more."""


@contextmanager
def mesh() -> Iterator[Target]:
    """A node of a mesh with an honest and a hostile neighbour."""
    now = 0.0
    node, honest, other = (MeshState(name, 1_000_000 + n, now) for n, name in enumerate(("a", "b", "c")))
    for each in (node, honest, other):
        each.link_up(1, now)
    node.link_up(2, now)
    samples = [bytes(each) for _, each in [*honest.take().sends, *other.take().sends]]
    samples += [bytes(frame) for each in (honest, other) for frame in each.send([b"x", b"y"], now)]
    for frame in samples:
        node.receive(1, [frame], now)
    node.take()
    inputs = 0

    def read(data: bytes) -> None:
        nonlocal inputs, now
        inputs += 1
        now += 0.001
        node.receive(2, [data], now)
        if now >= node.wake_at:
            node.tick(now)
        if inputs % 50 == 0:
            node.take()

    yield Changes(samples), read


@contextmanager
def registry() -> Iterator[Target]:
    """The registry of a daemon with an honest and a hostile provider: the honest one stays up."""
    now, table = 0.0, Registry()
    pay = Provider(name="pay", address="tcp://10.0.0.1:9000", id="p1", epoch=1)
    other = Provider(name="rent", address="tcp://10.0.0.2:9000", id="r1", epoch=1)
    replies = [SurveyReply("p1", (pay,)).encode(), SurveyReply("r1", (other,)).encode(), b"pay|tcp://10.0.0.3:9000"]
    for pipe in (1, 2):
        table.pipe_joined(pipe, now)
    this, inputs = table.start_round(now), 0

    def read(data: bytes) -> None:
        nonlocal this, inputs, now
        inputs += 1
        now += 0.001
        table.reply(2, this, data, now)
        if inputs % EVERY == 0:
            table.reply(1, this, replies[0], now)
            table.end_round(this, now)
            if pay not in table.snapshot(now).get("pay", ()):
                raise Broken("the honest provider is not up")
            this = table.start_round(now)

    yield Changes(replies), read


@contextmanager
def voter() -> Iterator[Target]:
    """A voter with two others, one of them hostile."""
    now = 0.0
    one = Voter("a", ["a", "b", "c"], epoch=1_000_000, now=now, rng=random.Random(1))
    for peer in ("b", "c"):
        one.peer_up(peer, now)
    samples = [bytes.fromhex(line[0]) for line in cluster_wire.WIRE["election"]]
    inputs = 0

    def read(data: bytes) -> None:
        nonlocal inputs, now
        inputs += 1
        now += 0.001
        try:
            message = election.KINDS.parse(envelope.decode(data, what="input"), "b")
            if message is not None:
                one.receive("b", message, now)
        finally:
            if now >= one.wake_at:
                one.tick(now)
            if inputs % 50 == 0:
                one.take()

    yield Changes(samples), read


def consumers(task: dict[str, Any]) -> None:
    """Ask a consumer server with changed requests; the honest consumer is there at the end."""
    from nngkit.fanout.durable import messages as durable

    found = Found(task)
    changes = Changes([bytes.fromhex(text) for text in RECORDED["consumer request"]])
    changes.seed(task["seed"])

    async def run() -> None:
        with tempfile.TemporaryDirectory() as path:
            async with Recorder(Path(path) / "journal") as recorder:
                await recorder.store([b"order"], topic="orders", protocol="put")
                listen = f"ipc://{path}/consumers"
                async with ConsumerServer(Path(path) / "journal", listen=listen), Req(dial=listen) as req:
                    for number in range(found.inputs):
                        data = changes.next()
                        try:
                            request = durable.parse_request(data)
                            if getattr(request, "wait", 0.0):  # a fetch may wait: not for each input
                                continue
                        except NngkitError:
                            pass
                        found.read(number, data, lambda _: None)
                        await req.arequest(data, timeout=30.0)
                    await served(listen, "after")
                    found.report()  # before the recorder ends: it loads what writes segments

    async def served(listen: str, name: str) -> None:
        with trio.fail_after(30.0):
            async with Consumer(name, listen) as consumer:
                await (await consumer.receive()).ack()

    trio.run(run)


# ---- runs ------------------------------------------------------------------------------------------------------------

TARGETS: Final = {
    each.__name__: each
    for each in (
        *(messages, pass_files, invitations, policies, names_of_certificates, signatures),
        *(questions_to_the_issuer, replies_of_the_issuer, handshakes, mesh, registry, voter),
    )
}


class Found:
    """Inputs that were read, and the errors that are not nngkit's."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.inputs: int = task["inputs"]
        self._refused = self._escaped = 0
        self._memory = 0.0

    def read(self, number: int, data: bytes, read: Read) -> None:
        """Read an input; count and print an error that escapes."""
        if number == int(WARM * self.inputs):
            lowest_peak()
            self._memory = resident()
        try:
            read(data)
        except NngkitError:
            self._refused += 1
        except Exception:
            self._escaped += 1
            if self._escaped <= SHOWN:
                sys.stderr.write(f"{data.hex()}\n{traceback.format_exc()}\n")

    def report(self) -> None:
        """Print the figures."""
        report(
            inputs=self.inputs,
            refused=self._refused,
            escaped=self._escaped,
            grown_mib=max(0.0, round(peak() - self._memory, 1)),
        )


def run(task: dict[str, Any]) -> None:
    """Read changed inputs of one target."""
    found = Found(task)
    with ExitStack() as stack:
        changes, read = stack.enter_context(TARGETS[task["target"]]())
        changes.seed(task["seed"])
        for sample in changes.samples:
            with suppress(NngkitError):
                read(sample)
        for number in range(found.inputs):
            found.read(number, changes.next(), read)
    found.report()
