"""`nngkit doctor` with real listeners and with other servers."""

from __future__ import annotations

import datetime as dt
import http.server
import os
import pty
import select
import socket
import socketserver
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import zmq

from nngkit import protocols
from nngkit.cli.diagnosis import NUMBERS, PEERS
from nngkit.errors import TimedOut
from nngkit.protocols import TLS, Pair1, Pull, Push, Rep
from tests.cli.certificates import Certificate, issue
from tests.cli.commands import ROOT, assert_fails, command, environment, nngkit, valid
from tests.protocols.programs import Program, place

pytestmark = pytest.mark.slow  # programs of seconds; CI runs them

ANY = "tcp://127.0.0.1:0"


def doctor(*arguments: str) -> dict[str, Any]:
    done = nngkit("doctor", *arguments, "--json", "--timeout", "5")
    assert done.stderr == ""
    found = valid(done.stdout, "doctor.json")
    assert found["exit_code"] == done.returncode
    assert found["address"] == arguments[0]
    return found


def codes(found: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in found["findings"]]


# ---- protocols -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(NUMBERS))
def test_it_recognizes_every_protocol_without_becoming_a_peer(name: str) -> None:
    with getattr(protocols, name.capitalize())(listen=ANY) as listener:
        assert doctor(listener.address)["peer"] == name
        found = doctor(listener.address, "--protocol", PEERS[name])
        assert (found["ok"], codes(found), found["this"]) == (True, ["connected", "peer"], PEERS[name])
        assert listener.stats.joined == 0


@pytest.mark.parametrize("transport", ["ipc", "abstract", "ws", "tcp6"])
def test_it_probes_every_transport(transport: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        address = {
            "ipc": f"ipc://{folder}/s",
            "abstract": f"abstract://nngkit-doctor-{os.getpid()}",
            "ws": "ws://127.0.0.1:0/path",
            "tcp6": "tcp6://[::1]:0",
        }[transport]
        with Rep(listen=address) as rep:
            assert doctor(rep.address)["peer"] == "rep"
            found = doctor(rep.address, "--protocol", "sub")
            assert (found["peer"], codes(found), found["exit_code"]) == ("rep", ["connected", "mismatch"], 1)


def test_the_other_pair_version_is_reported() -> None:
    with Pair1(listen=ANY) as pair:
        assert codes(doctor(pair.address, "--protocol", "pair0")) == ["connected", "pair-version"]


@pytest.mark.parametrize("transport", ["tcp", "ws"])
@pytest.mark.needs_program("nanocat", package="nanomsg-utils")
def test_it_probes_nanomsg(transport: str, tmp_path: Path) -> None:
    with place(transport, tmp_path) as address, Program("nanocat", "--pull", "--bind", address, "--quoted") as program:
        with Push(dial=address) as push:  # it is up afterwards
            push.send(b"up")
            assert program.line() == '"up"'
        assert doctor(address)["peer"] == "pull"
        assert codes(doctor(address, "--protocol", "pub")) == ["connected", "mismatch"]


def test_a_push_over_ws_survives_it() -> None:
    with Push(listen="ws://127.0.0.1:0/x") as push:
        for _ in range(5):
            assert doctor(push.address, "--protocol", "pull")["ok"]
        with Pull(dial=push.address) as pull:
            push.wait_for_peers(1, 20)
            push.send(b"x")
            assert pull.recv(20) == b"x"


# ---- problems --------------------------------------------------------------------------------------------------------


def test_no_listener_is_reported() -> None:
    with socket.socket() as bound:  # bound without listening: the port refuses connections
        bound.bind(("127.0.0.1", 0))
        found = doctor(f"tcp://127.0.0.1:{bound.getsockname()[1]}")
    assert (codes(found), found["exit_code"]) == (["refused"], 3)


def test_an_unknown_host_is_reported() -> None:
    found = doctor("tcp://no-such-host.invalid:5555")
    assert (codes(found), found["exit_code"]) == (["host-not-found"], 3)


def test_unix_sockets_without_a_listener_are_reported() -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert codes(doctor(f"ipc://{folder}/s")) == ["no-socket"]
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(f"{folder}/s")
        assert codes(doctor(f"ipc://{folder}/s")) == ["stale-socket"]
        assert codes(doctor(f"ipc://{folder}/{'s' * 107}")) == ["path-too-long"]


@contextmanager
def server(handler: type[socketserver.BaseRequestHandler]) -> Iterator[str]:
    """Serve connections with a handler; yield `host:port`."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{serving.server_address[1]}"
        finally:
            serving.shutdown()
            thread.join()


class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404 if self.path == "/missing" else 418)

    def log_message(self, *_: Any) -> None:
        pass


class Closes(socketserver.BaseRequestHandler):
    pass


class Greets(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"220 mail\r\n")
        self.request.recv(1)


class Silent(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while self.request.recv(4096):
            pass


@pytest.mark.parametrize(
    ("handler", "scheme", "path", "code", "exit_code"),
    [
        (Web, "tcp", "", "http", 1),
        (Web, "ws", "/x", "http", 1),
        (Web, "ws", "/missing", "ws-path", 1),
        (Closes, "tcp", "", "closed", 1),
        (Closes, "ws", "/", "closed", 1),
        (Greets, "tcp", "", "not-sp", 1),
        (Silent, "tcp", "", "silent", 4),
    ],
)
def test_other_programs_are_recognized(
    handler: type[socketserver.BaseRequestHandler], scheme: str, path: str, code: str, exit_code: int
) -> None:
    with server(handler) as where:
        done = nngkit("doctor", f"{scheme}://{where}{path}", "--json", "--timeout", "1")
    found = valid(done.stdout, "doctor.json")
    assert (codes(found), done.returncode) == (["connected", code], exit_code)


def test_a_zeromq_socket_is_recognized() -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        assert codes(doctor(f"tcp://127.0.0.1:{port}")) == ["connected", "zeromq"]


def test_a_wrong_transport_or_path_is_recognized() -> None:
    with Pull(listen="ws://127.0.0.1:0/right") as pull:
        root = pull.address.removesuffix("/right")
        assert codes(doctor(root + "/wrong", "--protocol", "push")) == ["connected", "ws-path"]
        assert codes(doctor(pull.address.replace("127.0.0.1", "localhost"))) == ["connected", "ws-path"]
        assert codes(doctor(root.replace("ws", "tcp"))) == ["connected", "http"]
    with Pull(listen=ANY) as pull:
        assert codes(doctor(pull.address.replace("tcp", "ws"))) == ["connected", "no-ws"]
        assert codes(doctor(pull.address.replace("tcp", "tls+tcp"), "--insecure")) == ["connected", "no-tls"]


# ---- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return issue(tmp_path / "ours", "localhost", authority=trustme.CA())


@contextmanager
def listening(certificate: Certificate, scheme: str = "tls+tcp", *, demands: bool = False) -> Iterator[str]:
    """Run a listener with the certificate; yield its address with a host name."""
    with Pull(listen=f"{scheme}://127.0.0.1:0", tls=certificate.tls(verify=demands)) as pull:
        yield pull.address.replace("127.0.0.1", "localhost")


def test_working_tls_is_recognized(certificate: Certificate) -> None:
    with listening(certificate) as address:
        found = doctor(address, "--cacert", str(certificate.ca), "--protocol", "push")
        assert codes(found) == ["connected", "tls", "peer"]
        found = doctor(address)
        assert (codes(found), found["exit_code"]) == (["connected", "tls-unchecked", "peer"], 0)
        by_number = address.replace("localhost", "127.0.0.1")
        named = doctor(by_number, "--cacert", str(certificate.ca), "--server-name", "localhost")
        assert codes(named) == ["connected", "tls", "peer"]
        assert codes(doctor(address.replace("tls+tcp", "tcp"))) == ["connected", "tls-wanted"]


def test_wss_is_probed(certificate: Certificate) -> None:
    with Pull(listen="wss://localhost:0/x", tls=certificate.tls(verify=False)) as pull:
        found = doctor(pull.address, "--cacert", str(certificate.ca), "--protocol", "push")
        assert codes(found) == ["connected", "tls", "peer"]


def test_a_wrong_name_in_the_certificate_is_reported(certificate: Certificate) -> None:
    with listening(certificate) as address:
        found = doctor(address, "--cacert", str(certificate.ca), "--server-name", "elsewhere")
        assert (codes(found), found["peer"], found["exit_code"]) == (["connected", "tls-name", "peer"], "pull", 1)


def test_ip_addresses_in_certificates_are_checked_as_in_nng(tmp_path: Path) -> None:
    for name, good in (("127.0.0.1", True), ("127.0.0.2", False)):
        certificate = issue(tmp_path / name, name)
        with Pull(listen="tls+tcp://127.0.0.1:0", tls=certificate.tls(verify=False)) as pull:
            found = doctor(pull.address, "--cacert", str(certificate.ca))
            assert codes(found) == ["connected", "tls" if good else "tls-name", "peer"]
            with Push(dial=pull.address, tls=TLS(ca=certificate.ca)) as push:
                if good:
                    push.wait_for_peers(1, 20)
                else:
                    with pytest.raises(TimedOut):
                        push.wait_for_peers(1, 0.5)


def test_an_unknown_authority_and_an_expired_certificate_are_reported(tmp_path: Path, certificate: Certificate) -> None:
    stranger = issue(tmp_path / "stranger", "localhost")
    with listening(certificate) as address:
        assert codes(doctor(address, "--cacert", str(stranger.ca)))[:2] == ["connected", "tls-unknown-authority"]
    old = issue(tmp_path / "old", "localhost", not_after=dt.datetime(2001, 1, 1, tzinfo=dt.UTC))
    with listening(old) as address:
        assert codes(doctor(address, "--cacert", str(old.ca)))[:2] == ["connected", "tls-expired"]


def test_a_required_client_certificate_is_reported(tmp_path: Path, certificate: Certificate) -> None:
    stranger = issue(tmp_path / "stranger", "localhost")
    with listening(certificate, demands=True) as address:
        ca = ("--cacert", str(certificate.ca))
        found = doctor(address, *ca)
        assert (codes(found), found["exit_code"]) == (["connected", "tls-client-certificate"], 1)
        shown = ("--cert", str(stranger.cert), "--key", str(stranger.key))
        assert codes(doctor(address, *ca, *shown)) == ["connected", "tls-client-certificate-refused"]
        assert codes(doctor(address, *certificate.options)) == ["connected", "tls", "peer"]


def without_alerts(port: int) -> type[socketserver.BaseRequestHandler]:
    """Return a relay to a TLS listener that drops what it sends after the client's second flight, as its alert is."""

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            client = self.request
            with socket.create_connection(("127.0.0.1", port)) as listener:
                flights, last = 0, listener
                while ready := select.select([client, listener], [], [], 30)[0]:
                    source = ready[0]
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is client:
                        flights += last is listener
                        listener.sendall(data)
                    elif flights < 2:
                        client.sendall(data)
                    last = source

    return Relay


def test_a_client_certificate_whose_rejection_is_lost_is_reported(tmp_path: Path, certificate: Certificate) -> None:
    """Failed once in 200 under load: a listener that closes may do so before its alert is sent."""
    stranger = issue(tmp_path / "stranger", "localhost")
    with (
        listening(certificate, demands=True) as address,
        server(without_alerts(int(address.rpartition(":")[2]))) as relay,
    ):
        there = f"tls+tcp://localhost:{relay.rpartition(':')[2]}"
        ca = ("--cacert", str(certificate.ca))
        assert codes(doctor(there, *ca)) == ["connected", "tls-client-certificate"]
        shown = ("--cert", str(stranger.cert), "--key", str(stranger.key))
        assert codes(doctor(there, *ca, *shown)) == ["connected", "tls-client-certificate-refused"]


# ---- output ----------------------------------------------------------------------------------------------------------


def test_text_output_has_levels_and_advice() -> None:
    with Pull(listen=ANY) as pull:
        done = nngkit("doctor", pull.address, "--protocol", "pub")
        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout == (
            "ok       accepts connections\n"
            "problem  a PULL listens there, and a PUB connects only to a SUB: use a push, or check the address\n"
        )
        ours, theirs = pty.openpty()
        try:
            for variables, colour in (({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
                arguments = command("doctor", pull.address)
                subprocess.run(arguments, cwd=ROOT, env=environment(**variables), stdout=theirs, timeout=30, check=True)
                assert select.select([ours], [], [], 30)[0]
                assert (b"\033[32mok" in os.read(ours, 4096)) == colour
        finally:
            os.close(ours)
            os.close(theirs)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["here"], "argument URL: 'here' is not an address"),
        (["--protocol", "sub"], "--protocol: needs URL"),
        (["inproc://x"], "URL: inproc://x: inproc does not reach"),
        (["tcp://a:0"], "URL: tcp://a:0: needs a port"),
        ([ANY, "--protocol", "pair"], "argument --protocol: invalid choice: 'pair'"),
        (["tcp://a:1", "--key", "x"], "--key: is for tls+tcp:// and wss://"),
        (["tls+tcp://a:1", "--cacert", "/nowhere"], "--cacert: /nowhere: No such file or directory"),
        (["tls+tcp://a:1", "--cacert", "/etc/passwd"], "--cacert: /etc/passwd: not PEM text"),
    ],
)
def test_wrong_usage_is_a_one_line_error(arguments: list[str], says: str) -> None:
    assert_fails(nngkit("doctor", *arguments), 2, says)


def test_it_loads_no_nng() -> None:
    script = (
        "import sys; from nngkit.cli.main import main; main(['doctor', 'ipc:///nowhere']); print(*sorted(sys.modules))"
    )
    arguments = [command()[0], "-c", script]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert not {"pynng", "trio", "asyncio"} & set(done.stdout.split())
