"""Fixtures of the bricks' tests: every ``pattern``, ``wire`` and ``caller`` there is (see wires.py).

A test that needs one of them only says which: ``@pytest.mark.parametrize("wire", ["tcp"], indirect=True)``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from nngkit.protocols import TLS
from tests.protocols.wires import CALLERS, PATTERNS, TRANSPORTS, Caller, Pattern, Wire


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """Issues the certificates of all tests."""
    return trustme.CA()


@pytest.fixture(scope="session")
def everybody(authority: trustme.CA) -> TLS:
    """Both ends of a wire with TLS: each shows a certificate for localhost and demands one."""
    certificate = authority.issue_cert("localhost", common_name="everybody")
    return TLS(
        ca=authority.cert_pem.bytes(),
        cert=certificate.cert_chain_pems[0].bytes(),
        key=certificate.private_key_pem.bytes(),
        server_name="localhost",
    )


@pytest.fixture(scope="session")
def sockets() -> Iterator[Path]:
    """Where ipc sockets live: a short path, since one of more than 107 bytes cannot be listened on."""
    with tempfile.TemporaryDirectory(prefix="nngkit") as directory:
        yield Path(directory)


@pytest.fixture(params=TRANSPORTS)
def wire(request: pytest.FixtureRequest, sockets: Path, everybody: TLS) -> Wire:
    return Wire(request.param, sockets, everybody if request.param in ("wss", "tls+tcp") else None)


@pytest.fixture
def tcp(sockets: Path) -> Wire:
    return Wire("tcp", sockets)


@pytest.fixture(params=PATTERNS, ids=lambda pattern: pattern.name)
def pattern(request: pytest.FixtureRequest) -> Pattern:
    chosen = request.param
    return chosen if isinstance(chosen, Pattern) else next(one for one in PATTERNS if one.name == chosen)


@pytest.fixture(params=CALLERS, ids=lambda caller: caller.name)
def caller(request: pytest.FixtureRequest) -> Caller:
    chosen = request.param
    return chosen if isinstance(chosen, Caller) else next(one for one in CALLERS if one.name == chosen)
