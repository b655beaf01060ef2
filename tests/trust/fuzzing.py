"""Damaged passes, policies, invitations, questions to an issuer, replies, and TLS: only our errors, in bounded memory.

    python -m tests.trust.fuzzing KIND SECONDS [SEED]

prints the number of inputs and the growth of memory in MiB. An exception of another kind ends it, with the input.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from nngkit.errors import NngkitError
from nngkit.protocols._wire.tls_layer import Layer
from nngkit.trust import Folder, Policy, passes, realm, renewal
from nngkit.trust.issuer import Issuer

MOST_GROWTH = 64.0  # MiB
WORDS = (
    b"",
    b"\0",
    b"\xff" * 9,
    b"-----BEGIN CERTIFICATE-----\n",
    b"[role.x]",
    b'"*"',
    b"=",
    b"\n",
    b"9" * 40,
    b"{" * 99,
)

Try = Callable[[bytes], object]


def mutated(rng: random.Random, whole: bytes) -> bytes:
    """Return the bytes after one to four changes: cut, repeated, inserted, flipped."""
    data = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        to = min(len(data), at + int(rng.expovariate(0.05)))
        match rng.randrange(5):
            case 0:
                del data[at:to]
            case 1:
                data[at:at] = data[at:to] * rng.randint(1, 8)
            case 2:
                data[at:at] = rng.choice(WORDS)
            case 3:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case _:
                if at < len(data):
                    data[at] ^= 1 << rng.randrange(8)
    return bytes(data)


def kinds(folder: Path) -> dict[str, tuple[list[bytes], Try]]:
    """Return what is damaged, and what reads it, by kind."""
    made = Folder.new(folder / "farm", "farm")
    issuer = Issuer(made.path, 30)
    own = made.realm.issue("render.w1")
    read = passes.parse(own)
    invited = made.realm.issue("render.w2", invites=True, issuer="tls+tcp://hub:5550", days=0.1)
    policy = (made.path / "policy.toml").read_bytes()
    public = realm.public_pem(realm.new_key())
    questions = (
        renewal.Question(read.chain, "x", 1, due=True, wait=1.0),
        renewal.Question(public, "", None),
        renewal.Question("tls+tcp://hub:1", invite="render.w3"),
    )
    server, client = (read.context(server=side) for side in (True, False))

    def question(data: bytes) -> None:
        issuer.patience(data)
        msgspec.json.decode(issuer.answer("render.w1", read.serial, data), type=renewal.Reply)

    def reply(data: bytes) -> None:
        renewal.with_reply(read, renewal.read_reply(data, "an issuer"), read.key)

    def flight() -> bytes:
        layer = Layer(client, server=False, name=None)
        layer.shake()
        return layer.outgoing.read()

    def shake(data: bytes) -> None:
        layer = Layer(server, server=True, name=None)
        layer.feed(data)
        layer.shake()

    replied = msgspec.json.encode(
        renewal.Reply(made.realm.sign("render.w1", realm.new_key().public_key(), 1), read.authorities)
    )
    return {
        "passes": ([own.encode()], lambda data: passes.parse(data.decode("latin-1"))),
        "policies": ([policy], lambda data: Policy.parse(data.decode("latin-1"))),
        "invitations": (
            [passes.invitation(invited).encode()],
            lambda data: passes.parse(passes.from_invitation(data.decode("latin-1"))),
        ),
        "questions": ([msgspec.json.encode(each) for each in questions], question),
        "replies": ([replied], reply),
        "tls": ([flight() for _ in range(8)], shake),
    }


def resident() -> float:
    """Return the peak of resident memory in MiB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def inputs(kind: str, seed: int, folder: Path) -> Iterator[None]:
    """Try one input after another. Raises what is not an error of ours, with the input as a note."""
    rng = random.Random(seed)
    wholes, attempt = kinds(folder)[kind]
    while True:
        data = mutated(rng, rng.choice(wholes))
        try:
            attempt(data)
        except NngkitError:
            pass
        except BaseException as wrong:
            wrong.add_note(f"{kind}: {data!r}")
            raise
        yield


def fuzz(kind: str, seconds: float, seed: int, folder: Path) -> tuple[int, float]:
    """Return the number of inputs, and the growth of the peak of memory in MiB."""
    trying = inputs(kind, seed, folder)
    for _ in range(20):
        next(trying)
    before, end, count = resident(), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        next(trying)
        count += 1
    return count, resident() - before


if __name__ == "__main__":
    kind, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1
    with tempfile.TemporaryDirectory() as scratch:
        count, growth = fuzz(kind, seconds, seed, Path(scratch))
    sys.stdout.write(f"{kind}: {count} inputs, {growth:.1f} MiB\n")
    sys.exit(growth > MOST_GROWTH)
