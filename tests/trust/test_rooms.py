"""Rooms with a trust, the trust of a process, and listeners that nothing protects."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

import pytest
import trio

from nngkit.calls import Server
from nngkit.cli.commands import COMMANDS, STAND_INS
from nngkit.cli.tools.catalogue import choices
from nngkit.cluster import Host, Member
from nngkit.discovery import Daemon, DaemonSettings
from nngkit.documents import DocumentPeer
from nngkit.errors import ConfigError, NngkitError
from nngkit.fanout import ConsumerServer, Publisher
from nngkit.protocols import TLS, Pull, Push
from nngkit.trust import OPEN, Choice, Trust, choice, passes, use
from nngkit.trust.realm import Realm
from tests.cli.commands import assert_fails, discoverd, nngkit
from tests.trust.rooms import ANY, ROOMS, WAIT, calls, publisher, subscribes

EVERYWHERE = "tcp://0.0.0.0:0"
WORDS = "other machines can reach it"
REFUSED = 0.4  # seconds in which an honest peer has long been served
FARM = Realm.new("farm")


@pytest.fixture
def pass_of(tmp_path: Path) -> Callable[..., Path]:
    """Return a maker of pass files: ``pass_of("render.w1", realm=...)``."""
    numbers = itertools.count()

    def make(name: str, realm: Realm = FARM) -> Path:
        path = tmp_path / f"pass {next(numbers)}" / "own.pass"
        path.parent.mkdir()
        passes.write(path, realm.issue(name))
        return path

    return make


@pytest.fixture(autouse=True)
def no_trust_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_used", None)
    monkeypatch.delenv(choice.VARIABLE, raising=False)


# ---- one exchange in each room ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("serving", "asks"), ROOMS, ids=[serving.__name__ for serving, _ in ROOMS])
async def test_a_room_serves_names_of_its_realm_alone(
    serving: Callable[[Trust, Path], AbstractAsyncContextManager[str]],
    asks: Callable[[str, Trust], Awaitable[None]],
    pass_of: Callable[..., Path],
    tmp_path: Path,
) -> None:
    stranger = Trust(pass_of("desk.ada", Realm.new("farm")))  # of another realm with the same name
    async with serving(Trust(pass_of("hub")), tmp_path) as url:
        with trio.move_on_after(REFUSED), suppress(NngkitError):
            await asks(url, stranger)
            raise AssertionError("the stranger was served")
        with trio.fail_after(WAIT):
            await asks(url, Trust(pass_of("desk.ada")))


# ---- the trust of a process ------------------------------------------------------------------------------------------


async def test_rooms_have_the_trust_of_the_environment(
    pass_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NNGKIT_TRUST", str(pass_of("hub")))
    async with publisher(None, tmp_path) as url:
        with trio.fail_after(WAIT):
            await subscribes(url, None)
    with pytest.raises(ConfigError, match=r"needs tls\+tcp"):
        async with DocumentPeer(listen=EVERYWHERE):
            pass


def test_a_socket_has_the_trust_of_the_process_at_tls_addresses(pass_of: Callable[..., Path]) -> None:
    assert use(pass_of("hub")) == choice.chosen(None)
    with Pull(listen=ANY) as pull, Push(dial=pull.address) as push, Pull(listen="tcp://127.0.0.1:0") as plain:
        push.send(b"x")
        assert pull.recv(timeout=WAIT) == b"x"
        assert [pipe.who for pipe in pull.pipes] == ["hub"]
        with Push(dial=plain.address) as local:
            local.send(b"y")
            assert plain.recv(timeout=WAIT) == b"y"


def test_certificates_and_a_trust_of_its_own_come_before_that_of_the_process(pass_of: Callable[..., Path]) -> None:
    use(pass_of("hub"))
    other = Trust(pass_of("desk.ada"))
    assert choice.chosen(other) is other
    assert choice.chosen(None, TLS(verify=False)) is None
    assert use("open") is OPEN is choice.chosen(None) is choice.chosen(None, TLS(verify=False))


def test_an_unusable_variable_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNGKIT_TRUST", "/nowhere/x.pass")
    with pytest.raises(ConfigError, match=r"NNGKIT_TRUST: .*/nowhere/x\.pass"):
        Publisher(ANY)


# ---- listeners that nothing protects ---------------------------------------------------------------------------------


def open_daemon(folder: Path, listen: str, trust: Choice | None) -> object:
    return Daemon(DaemonSettings(listen=(listen,)), trust=trust)


def open_consumers(folder: Path, listen: str, trust: Choice | None) -> object:
    return ConsumerServer(folder, listen=listen, trust=trust)


def open_document(folder: Path, listen: str, trust: Choice | None) -> object:
    return DocumentPeer(listen=listen, trust=trust)


def open_host(folder: Path, listen: str, trust: Choice | None) -> object:
    return Host("farm", listen=listen, trust=trust)


def open_member(folder: Path, listen: str, trust: Choice | None) -> object:
    return Member("farm", dial="tcp://127.0.0.1:9", listen=listen, trust=trust)


@pytest.mark.parametrize("make", [open_daemon, open_consumers, open_document, open_host, open_member])
@pytest.mark.parametrize("listen", [EVERYWHERE, "tcp://*:0", "ws://[::]:0/x", "tcp://192.0.2.1:7000", "tcp://box:7000"])
def test_a_room_refuses_a_listener_that_nothing_protects(
    make: Callable[[Path, str, Choice | None], object], listen: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=WORDS) as refused:
        make(tmp_path, listen, None)
    assert listen in str(refused.value)
    make(tmp_path, listen, OPEN)
    for here in ("tcp://127.0.0.1:0", "tcp://localhost:0", "ipc:///tmp/x", "inproc://x", "ws://[::1]:0/x"):
        make(tmp_path, here, None)


async def test_a_port_alone_opens_no_daemon_that_has_a_trust(pass_of: Callable[..., Path]) -> None:
    use(pass_of("hub"))
    with pytest.raises(ConfigError, match=r"needs tls\+tcp"):
        async with Daemon(DaemonSettings.from_environment({"PORT": "0"})):
            pass


def test_a_token_protects_a_cluster_and_documents() -> None:
    Host("farm", listen=EVERYWHERE, token="secret")
    Member("farm", dial="tcp://127.0.0.1:9", listen=EVERYWHERE, ticket="t")
    Host("farm", listen=EVERYWHERE, authenticator=lambda applicant: True)
    DocumentPeer(listen="ws://0.0.0.0:0", token="secret")
    DocumentPeer(listen=EVERYWHERE, admit=lambda pipe: True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, True),
        ({"trust": OPEN}, False),
        ({"admit": lambda pipe: True}, False),
        ({"listen": "tcp://127.0.0.1:0"}, False),
        ({"listen": "inproc://open"}, False),
    ],
)
def test_a_socket_says_so(options: dict[str, object], says: bool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "nngkit.protocols"), Pull(**{"listen": EVERYWHERE} | options) as pull:  # type: ignore[arg-type]
        address = pull.address
    lines = [record.getMessage() for record in caplog.records if WORDS in record.getMessage()]
    assert len(lines) == says
    assert all(line.startswith(f"{address}: ") for line in lines)


@pytest.mark.parametrize("by", [lambda patch: use("open"), lambda patch: patch.setenv("NNGKIT_TRUST", "open")])
async def test_what_the_words_name_makes_it_meant_for_sockets_and_rooms(
    by: Callable[[pytest.MonkeyPatch], object], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match=r"say that it is meant \(trust=OPEN, or NNGKIT_TRUST=open\)"):
        DocumentPeer(listen=EVERYWHERE)
    by(monkeypatch)
    DocumentPeer(listen=EVERYWHERE)
    DocumentPeer(listen="tls+tcp://0.0.0.0:0", tls=TLS(verify=False))
    with caplog.at_level(logging.WARNING, "nngkit.protocols"), Pull(listen=EVERYWHERE):
        async with Publisher(EVERYWHERE):
            pass
    assert not caplog.records


# ---- commands --------------------------------------------------------------------------------------------------------


def test_every_command_that_listens_has_the_option() -> None:
    # stand-ins listen without a word; `trust` serves peers that have no pass yet, by an invitation
    for command in COMMANDS.keys() - STAND_INS - {"trust"}:
        names = {name for choice in choices(command) for name in choice.names}
        assert not names & {"--listen", "--http", "--dns"} or "--trust" in names, command


def test_pull_says_what_makes_it_meant_and_takes_it(pass_of: Callable[..., Path]) -> None:
    pull = ["pull", "--listen", EVERYWHERE, "--recv-timeout", "10ms"]
    assert "(trust=OPEN, or NNGKIT_TRUST=open)" in nngkit(*pull).stderr
    assert WORDS not in nngkit(*pull, NNGKIT_TRUST="open").stderr
    assert WORDS not in nngkit(*pull, "--trust", "open").stderr
    own = ["--trust", str(pass_of("hub"))]
    assert_fails(nngkit(*pull, *own), 2, "--trust: is for tls+tcp:// and wss:// addresses")
    assert_fails(nngkit("pull", "--listen", ANY, *own, "--insecure"), 2, "--insecure: is given by the pass of --trust")
    assert_fails(nngkit(*pull, "--trust", "/nowhere"), 2, "--trust: pass: /nowhere")


@pytest.mark.parametrize(
    "arguments",
    [
        ["discoverd", "--listen", EVERYWHERE],
        ["discoverd", "--query", EVERYWHERE],
        ["host", "farm", "--listen", EVERYWHERE],
        ["consume", "--serve", "--journal", "/tmp", "--listen", EVERYWHERE],
        ["doc", "serve", "--no-token", "--listen", EVERYWHERE, "/tmp/never"],
        ["record", "/tmp/never", "--stream", f"x=pull listen={EVERYWHERE}"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_command_refuses_a_listener_that_nothing_protects(arguments: list[str]) -> None:
    assert_fails(nngkit(*arguments), 2, EVERYWHERE, WORDS)


def test_the_host_of_a_daemon_is_refused_and_its_port_alone_is_not() -> None:
    assert_fails(nngkit("discoverd", NNGKIT_HOST="0.0.0.0", PORT="0"), 2, WORDS)
    assert_fails(nngkit("discoverd", "--listen", EVERYWHERE, PORT="0"), 2, WORDS)
    with discoverd(NNGKIT_LISTEN="", PORT="0") as alone:
        assert "PORT=0 alone listens on every interface" in alone.warnings[0]
    with discoverd("--listen", EVERYWHERE, "--trust", "open") as opened:
        assert (opened.surveys.startswith("tcp://0.0.0.0:"), opened.warnings) == (True, [])


@pytest.mark.slow
def test_commands_prove_names_by_a_pass(pass_of: Callable[..., Path]) -> None:
    own = ["--trust", str(pass_of("hub"))]
    with discoverd("--listen", ANY, "--query", ANY, *own) as running:
        queries = running.answers
        assert nngkit("discover", "--daemon", queries, *own).returncode == 0
        stranger = str(pass_of("hub", Realm.new("farm")))
        assert nngkit("discover", "--daemon", queries, NNGKIT_TRUST=stranger).returncode != 0
        assert nngkit("discover", "--daemon", queries, NNGKIT_TRUST=own[1]).returncode == 0


def test_a_pass_takes_the_place_of_certificates(pass_of: Callable[..., Path]) -> None:
    own = ["--trust", str(pass_of("hub"))]
    assert_fails(nngkit("discoverd", "--listen", ANY, *own, "--cert", "/x", "--key", "/x"), 2, "--cert: is given by")
    assert_fails(nngkit("discoverd", "--listen", ANY, "--trust", "/nowhere"), 2, "--trust: pass: /nowhere")


async def test_a_server_with_a_trust_that_is_given_no_address_speaks_tls(pass_of: Callable[..., Path]) -> None:
    async def echo(body: object) -> object:
        return body

    async with Server("echo", echo, discovery=(), trust=Trust(pass_of("hub"))) as running:
        assert running.address.startswith("tls+tcp://127.0.0.1:")
        await calls(running.address, Trust(pass_of("desk.ada")))
