"""mypy and pyright check programs that use an installed nngkit.

They have to report each marked line of the wrong programs below, and no other line.
"""

from __future__ import annotations

import array
import inspect
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit import protocols
from nngkit.protocols import Pub, Pull, Push, Rep, Req, Socket, Sub
from nngkit.protocols._socket import options as _options

ROOT = Path(__file__).parents[1]
RIGHT = ROOT / "tests" / "typed" / "right.py"
ANY = "tcp://127.0.0.1:0"
FOUND = "  # found"
WRONG = {
    "a keyword that is misspelled": """
        from nngkit.protocols import Req
        Req(lisen="tcp://127.0.0.1:0")  # found
        """,
    "text where bytes are sent": """
        from nngkit.protocols import Push
        with Push(listen="tcp://127.0.0.1:0") as push:
            push.send("text")  # found
            push.send_many(["text"])  # found
            push.send_many(b"one message, and not many")  # found
        """,
    "text where a reply is sent": """
        from nngkit.protocols import Rep
        for request in Rep(listen="tcp://127.0.0.1:0"):
            request.reply("text")  # found
        """,
    "text where a request is sent": """
        from nngkit.protocols import Req
        async def ask(req: Req) -> bytes:
            return await req.arequest("text")  # found
        """,
    "a policy that a publisher does not have": """
        from nngkit.protocols import Bus, Pub, Surveyor
        Pub(when_full="block")  # found
        Bus(when_full="raise")  # found
        Surveyor(when_full="block")  # found
        """,
    "a policy that no socket has": """
        from nngkit.protocols import Push
        Push(when_full="dropp")  # found
        """,
    "a number as text": """
        from nngkit.protocols import Pull, Sub
        Pull(recv_timeout="5")  # found
        Sub(topics="a", recv_buffer="16")  # found
        """,
    "batches on a socket without batches": """
        from nngkit.protocols import Rep, Req
        Req(batch=True)  # found
        Rep(batch=True)  # found
        """,
    "an option of another protocol": """
        from nngkit.protocols import Pub, Pull, Surveyor
        Pub(topics="a")  # found
        Pull(resend=1.0)  # found
        Surveyor(sequence=True)  # found
        """,
    "a received message used as another type": """
        from nngkit.protocols import Pull, Rep
        def take(pull: Pull, rep: Rep) -> str:
            rep.recv().contents  # found
            return pull.recv()  # found
        """,
    "a name that the package does not have": """
        from nngkit import Services  # found
        from nngkit.discovery import Demons  # found
        from nngkit.devices import Devices  # found
        from nngkit.journal import Journals  # found
        """,
    "a keyword of a service": """
        from nngkit import Service, ServiceDiscovery
        Service("answer", "tcp://127.0.0.1:9000", discovry=[])  # found
        ServiceDiscovery(listen="tcp://127.0.0.1:0", timeout="0.5")  # found
        """,
    "a keyword of a document peer": """
        from nngkit.documents import DocumentPeer
        DocumentPeer(lisen="tcp://127.0.0.1:0")  # found
        DocumentPeer(listen="tcp://127.0.0.1:0").open(7)  # found
        """,
    "the same without an event loop": """
        from nngkit.blocking import DocumentPeer, Service, ServiceDiscovery
        DocumentPeer(lisen="tcp://127.0.0.1:0")  # found
        with ServiceDiscovery(listen="tcp://127.0.0.1:0") as discovery:
            discovery.resolve("answer").addresses  # found
            discovery.wait_for_peers(timeout="5")  # found
            discovery.address.nothing  # found
        """,
    "the same under asyncio": """
        from nngkit.aio import Client, DocumentPeer, Server, Service, ServiceDiscovery
        DocumentPeer(lisen="tcp://127.0.0.1:0")  # found
        Client("answer", policy=7)  # found
        Server("answer", queue="long")  # found
        async def use(discovery: ServiceDiscovery, service: Service, client: Client) -> None:
            discovery.resolve("answer").addresses  # found
            await discovery.wait_for_peers(timeout="5")  # found
            discovery.address.nothing  # found
            service.update(weightt=7)  # found
            await client.request(b"?", way="x")  # found
            async for event in discovery.events():
                event.nothing  # found
        """,
    "a socket that cannot record or replay": """
        from nngkit.journal import Recorder, replay
        from nngkit.protocols import Pull, Push
        async def both(recorder: Recorder, push: Push, pull: Pull) -> None:
            await recorder.record(push, "topic")  # found
            await replay("journal", pull)  # found
        """,
    "text where a device takes sockets": """
        from nngkit.devices import Device
        Device("front", "back")  # found
        """,
}
"""Programs by the mistake that they contain."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python with nngkit and its dependencies in site-packages, as after `pip install`."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True, timeout=60)
    scheme = {"base": str(home), "platbase": str(home)}
    packages = Path(sysconfig.get_path("purelib", "venv", scheme))
    (packages / "nngkit").symlink_to(ROOT / "nngkit")
    (packages / "dependencies.pth").write_text(f"{Path(trio.__file__).parents[1]}\n")
    return home / "bin" / "python"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], set[tuple[str, int]]]:
    """Write the wrong programs and the right one to files; return them and the lines that have to be reported."""
    folder = tmp_path_factory.mktemp("programs")
    files, marked = [], set()
    for number, text in enumerate(WRONG.values()):
        file = folder / f"wrong_{number}.py"
        lines = inspect.cleandoc(text).splitlines()
        file.write_text("\n".join(lines) + "\n")
        files.append(file)
        marked |= {(file.name, at) for at, line in enumerate(lines, 1) if line.endswith(FOUND)}
    files.append(folder / "right.py")
    files[-1].write_text(RIGHT.read_text())
    return files, marked


def run(argv: list[str], folder: Path) -> str:
    """Run a checker that has to find something; return its output."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=170)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(180)  # a checker first reads all of nngkit and trio
def test_mypy_reports_each_wrong_line_and_no_other(
    installed: Path, programs: tuple[list[Path], set[tuple[str, int]]]
) -> None:
    files, marked = programs
    argv = [sys.executable, "-m", "mypy", "--strict", "--output=json", "--config-file="]
    argv += ["--cache-dir", str(files[0].parent / "cache"), "--python-executable", str(installed)]
    said = [json.loads(line) for line in run([*argv, *map(str, files)], files[0].parent).splitlines()]
    errors = {(Path(each["file"]).name, each["line"]): each["message"] for each in said if each["severity"] == "error"}
    assert errors.keys() == marked, errors


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.needs_program("node", package="nodejs")
@pytest.mark.needs_program("npm", package="npm")
def test_pyright_reports_each_wrong_line_and_no_other(
    installed: Path, programs: tuple[list[Path], set[tuple[str, int]]]
) -> None:
    files, marked = programs
    argv = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", str(installed)]
    said: list[dict[str, Any]] = json.loads(run([*argv, *map(str, files)], files[0].parent))["generalDiagnostics"]
    errors = {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1): each["message"]
        for each in said
        if each["severity"] == "error"
    }
    assert errors.keys() == marked, errors


@pytest.mark.slow
def test_the_right_program_runs() -> None:
    done = subprocess.run([sys.executable, str(RIGHT)], cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")


SOCKETS = [
    one for one in vars(protocols).values() if inspect.isclass(one) and issubclass(one, Socket) and one is not Socket
]


@pytest.mark.parametrize("kind", SOCKETS, ids=lambda kind: kind.__name__)
def test_the_typed_options_are_those_that_the_socket_accepts(kind: type[Socket]) -> None:
    code: Any = inspect.unwrap(kind.__init__)
    dictionary = getattr(_options, code.__annotations__["options"].removeprefix("Unpack[").removesuffix("]"))
    own = {name for name in code.__annotations__ if name not in ("options", "return")}
    takes = set(inspect.signature(kind).parameters)
    assert {*dictionary.__annotations__} | own == takes
    policies = str(dictionary.__annotations__["when_full"])
    assert all(f"'{policy}'" in policies for policy in kind._policies) or "WhenFull" in policies
    with kind() as socket:  # the defaults are accepted
        assert not socket.closed


def test_the_signature_of_a_class_lists_its_options() -> None:
    parameters = inspect.signature(Sub).parameters
    assert list(parameters)[:3] == ["topics", "sequence", "listen"]
    assert (parameters["recv_max_size"].default, parameters["topics"].default) == (1 << 20, ())
    assert "batch" not in inspect.signature(Req).parameters
    assert next(iter(inspect.signature(Rep).parameters)) == "listen"
    with pytest.raises(TypeError, match="lisen"):
        Push(lisen=ANY)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "payload",
    [b"abcd", bytearray(b"abcd"), memoryview(b"abcd"), memoryview(b"a-b-c-d-")[::2], array.array("B", b"abcd")],
    ids=["bytes", "bytearray", "memoryview", "every other byte", "array"],
)
@pytest.mark.parametrize("batch", [False, True], ids=["single", "batches"])
def test_every_bytes_like_object_is_a_payload(payload: Any, batch: bool) -> None:
    with Push(listen=ANY, batch=batch) as push, Pull(dial=push.address, batch=batch) as pull:
        push.send(payload)
        push.send_many([payload, payload])
        push.flush()
        assert [pull.recv(5) for _ in range(3)] == [b"abcd"] * 3
        for wrong in ("text", 4, None):
            with pytest.raises(TypeError):
                push.send(wrong)  # type: ignore[arg-type]


def test_changing_a_buffer_after_send_does_not_change_the_message() -> None:
    with Push(listen=ANY) as push:
        buffer = bytearray(b"before")
        push.send(buffer)
        buffer[:] = b"after!"
        with Pull(dial=push.address) as pull:
            assert pull.recv(5) == b"before"


@pytest.mark.parametrize(
    "topic", [b"a", "a", bytearray(b"a"), memoryview(b"a")], ids=lambda topic: type(topic).__name__
)
def test_a_topic_is_bytes_or_text(topic: bytes | bytearray | memoryview | str) -> None:
    with Pub(listen=ANY) as pub, Sub(dial=pub.address, topics=topic) as sub:
        assert sub.topics == (b"a",)
        pub.wait_for_peers(1, 5)
        pub.send(b"1", topic=topic)
        assert sub.recv(5) == b"a1"


def test_a_number_is_rejected_as_a_topic() -> None:
    with Pub(listen=ANY) as pub:
        with pytest.raises(TypeError):
            pub.send(b"1", topic=3)  # type: ignore[arg-type]
        with Sub(dial=pub.address) as sub, pytest.raises(TypeError):
            sub.subscribe(3)  # type: ignore[arg-type]
