"""`nngkit device` as a process, between programs on both sides."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nngkit.devices.kinds import KINDS
from nngkit.errors import TimedOut
from nngkit.journal import open_journal, read
from nngkit.protocols import Bus, Pair0, Pair1, Pub, Pull, Push, Rep, Req, Sub
from nngkit.testing import Background, eventually
from tests.cli.certificates import issue
from tests.cli.commands import ROOT, SCHEMAS, assert_fails, command, environment, nngkit, valid
from tests.cli.processes import Running
from tests.protocols.programs import INTERVAL, Program, needed

ANY = "tcp://127.0.0.1:0"
WAIT = 20.0
PROGRAMS = [pytest.param(name, marks=needed(name)) for name in ("nngcat", "nanocat")]


def device(kind: str, *arguments: str, **options: Any) -> Running:
    """Run a device that listens on both sides."""
    return Running("device", kind, "--front-listen", ANY, "--back-listen", ANY, *arguments, **options)


def connected(running: Running, peers: int = 1) -> dict[str, Any]:
    """Return the statistics of a device started with --json, once both sides have that many peers."""
    while True:
        running.process.send_signal(signal.SIGUSR1)
        counted = valid(running.line(), "device.json")
        if counted["front"]["pipes"] == counted["back"]["pipes"] == peers:
            return counted


@pytest.fixture
def answerer() -> Iterator[Callable[[str], Rep]]:
    """Dial an address and reply in upper case."""
    opened: list[tuple[Rep, Background]] = []

    def start(address: str) -> Rep:
        rep = Rep(dial=address)
        opened.append((rep, Background(answer, rep)))
        return rep

    def answer(rep: Rep) -> None:
        for request in rep:
            request.reply(request.body.upper())

    yield start
    for rep, background in opened:
        rep.close(0.0)
        background.result()


# ---- forwarding ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requester", PROGRAMS)
@pytest.mark.parametrize("replier", PROGRAMS)
def test_a_queue_connects_nngcat_and_nanocat(requester: str, replier: str) -> None:
    with device("queue") as queue:
        front, back = queue.addresses()
        with Program(replier, "--rep", "--connect", back, "--data", "42", "--quoted") as answers:
            for number in range(3):
                with Program(
                    requester, "--req", "--connect", front, "--data", f"question {number}", "--quoted"
                ) as asks:
                    assert asks.line() == '"42"'
                assert answers.line() == f'"question {number}"'


def test_a_queue_forwards_many_concurrent_requests(answerer: Callable[[str], Rep]) -> None:
    with device("queue", "--json") as queue:
        front, back = queue.addresses()
        answerer(back)
        answerer(back)
        with Req(dial=front) as req:
            asking = [Background(req.request, b"question %d" % number, timeout=WAIT) for number in range(50)]
            assert [each.result() for each in asking] == [b"QUESTION %d" % number for number in range(50)]
        assert queue.end() == 130
        counted = valid(queue.rest()[0].strip(), "device.json")
        assert (counted["up"]["received"], counted["up"]["passed"], counted["lost"]) == (50, 50, 0)
        assert counted["front"]["joined"] == 1
        assert counted["back"]["joined"] == 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_streamer_connects_nngcat_and_nanocat(name: str) -> None:
    with device("streamer") as streamer:
        front, back = streamer.addresses()
        with (
            Program(name, "--pull", "--connect", back, "--quoted") as pull,
            Program(name, "--push", "--connect", front, "--data", "work", "--interval", INTERVAL[name]),
        ):
            assert pull.line() == '"work"'


def test_a_forwarder_takes_patterns_beside_topics() -> None:
    with device("forwarder", "--pattern", "orders.*.eu", "--topic", "news") as forwarder:
        front, back = forwarder.addresses()
        with Pub(dial=front) as pub, Sub(dial=back, topics=b"") as sub:
            pub.wait_for_peers(1, WAIT)
            sub.wait_for_peers(1, WAIT)

            def passes() -> bool:  # the device counts the subscriber after that has counted the device
                pub.send(b"news?")
                with suppress(TimedOut):
                    return sub.recv(0.1) == b"news?"
                return False

            eventually(passes, WAIT)
            pub.send_many([b"orders.1.us", b"orders.2.eu 5", b"news!"])
            received = iter(lambda: sub.recv(WAIT), b"news!")
            assert [body for body in received if body != b"news?"] == [b"orders.2.eu 5"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_forwarder_connects_nngcat_and_nanocat(name: str) -> None:
    with device("forwarder", "--topic", "weather.") as forwarder:
        front, back = forwarder.addresses()
        with (
            Program(name, "--sub", "--connect", back, "--subscribe", "", "--quoted") as sub,
            Program(name, "--pub", "--connect", front, "--data", "news", "--interval", INTERVAL[name]),
            Program(name, "--pub", "--connect", front, "--data", "weather.oslo 3", "--interval", INTERVAL[name]),
        ):
            assert sub.line() == '"weather.oslo 3"'


@pytest.mark.needs_program("nngcat", package="nng-utils")
@pytest.mark.needs_program("nanocat", package="nanomsg-utils")
def test_a_device_connects_pair_versions_0_and_1() -> None:
    with device("pair01") as bridge:
        front, back = bridge.addresses()
        with (
            Program("nanocat", "--pair", "--connect", front, "--quoted", "--data", "old", "--interval", "0.2") as old,
            Program("nngcat", "--pair1", "--connect", back, "--quoted", "--data", "new", "--interval", "1") as new,
        ):
            assert new.line() == '"old"'
            assert old.line() == '"new"'


@pytest.mark.parametrize(("kind", "one", "two"), [("bus", Bus, Bus), ("pair0", Pair0, Pair0), ("pair1", Pair1, Pair1)])
def test_relays_forward_both_ways_whichever_side_dials(kind: str, one: Any, two: Any) -> None:
    with one(listen=ANY) as left, two(listen=ANY) as right:
        dials = ("--front-dial", left.address, "--back-dial", right.address)
        with Running("device", kind, *dials, "--json") as relay:
            assert f"front ({one.__name__}) dials {left.address}" in relay.says()
            connected(relay)
            left.wait_for_peers(1, WAIT)
            right.wait_for_peers(1, WAIT)
            left.send(b"there")
            assert right.recv(WAIT) == b"there"
            right.send(b"back")
            assert left.recv(WAIT) == b"back"


def test_a_device_forwards_from_tls_to_ipc(tmp_path: Path) -> None:
    certificate = issue(tmp_path / "c", "localhost")
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path: a socket's path is short
        sides = ("--front-listen", "tls+tcp://127.0.0.1:0", "--back-listen", f"ipc://{folder}/s")
        with Running("device", "streamer", *sides, *certificate.options) as streamer:
            front, back = streamer.addresses()
            with Push(dial=front, tls=certificate.tls(server_name="localhost")) as push, Pull(dial=back) as pull:
                push.send(b"x")
                assert pull.recv(WAIT) == b"x"
            streamer.end()


def test_each_side_can_have_its_own_certificate(tmp_path: Path) -> None:
    outer, inner = (issue(tmp_path / name, "localhost") for name in ("outer", "inner"))
    sides = ("--front-listen", "tls+tcp://127.0.0.1:0", "--back-listen", "tls+tcp://127.0.0.1:0")
    own = [
        f"--{side}{each[1:]}" if each.startswith("--") else each
        for side, issued in (("front", outer), ("back", inner))
        for each in issued.options
    ]
    with Running("device", "streamer", *sides, *own) as streamer:
        front, back = streamer.addresses()
        with (
            Push(dial=front, tls=outer.tls(server_name="localhost")) as push,
            Pull(dial=back, tls=inner.tls(server_name="localhost")) as pull,
            Pull(dial=front, tls=inner.tls(server_name="localhost")) as stranger,
        ):
            push.send(b"x")
            assert pull.recv(WAIT) == b"x"
            assert stranger.stats.joined == 0
        streamer.end()


def test_tls_options_of_a_side_override_the_common_ones(tmp_path: Path) -> None:
    common, own = (issue(tmp_path / name, "localhost") for name in ("common", "own"))
    sides = ("--front-listen", "tls+tcp://127.0.0.1:0", "--back-listen", "tls+tcp://127.0.0.1:0")
    pair = ("--back-cert", str(own.cert), "--back-key", str(own.key))
    with Running("device", "streamer", *sides, *common.options, *pair) as streamer:
        front, back = streamer.addresses()
        with (
            Push(dial=front, tls=common.tls(server_name="localhost")) as push,
            # it shows its own certificate at the back, and requires one of the common authority
            Pull(dial=back, tls=common.tls(ca=own.ca, server_name="localhost")) as pull,
        ):
            push.send(b"x")
            assert pull.recv(WAIT) == b"x"
        streamer.end()


# ---- capture and statistics ------------------------------------------------------------------------------------------


def records(file: Path) -> list[dict[str, Any]]:
    return [valid(line, "device-capture.json") for line in file.read_text().splitlines()]


def test_capture_has_every_message_and_appends(tmp_path: Path, answerer: Callable[[str], Rep]) -> None:
    file = tmp_path / "capture"
    for run in range(2):
        with device("queue", "--capture", str(file)) as queue:
            front, back = queue.addresses()
            answerer(back)
            with Req(dial=front) as req:
                for body in (b"a", b"", bytes(range(256))):
                    assert req.request(body, timeout=WAIT) == body.upper()
            assert queue.end(signal.SIGTERM) == 143
            assert "captured 6" in queue.rest()[0]
        found = records(file)
        assert len(found) == 6 * (run + 1)
        last = found[-6:]
        assert [(each["side"], each["what"], each["number"]) for each in last[:2]] == [
            ("front", "request", 1),
            ("back", "reply", 1),
        ]
        assert [base64.b64decode(each["data"]) for each in last[::2]] == [b"a", b"", bytes(range(256))]
        assert [each["size"] for each in last] == [1, 1, 0, 0, 256, 256]
        assert last[0]["peer"].startswith("tcp://127.0.0.1:")
    assert file.stat().st_mode & 0o777 == 0o600


def test_statistics_never_go_to_a_reused_descriptor(tmp_path: Path) -> None:
    file = tmp_path / "capture"  # which would be opened as number 1
    line = shlex.join(
        command(
            "device", "streamer", "--front-listen", ANY, "--back-listen", ANY, "--capture", str(file), "--stats=0.01"
        )
    )
    with subprocess.Popen(
        ["/bin/sh", "-c", f"exec {line} >&-"], cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            front, back = re.findall(r"listens at ([^\s,;]+)", process.stderr.readline())
            with Push(dial=front) as push, Pull(dial=back) as pull:
                push.send(b"x")
                assert pull.recv(WAIT) == b"x"
            process.terminate()
            assert (process.wait(WAIT), process.stderr.read()) == (143, "")
        finally:
            process.kill()
    assert [base64.b64decode(each["data"]) for each in records(file)] == [b"x"]


def test_a_failed_capture_is_reported_and_messages_are_forwarded(tmp_path: Path) -> None:
    with device("streamer", "--capture", "/dev/full", "--json") as streamer:
        front, back = streamer.addresses()
        with Push(dial=front) as push, Pull(dial=back) as pull:
            push.send(b"one")
            assert pull.recv(WAIT) == b"one"
            assert streamer.says() == (
                "nngkit device: --capture: /dev/full: No space left on device; messages are forwarded without capture"
            )
            push.send(b"two")
            assert pull.recv(WAIT) == b"two"
        streamer.end()
        counted = valid(streamer.rest()[0].strip(), "device.json")
        assert (counted["captured"], counted["uncaptured"], counted["up"]["passed"]) == (0, 2, 2)


def test_taps_and_records_have_every_message(tmp_path: Path, answerer: Callable[[str], Rep]) -> None:
    journal = tmp_path / "journal"
    with device("queue", "--tap", ANY, "--record", str(journal)) as queue:
        front, back, taps = queue.addresses()
        answerer(back)
        with Req(dial=front) as req, Sub(dial=taps, topics=("front ", "back ")) as sub:
            # the tap's PUB knows a subscriber only a moment after the subscriber knows it
            unheard, tapped = 0, list[bytes]()
            while not tapped:
                assert req.request(b"early", timeout=WAIT) == b"EARLY"
                unheard += 1
                with suppress(TimedOut):
                    tapped.append(sub.recv(0.1))
            assert req.request(b"a", timeout=WAIT) == b"A"
            while tapped[-1] != b"back reply A":
                tapped.append(sub.recv(WAIT))
            assert tapped[-2:] == [b"front request a", b"back reply A"]
        assert queue.end(signal.SIGTERM) == 143
    recorded = [(each.topic, each.key, each.value) for each in read(open_journal(journal))]
    early = [("front", b"request", b"early"), ("back", b"reply", b"EARLY")] * unheard
    assert recorded == [*early, ("front", b"request", b"a"), ("back", b"reply", b"A")]


def test_once_and_rate_limit_what_passes() -> None:
    with (
        device("streamer", "--once", "60", "--rate", "1000000", "--json") as streamer,
        Push() as push,
        Pull() as pull,
    ):
        front, back = streamer.addresses()
        push.dial(front)
        pull.dial(back)
        push.send_many([b"a", b"b", b"a", b"c"])
        assert [pull.recv(WAIT) for _ in range(3)] == [b"a", b"b", b"c"]
        streamer.end()
        counted = valid(streamer.rest()[0].strip(), "device.json")
        assert counted["up"] == {"received": 4, "passed": 3, "size": 4, "dropped": 1}


def test_a_ring_of_processes_is_refused_in_one_line() -> None:
    with device("bus") as bus:
        front, back = bus.addresses()
        for one, other in ((front, back), (back, front)):
            assert_fails(
                nngkit("device", "bus", "--front-dial", one, "--back-dial", other),
                2,
                "nngkit device: device: a ring, in which messages go round for ever: this device -> process",
            )
        with Running("device", "bus", "--front-dial", back, "--back-listen", ANY) as second:
            assert second.addresses()  # in a row
            assert second.end() == 130
        assert bus.end() == 130
    assert_fails(
        nngkit("device", "streamer", "--front-listen", "tcp://127.0.0.1:48153", "--back-dial", "tcp://localhost:48153"),
        2,
        "a ring",
    )


def test_sigusr1_and_stats_print_statistics() -> None:
    with device("forwarder", "--json") as forwarder, device("bus", "--stats", "0.05") as bus:
        front, back = forwarder.addresses()
        with Pub(dial=front) as pub, Sub(dial=back, topics=b"") as sub:
            assert connected(forwarder)["up"] == {"received": 0, "passed": 0, "size": 0, "dropped": 0}
            pub.wait_for_peers(1, WAIT)
            pub.send(b"x" * 100)
            sub.recv(WAIT)
            counted = connected(forwarder)
            assert counted["up"] == {"received": 1, "passed": 1, "size": 100, "dropped": 0}
            assert (counted["kind"], counted["back"]["pipes"]) == ("forwarder", 1)
            assert counted["back"]["addresses"] == [back]
        assert " s bus; front 0 peers; back 0 peers" in bus.line()
        assert " s bus; front 0 peers; back 0 peers" in bus.line()
        assert (forwarder.end(), bus.end()) == (130, 130)


def test_a_stalled_reader_of_statistics_does_not_delay_the_device() -> None:
    with device("streamer", "--stats", "0.001", "--json") as streamer:
        front, back = streamer.addresses()
        with Push(dial=front) as push, Pull(dial=back) as pull:
            for number in range(200):  # a pipe holds 64 KiB, some 100 lines
                push.send(b"%d" % number)
                assert pull.recv(WAIT) == b"%d" % number
                threading.Event().wait(0.002)
        streamer.process.terminate()
        threading.Thread(target=streamer.rest).start()
        assert streamer.process.wait(WAIT) == 143


def test_a_closed_output_ends_it() -> None:
    reading, writing = os.pipe()
    with device("streamer", "--stats", "0.01", stdout=writing) as streamer:
        os.close(writing)
        streamer.addresses()
        os.close(reading)
        assert streamer.process.wait(WAIT) == 141
        assert streamer.rest()[1] == ""


# ---- wrong usage -----------------------------------------------------------------------------------------------------

BOTH = ("--front-listen", ANY, "--back-listen", ANY)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "the following arguments are required: KIND"),
        (["broker", *BOTH], 2, "argument KIND: invalid choice: 'broker'"),
        (["queue", "--front-listen", ANY], 2, "--back-listen: the back needs an address, here or in --back-dial"),
        (["queue", "--back-dial", ANY], 2, "--front-listen: the front needs an address"),
        (["queue", "--front-listen", "here", "--back-listen", ANY], 2, "argument --front-listen: 'here' is not an"),
        (["queue", "--front-listen", "tcp://127.0.0.1:1:2", "--back-listen", ANY], 2, "nngkit device: "),
        (
            ["queue", "--front-listen", "tls+tcp://127.0.0.1:0", "--back-listen", ANY],
            2,
            "--front-cert: a listener over TLS needs it, and --front-key",
        ),
        (
            ["queue", *BOTH[:2], "--back-dial", "tls+tcp://127.0.0.1:1"],
            2,
            "--back-cacert: a dialer over TLS needs it, or --back-insecure",
        ),
        (["queue", *BOTH, "--front-cacert", "/x"], 2, "--front-cacert: is for tls+tcp:// and wss:// addresses"),
        (
            ["queue", "--front-listen", "wss://:0", *BOTH[2:], "--back-insecure"],
            2,
            "--back-insecure: is for tls+tcp:// and wss:// addresses; there is none at the back",
        ),
        (
            ["queue", "--front-listen", "wss://:0", *BOTH[2:], "--front-key", "/etc/passwd"],
            2,
            "--front-key: requires --front-cert",
        ),
        (
            ["queue", "--front-listen", "wss://:0", *BOTH[2:], "--front-key", "/x", "--front-cert", "/etc/passwd"],
            2,
            "--front-cert: /etc/passwd: not PEM text",
        ),
        (
            ["queue", "--front-dial", "tcp://127.0.0.1:0", "--back-listen", ANY],
            2,
            "--front-dial: tcp://127.0.0.1:0: dial needs",
        ),
        (
            ["queue", "--front-listen", "tcp://192.0.2.1:5", "--back-listen", ANY],
            3,
            "tcp://192.0.2.1:5: cannot listen: not an address of this host",
        ),
        (["streamer", *BOTH, "--topic", "x"], 2, "--topic: is for a forwarder only"),
        (["streamer", *BOTH, "--in-flight", "3"], 2, "--in-flight: is for a queue or survey only"),
        (["queue", *BOTH, "--in-flight", "0"], 2, "argument --in-flight: '0' is not a whole number from 1 to 65536"),
        (["queue", *BOTH, "--max-size", "-1"], 2, "argument --max-size: '-1' is not a whole number"),
        (["queue", *BOTH, "--capture", "/nowhere/x"], 2, "--capture: /nowhere/x: No such file or directory"),
        (["queue", *BOTH, "--cacert", "/x"], 2, "--cacert: is for tls+tcp:// and wss:// addresses"),
        (["queue", "--front-listen", "wss://:0", *BOTH[2:], "--cert", "/x"], 2, "--cert: requires --key"),
        (
            ["queue", "--front-listen", "wss://:0", *BOTH[2:], "--cert", "/x", "--key", "/x"],
            2,
            "--cert: /x: No such file",
        ),
    ],
)
def test_wrong_usage_is_a_one_line_error(arguments: list[str], code: int, says: str) -> None:
    assert_fails(nngkit("device", *arguments), code, says)


def test_an_address_in_use_is_exit_code_3() -> None:
    with Pull(listen=ANY) as pull:
        done = nngkit("device", "bus", "--front-listen", ANY, "--back-listen", pull.address)
    assert_fails(done, 3, f"nngkit device: {pull.address}: cannot listen: address in use")


def test_the_schema_knows_every_kind() -> None:
    schema = json.loads((SCHEMAS / "device.json").read_text())
    assert schema["properties"]["kind"]["enum"] == list(KINDS)
