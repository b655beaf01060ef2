"""TLS on both transports that have it: accepted and refused peers, what is known of a peer, and errors in files."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from nngkit.errors import ConfigError, TimedOut
from nngkit.protocols import TLS, Pipe, Pull, Push, Rep, Req
from nngkit.protocols._wire.tls_layer import Layer
from nngkit.testing import Background, eventually
from tests.protocols.raw_peer import connect
from tests.protocols.wires import WAIT, said

ADDRESSES = {"tls+tcp": "tls+tcp://127.0.0.1:0", "wss": "wss://127.0.0.1:0/door"}

transports = pytest.mark.parametrize("transport", ADDRESSES)
Identity = Callable[..., TLS]


@pytest.fixture
def identity(authority: trustme.CA) -> Identity:
    """Return settings with a certificate: ``identity("alice", names=["alice.example"], ca=...)``."""

    def issue(name: str | None, names: tuple[str, ...] = ("localhost",), issuer: Any = None, **settings: Any) -> TLS:
        certificate = (issuer or authority).issue_cert(*names, common_name=name)
        chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
        defaults = {"ca": authority.cert_pem.bytes(), "server_name": "localhost"}
        return TLS(cert=chain, key=certificate.private_key_pem.bytes(), **defaults | settings)

    return issue


@pytest.fixture
def anonymous(authority: trustme.CA) -> TLS:
    """Return settings that trust the authority and present no certificate."""
    return TLS(ca=authority.cert_pem.bytes(), server_name="localhost")


MISSING = "certificate refused: the peer presented none"
MISSED = "certificate refused by the peer: it requires one"
UNKNOWN = "certificate refused: unable to get local issuer certificate"
UNTRUSTED = "certificate refused by the peer: it does not know the authority of ours"
MISNAMED = "certificate refused by the peer: ours is not valid, or not for the name it expects"
UNTIMELY = "certificate refused by the peer: ours is out of its time"
NO_TLS = "TLS handshake failed: the peer speaks {} without TLS"


def has_cut(ours: Pull | Push, times: int) -> bool:
    return ours.stats.cut >= times


def stays_out(transport: str, server: TLS, client: TLS, *, server_says: str, client_says: str) -> None:
    """Check that ``client`` tries repeatedly, and that both ends count and say why the other is not there."""
    with (
        Pull(listen=ADDRESSES[transport], tls=server) as pull,
        Push(dial=pull.address, tls=client, reconnect=0.02) as push,
    ):
        for ours, says in ((push, client_says), (pull, server_says)):
            eventually(partial(has_cut, ours, 3))
            with pytest.raises(TimedOut, match=f"(was cut|: [a-z-]+): {says}"):
                ours.wait_for_peers(1, 0.0)
            assert {one.reason for one in ours.cuts} == {says}
            assert (ours.stats.joined, ours.stats.bad) == (0, 0)
        assert {one.address for one in push.cuts} == {pull.address.removesuffix("/door")}
        assert not any("unknown" in one.address for one in pull.cuts)


def gets_in(transport: str, server: TLS, client: TLS) -> tuple[Pipe, Pipe]:
    """Return the pipes of the server and the client."""
    with Rep(listen=ADDRESSES[transport], tls=server) as rep, Req(dial=rep.address, tls=client) as req:
        asking = Background(req.request, b"ping" * 10_000, timeout=WAIT)
        question = rep.recv(timeout=WAIT)
        question.reply(question.body.upper())
        assert asking.result() == b"PING" * 10_000
        (theirs,) = req.pipes
        assert question.pipe is not None
        return question.pipe, theirs


# ---- admission -------------------------------------------------------------------------------------------------------


@transports
def test_each_end_identifies_the_other_by_its_certificate(transport: str, identity: Identity) -> None:
    server = identity("server", ("localhost", "server.example"))
    client = identity("alice", ("alice.example", "alice.home"))
    of_client, of_server = gets_in(transport, server, client)
    assert (of_client.peer_name, of_client.verified, of_client.dialed) == ("alice", True, False)
    assert (of_server.peer_name, of_server.verified, of_server.dialed) == ("server", True, True)
    assert set(of_client.alt_names) == {"alice.example", "alice.home"}
    assert set(of_server.alt_names) == {"localhost", "server.example"}


@transports
def test_a_certificate_needs_no_common_name(transport: str, identity: Identity) -> None:
    of_client, _ = gets_in(transport, identity("server"), identity(None, ("alice.example",)))
    assert (of_client.peer_name, of_client.alt_names, of_client.verified) == (None, ("alice.example",), True)


@transports
def test_a_client_without_a_certificate_is_refused_by_a_server_with_a_ca(
    transport: str, identity: Identity, anonymous: TLS
) -> None:
    stays_out(transport, identity("server"), anonymous, server_says=MISSING, client_says=MISSED)


@transports
def test_a_client_without_a_certificate_is_served_by_a_server_without_a_ca(
    transport: str, identity: Identity, anonymous: TLS
) -> None:
    of_client, of_server = gets_in(transport, identity("server", ca=None), anonymous)
    assert (of_client.peer_name, of_client.alt_names, of_client.verified) == (None, (), False)
    assert (of_server.peer_name, of_server.verified) == ("server", True)


@transports
def test_a_client_with_another_authority_is_refused(transport: str, identity: Identity) -> None:
    client = identity("alice", issuer=trustme.CA())
    stays_out(transport, identity("server"), client, server_says=UNKNOWN, client_says=UNTRUSTED)


@transports
def test_a_server_with_another_authority_is_refused(transport: str, identity: Identity, anonymous: TLS) -> None:
    server = identity("server", issuer=trustme.CA(), ca=None)
    stays_out(transport, server, anonymous, server_says=UNTRUSTED, client_says=UNKNOWN)


@transports
def test_a_server_with_another_authority_is_refused_before_it_asks(transport: str, identity: Identity) -> None:
    server = identity("server", issuer=trustme.CA())
    stays_out(transport, server, identity("alice"), server_says=UNTRUSTED, client_says=UNKNOWN)


@transports
@pytest.mark.parametrize(
    ("years", "why", "told"),
    [
        ((2020, 2021), "certificate has expired", UNTIMELY),
        ((2120, 2121), "certificate is not yet valid", MISNAMED),  # which is the alert that OpenSSL has for it
    ],
    ids=["expired", "not valid yet"],
)
def test_a_certificate_out_of_its_time_is_refused(
    transport: str,
    identity: Identity,
    anonymous: TLS,
    authority: trustme.CA,
    years: tuple[int, int],
    why: str,
    told: str,
) -> None:
    first, last = (datetime(year, 1, 1, tzinfo=UTC) for year in years)
    issued = authority.issue_cert("localhost", not_before=first, not_after=last)
    key, chain = issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()
    client = TLS(cert=chain, key=key, ca=authority.cert_pem.bytes(), server_name="localhost")
    why = f"certificate refused: {why}"
    stays_out(transport, identity("server"), client, server_says=why, client_says=told)
    stays_out(transport, TLS(cert=chain, key=key), anonymous, server_says=told, client_says=why)


@transports
def test_a_server_with_another_name_is_refused(transport: str, identity: Identity, authority: trustme.CA) -> None:
    expecting = TLS(ca=authority.cert_pem.bytes(), server_name="other.example")
    why = "certificate refused: Hostname mismatch, certificate is not valid for 'other.example'"
    stays_out(transport, identity("server", ca=None), expecting, server_says=MISNAMED, client_says=why)
    gets_in(transport, identity("server", ("other.example",), ca=None), expecting)


@transports
def test_without_a_server_name_the_host_of_the_url_must_match(
    transport: str, identity: Identity, authority: trustme.CA
) -> None:
    trusting = TLS(ca=authority.cert_pem.bytes())
    # the host is 127.0.0.1
    why = "certificate refused: IP address mismatch, certificate is not valid for '127.0.0.1'"
    stays_out(transport, identity("server", ca=None), trusting, server_says=MISNAMED, client_says=why)
    named = ADDRESSES[transport].replace("127.0.0.1", "localhost")
    with Pull(listen=named, tls=identity("server", ca=None)) as pull, Push(dial=pull.address, tls=trusting) as push:
        push.wait_for_peers(1, WAIT)


@transports
def test_verify_false_accepts_any_peer_as_unverified(transport: str, identity: Identity) -> None:
    stranger = identity("stranger", ("nowhere",), issuer=trustme.CA(), verify=False)
    of_client, of_server = gets_in(transport, stranger, TLS(verify=False))
    assert (of_client.verified, of_server.verified) == (False, False)


@transports
def test_an_intermediate_authority_is_trusted_with_its_chain(
    transport: str, identity: Identity, authority: trustme.CA
) -> None:
    branch = authority.create_child_ca()
    of_client, of_server = gets_in(transport, identity("server", issuer=branch), identity("alice", issuer=branch))
    assert (of_client.peer_name, of_server.peer_name) == ("alice", "server")
    assert of_client.verified
    assert of_server.verified


@transports
def test_admit_decides_by_identity(transport: str, identity: Identity) -> None:
    def only_alice(pipe: Pipe) -> bool:
        return pipe.verified and pipe.peer_name == "alice"

    with Pull(listen=ADDRESSES[transport], tls=identity("server"), admit=only_alice) as pull:
        with Push(dial=pull.address, tls=identity("bob"), reconnect=0.02, linger=0.0) as bob:
            eventually(lambda: pull.stats.refused >= 2)  # it tries again
            bob.send(b"from bob")
            with Push(dial=pull.address, tls=identity("alice")) as alice:
                alice.send(b"from alice")
                assert pull.recv(timeout=WAIT) == b"from alice"
                assert [pipe.peer_name for pipe in pull.pipes] == ["alice"]
        assert (pull.stats.joined, pull.stats.received) == (1, 1)


@pytest.mark.parametrize(("listens", "dials", "speaks"), [("tls+tcp", "tcp", "SP"), ("wss", "ws", "HTTP")])
def test_a_client_without_tls_is_refused(listens: str, dials: str, speaks: str, identity: Identity) -> None:
    with (
        Pull(listen=ADDRESSES[listens], tls=identity("server", ca=None)) as pull,
        Push(dial=pull.address.replace(listens, dials), reconnect=0.02) as push,
    ):
        eventually(lambda: pull.stats.cut >= 3)
        assert {one.reason for one in pull.cuts} == {NO_TLS.format(speaks)}
        assert (push.stats.joined, pull.stats.joined) == (0, 0)


def test_the_protocol_is_tls(identity: Identity, authority: trustme.CA) -> None:
    """Verified with Python's own TLS: without a certificate of ours, the handshake or the first read fails."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with Pull(listen=ADDRESSES["tls+tcp"], tls=identity("server", ca=None)) as pull:
        port = urlsplit(pull.address).port
        with context.wrap_socket(connect(f"tcp://127.0.0.1:{port}"), server_hostname="localhost") as line:
            assert line.version() in ("TLSv1.2", "TLSv1.3")
            assert line.recv(8)[:4] == b"\0SP\0"
    with Pull(listen=ADDRESSES["tls+tcp"], tls=identity("server")) as pull:
        port = urlsplit(pull.address).port
        with connect(f"tcp://127.0.0.1:{port}") as connection:
            try:
                with context.wrap_socket(connection, server_hostname="localhost") as line:
                    heard = line.recv(8)
            except (ssl.SSLError, ConnectionResetError):
                heard = b""
            assert heard == b"", "the server talked to a client without a certificate"


# ---- files and text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [str, Path], ids=["path as text", "Path"])
def test_certificates_may_be_files(form: Callable[[Any], Any], identity: Identity, tmp_path: Path) -> None:
    given = identity("client")
    paths = {}
    for what in ("ca", "cert", "key"):
        content = getattr(given, what)
        assert isinstance(content, bytes)
        (tmp_path / what).write_bytes(content)
        paths[what] = form(tmp_path / what)
    files = TLS(**paths, server_name="localhost")
    gets_in("tls+tcp", files, files)


def test_certificates_may_be_text(identity: Identity) -> None:
    given = identity("client")
    text = {what: getattr(given, what).decode() for what in ("ca", "cert", "key")}
    gets_in("tls+tcp", given, TLS(**text, server_name="localhost"))


def test_a_key_may_have_a_password(identity: Identity) -> None:
    plain = identity("client")
    assert isinstance(plain.key, bytes)
    locked = load_pem_private_key(plain.key, None).private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"sesame")
    )
    gets_in("tls+tcp", TLS(cert=plain.cert, key=locked, password="sesame"), TLS(verify=False))
    for wrong in ("mustard", None):
        with pytest.raises(ConfigError, match="tls"):
            Pull(listen=ADDRESSES["tls+tcp"], tls=TLS(cert=plain.cert, key=locked, password=wrong))


def listening(settings: dict[str, Any]) -> None:
    with Pull(listen=ADDRESSES["tls+tcp"], tls=TLS(**settings)):
        pytest.fail("it listens")


@pytest.fixture
def good(identity: Identity) -> dict[str, Any]:
    given = identity("client")
    return {"ca": given.ca, "cert": given.cert, "key": given.key}


@pytest.mark.parametrize("what", ["ca", "cert", "key"])
@pytest.mark.parametrize("form", [str, Path], ids=["path as text", "Path"])
def test_a_file_that_cannot_be_read_is_named(
    form: Callable[[Any], Any], what: str, good: dict[str, Any], tmp_path: Path
) -> None:
    for path, why in ((tmp_path / "missing.pem", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=why) as wrong:
            listening(good | {what: form(path)})
        assert what in wrong.value.what
        assert str(path) in str(wrong.value)


@pytest.mark.parametrize("what", ["ca", "cert", "key"])
@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x30\x82\xff\0" * 10], ids=["empty", "text", "DER"])
def test_a_file_without_pem_in_it_is_named(content: bytes, what: str, good: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "not.pem"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="not PEM text") as wrong:
        listening(good | {what: path})
    assert what in wrong.value.what
    assert str(path) in str(wrong.value)


@pytest.mark.parametrize("what", ["ca", "cert", "key"])
def test_a_certificate_in_der_is_refused(what: str, good: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="not PEM text") as wrong:
        listening(good | {what: b"\x30\x82\xff\0"})
    assert what in wrong.value.what


@pytest.mark.parametrize("what", ["ca", "cert", "key"])
def test_invalid_pem_is_refused(what: str, good: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="tls"):
        listening(good | {what: b"-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n"})


def test_incomplete_settings_are_refused(good: dict[str, Any], shared_tls: TLS) -> None:
    for lacking, why in (("cert", "must be given together"), ("key", "must be given together")):
        with pytest.raises(ConfigError, match=why):
            listening(good | {lacking: None})
    with pytest.raises(ConfigError, match="a listener needs cert and key"):
        listening({"ca": good["ca"]})
    with pytest.raises(ConfigError, match="a dialer needs ca, or verify=False"):
        Push(dial="tls+tcp://127.0.0.1:1", tls=TLS())
    for way in ("listen", "dial"):
        for url in ("tls+tcp://127.0.0.1:1", "wss://127.0.0.1:1/"):
            with pytest.raises(ConfigError, match="needs tls="):
                Push(**{way: url})  # type: ignore[arg-type]
    with Push(listen="tcp://127.0.0.1:0", tls=shared_tls) as push:  # which tcp ignores
        assert push.address.startswith("tcp://")


def test_secrets_are_not_shown(identity: Identity) -> None:
    given = identity("client", password="sesame")
    assert isinstance(given.key, bytes)
    assert "sesame" not in repr(given)
    assert given.key.decode() not in repr(given)
    assert "PRIVATE" not in repr(given)


# ---- closing ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wss_listeners_close_a_thousand_times_without_an_abort(identity: Identity) -> None:
    """NNG's own HTTP server, not used here, aborts the process in about one of a thousand closes (docs/nng.md)."""
    own = identity("server", ca=None)
    program = """
        import sys
        from nngkit.protocols import TLS, Pull
        tls = TLS(cert=sys.argv[1], key=sys.argv[2])
        for _ in range(1500):
            with Pull(listen="wss://localhost:0/x", tls=tls):
                pass
        print("done")
    """
    assert said(program, as_text(own.cert), as_text(own.key), timeout=50) == "done"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_wss_dialers_without_a_listener_close_a_thousand_times_without_an_abort() -> None:
    """Four processes at once, so that they compete for the CPU."""
    program = """
        import random, socket, time
        from nngkit.protocols import TLS, Bus

        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            for _ in range(1000):
                with Bus(dial=f"wss://127.0.0.1:{unused.getsockname()[1]}/p", tls=TLS(verify=False), reconnect=0.01):
                    time.sleep(random.random() * 0.02)
    """
    closing = [Background(said, program, timeout=160) for _ in range(4)]
    assert [one.result(160) for one in closing] == [""] * 4


def test_a_closed_wss_listener_does_not_affect_the_next_on_ws(identity: Identity) -> None:
    own = identity("both")
    for _ in range(3):
        for scheme in ("wss", "ws"):
            tls = own if scheme == "wss" else None
            with Pull(listen=f"{scheme}://127.0.0.1:0/x", tls=tls) as pull, Push(dial=pull.address, tls=tls) as push:
                push.send(b"heard")
                assert pull.recv(timeout=WAIT) == b"heard"


@pytest.mark.slow
def test_unclosed_connected_sockets_may_be_garbage_in_a_cycle(identity: Identity) -> None:
    own = identity("both")
    program = """
        import gc, logging, sys, warnings
        from nngkit.protocols import *
        warnings.simplefilter("ignore", ResourceWarning)
        # a socket that is not collected yet may dial the port of one that was, which a new one of TLS now has
        logging.getLogger("nngkit.protocols").setLevel(logging.ERROR)
        tls = TLS(ca=sys.argv[1], cert=sys.argv[2], key=sys.argv[3], server_name="localhost")
        kinds = (Pair0, Pair0), (Pair1, Pair1), (Push, Pull), (Bus, Bus), (Pub, Sub), (Req, Rep), (Surveyor, Respondent)
        urls = "tcp://127.0.0.1:0", "tls+tcp://127.0.0.1:0", "ws://127.0.0.1:0/x", "wss://127.0.0.1:0/x", "inproc://x"
        gc.disable()
        for _ in range(4):
            for url in urls:
                for one, two in kinds:
                    options = {"tls": tls} if url.startswith(("tls", "wss")) else {}
                    first = one(listen=url, **options)
                    second = two(dial=first.address, **options, **({"topics": ""} if two is Sub else {}))
                    first.wait_for_peers(1, 15), second.wait_for_peers(1, 15)
                    if hasattr(first, "send_many"):
                        first.send_many([b"x" * 1000] * 50, timeout=15)
                    cycle = [first, second]
                    cycle.append(cycle)
                    del first, second, cycle
                    if url == "inproc://x":
                        gc.collect()  # its name is to be free again
            gc.collect()
        print("done")
    """
    assert said(program, *map(as_text, (own.ca, own.cert, own.key)), timeout=50) == "done"


def as_text(pem: Any) -> str:
    return pem.decode() if isinstance(pem, bytes) else str(pem)


def serve(rep: Rep) -> None:
    for request in rep:
        request.reply(request.body)


@pytest.mark.parametrize("closes", [False, True], ids=["stays", "closes"])
def test_a_request_does_not_wait_for_the_handshake_of_another_peer(
    closes: bool, shared_tls: TLS, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over, shake = threading.Event(), threading.Event(), Layer.shake

    def shake_slowly(layer: Layer) -> None:
        if not begun.is_set():
            begun.set()
            assert over.wait(WAIT)
        shake(layer)

    with Rep(listen="tls+tcp://127.0.0.1:0", tls=shared_tls) as rep, Req(dial=rep.address, tls=shared_tls) as known:
        server = Background(serve, rep)
        assert known.request(b"before", timeout=WAIT) == b"before"
        with connect(rep.address) as newcomer:
            monkeypatch.setattr(Layer, "shake", shake_slowly)
            newcomer.sendall(b"\x16\x03\x01")
            assert begun.wait(WAIT)
            assert known.request(b"meanwhile", timeout=WAIT / 2) == b"meanwhile"
            if closes:
                rep.close(0.0)
            over.set()
            if not closes:
                assert known.request(b"after", timeout=WAIT) == b"after"
        rep.close()
        server.result()
