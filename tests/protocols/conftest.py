"""Fixtures for tests of nngkit.protocols: each ``pattern``, ``wire`` and ``caller`` (see nngkit.testing).

A test that needs only one of them names it: ``@pytest.mark.parametrize("wire", ["tcp"], indirect=True)``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from nngkit.protocols import TLS
from nngkit.testing import CALLERS, PATTERNS, TRANSPORTS, Caller, Pattern, Wire
from nngkit.testing.wires import TLS_TRANSPORTS


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """The CA that issues the certificates of all tests."""
    return trustme.CA()


@pytest.fixture(scope="session")
def shared_tls(authority: trustme.CA) -> TLS:
    """Settings for both ends of a TLS wire: each presents a certificate for localhost and requires one."""
    certificate = authority.issue_cert("localhost", common_name="shared")
    return TLS(
        ca=authority.cert_pem.bytes(),
        cert=certificate.cert_chain_pems[0].bytes(),
        key=certificate.private_key_pem.bytes(),
        server_name="localhost",
    )


@pytest.fixture(scope="session")
def sockets() -> Iterator[Path]:
    """Directory of ipc sockets: a short path, since a path of more than 107 bytes cannot be listened on."""
    with tempfile.TemporaryDirectory(prefix="nngkit") as directory:
        yield Path(directory)


@pytest.fixture(params=TRANSPORTS)
def wire(request: pytest.FixtureRequest, sockets: Path, shared_tls: TLS) -> Wire:
    return Wire(request.param, sockets, shared_tls if request.param in TLS_TRANSPORTS else None)


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
