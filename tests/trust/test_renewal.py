"""Renewal, rotation and revocation of real processes under load, and processes that are killed while they write."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from nngkit.cli.main import main
from nngkit.errors import BadMessage, ConfigError
from nngkit.protocols import Req
from nngkit.testing import eventually
from nngkit.trust import Folder, Policy, Trust, passes, renewal
from nngkit.trust.issuer import Issuer
from nngkit.trust.renewal import Line, Question, Reply, ask, digest_of
from tests import preloaded

WAIT = 60.0
LIFE = 40 / 86_400  # days: asks the issuer every 4 s, and is renewed 13 s after it was issued

SERVER = """
import sys
from nngkit.protocols import Rep
from nngkit.trust import Trust
with Rep(listen="tls+tcp://127.0.0.1:0", trust=Trust(sys.argv[1])) as rep:
    print(rep.address, flush=True)
    for request in rep:
        request.reply(request.body)
"""
CLIENT = """
import signal, sys, threading
from nngkit.errors import NngkitError
from nngkit.protocols import Req
from nngkit.trust import Trust
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
trust, count, failed = Trust(sys.argv[1]), 0, []
while not ended.is_set():
    with Req(dial=sys.argv[2], trust=trust, reconnect=0.05) as req:  # handshakes all the time
        for _ in range(50):
            try:
                assert req.request(b"x", timeout=10) == b"x"
                count += 1
            except NngkitError as wrong:
                failed.append(repr(wrong))
print(count, failed[:3], flush=True)
"""


@contextmanager
def running(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    with preloaded.Popen([sys.executable, *arguments], stdout=-1, stderr=-1, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def renewing() -> bool:
    """Return True if the thread of a trust is there, which ends with it."""
    return any(thread.name == "nngkit-renewal" for thread in threading.enumerate())


@pytest.fixture
def farm(tmp_path: Path) -> Folder:
    return Folder.new(tmp_path / "farm", "farm")


@contextmanager
def issuing(farm: Folder) -> Iterator[str]:
    words = ("-m", "nngkit", "trust", "serve", "--realm", farm.path, "--listen", "tls+tcp://127.0.0.1:0")
    with running(*words, "--days", str(LIFE)) as process:
        yield line(process).removeprefix("issuer at ")


def make(farm: Folder, name: str, issuer: str, folder: Path, days: float = LIFE) -> Path:
    path = folder / name / "own.pass"
    path.parent.mkdir(parents=True)
    passes.write(path, farm.realm.issue(name, days=days, issuer=issuer))
    return path


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_an_invitation_becomes_a_pass_that_is_renewed(
    farm: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with issuing(farm) as issuer:
        invite = ["trust", "invite", "render.w1", "--realm", str(farm.path), "--issuer", issuer]
        assert main(invite) == 0
        invitation, own = capsys.readouterr().out, tmp_path / "w1.pass"
        assert main(["trust", "accept", invitation, "-o", str(own)]) == 0
        assert capsys.readouterr().out.startswith(f"{own}: render.w1 of farm, until ")
        assert main(["trust", "accept", invitation, "-o", str(tmp_path / "w2.pass")]) == 1
        assert "taken already" in capsys.readouterr().err
        held = [Trust(own)]
        serial = held[0].own.serial
        eventually(lambda: held[0].own.serial != serial, WAIT)
        farm.revoke("desk.eve")
        eventually(lambda: held[0].policy.is_revoked("desk.eve"), WAIT)
        held.clear()
        eventually(lambda: not renewing(), WAIT)


def test_without_an_issuer_the_invitation_is_the_pass(
    farm: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trust", "invite", "render.w1", "--realm", str(farm.path)]) == 0
    assert main(["trust", "accept", capsys.readouterr().out, "-o", str(tmp_path / "w1.pass")]) == 0
    assert passes.read(tmp_path / "w1.pass").until == pytest.approx(time.time() + 3600, abs=60)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("accept nonsense", "not a line of `nngkit trust invite`"),
        ("invite issuer", "is the name of `nngkit trust serve` itself"),
        ("pass a --issuer tcp://hub:1", "HOST:PORT"),
        ("serve --listen tcp://127.0.0.1:0", "--listen"),
        ("rotate --use", "--begin"),
        ("rotate --finish", "--begin"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    words: str, says: str, farm: Folder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(farm.path)
    assert main(["trust", *words.split()]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert says in said


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_realm_rotates_its_key_under_load(farm: Folder, tmp_path: Path) -> None:
    with issuing(farm) as issuer:
        own = {name: make(farm, name, issuer, tmp_path) for name in ("quotes", "render.w1", "render.w2")}
        with running("-c", SERVER, own["quotes"]) as server:
            address = line(server)
            clients = [
                preloaded.Popen([sys.executable, "-c", CLIENT, own[name], address], stdout=-1, stderr=-1, text=True)
                for name in ("render.w1", "render.w2")
            ]
            try:
                for step in ("begin", "use", "finish"):
                    getattr(Folder.open(farm.path), step)()
                    trusted = Folder.open(farm.path).realm.authorities
                    eventually(lambda: all(passes.read(path).authorities == trusted for path in own.values()), WAIT)  # noqa: B023
                    time.sleep(2)  # connections come and go by what the step has made
                for client in clients:
                    client.terminate()
                for client in clients:
                    out, err = client.communicate(timeout=WAIT)
                    count, _, failed = out.strip().partition(" ")
                    assert (failed, err) == ("[]", "")
                    assert int(count) > 200
            finally:
                for client in clients:
                    client.kill()
                    client.communicate()
    assert passes.parse(own["quotes"].read_text()).authorities == Folder.open(farm.path).realm.certificate


def test_a_revoked_name_is_cut_by_a_process_within_two_seconds(farm: Folder, tmp_path: Path) -> None:
    for name in ("quotes", "render.w1"):
        passes.write(farm.path / f"{name}.pass", farm.realm.issue(name))
    with (
        running("-c", SERVER, farm.path / "quotes.pass") as server,
        Req(dial=line(server), trust=Trust(farm.path / "render.w1.pass"), reconnect=0.05) as req,
    ):
        assert req.request(b"x", timeout=WAIT) == b"x"
        began = time.monotonic()
        farm.revoke("render.w1")
        eventually(lambda: not req.pipes)
        assert time.monotonic() - began < 2.5  # of which half a second is for a busy machine


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_name_that_is_revoked_at_the_issuer_is_cut_within_two_seconds(farm: Folder, tmp_path: Path) -> None:
    with issuing(farm) as issuer:
        own = make(farm, "quotes", issuer, tmp_path, 1.0)
        client = Trust(make(farm, "render.w1", "", tmp_path, 1.0))
        with running("-c", SERVER, own) as server:
            address = line(server)
            for _ in range(3):  # whenever the issuer was asked last
                with Req(dial=address, trust=client, reconnect=0.05) as req:
                    assert req.request(b"x", timeout=WAIT) == b"x"
                    time.sleep(1)
                    began = time.monotonic()
                    farm.revoke("render.w1")
                    eventually(lambda: not req.pipes, WAIT)
                    assert time.monotonic() - began < 2.5  # of which half a second is for a busy machine
                text = (farm.path / "policy.toml").read_text().replace('"render.w1"', "")
                version = Policy.parse(text).version
                (farm.path / "policy.toml").write_text(text.replace(f"version = {version}", f"version = {version + 1}"))
                farm.sign()


@pytest.mark.slow
def test_the_next_question_follows_at_once_though_another_thread_has_read_the_files_first(
    farm: Folder, tmp_path: Path
) -> None:
    with issuing(farm) as issuer:
        trust, ended = Trust(make(farm, "quotes", issuer, tmp_path, 1.0)), threading.Event()

        def connections() -> None:  # each reads what is new
            while not ended.is_set():
                trust.refresh(now=True)

        with ThreadPoolExecutor(2) as pool:
            try:
                for _ in range(2):
                    pool.submit(connections)
                for name in ("desk.a", "desk.b", "desk.c"):
                    began = time.monotonic()
                    farm.revoke(name)
                    eventually(lambda: trust.policy.is_revoked(name), WAIT)  # noqa: B023
                    assert time.monotonic() - began < 2.5  # of which half a second is for a busy machine
            finally:
                ended.set()


def test_an_issuer_that_did_not_run_is_asked_within_a_second_of_its_start(farm: Folder, tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # connections are refused
        trust = Trust(make(farm, "render.w1", f"tls+tcp://127.0.0.1:{listener.getsockname()[1]}", tmp_path, 1.0))
        time.sleep(1.4)
        listener.listen()
        listener.settimeout(0.9)
        listener.accept()[0].close()
        assert trust.name == "render.w1"


def test_an_idle_issuer_holds_a_question_for_as_long_as_it_may_wait(farm: Folder, tmp_path: Path) -> None:
    with issuing(farm) as issuer:
        own = passes.read(make(farm, "render.w1", issuer, tmp_path, 1.0))
        question = Question(own.chain, digest_of(own.authorities), farm.policy().version, due=False)
        assert ask(own, question) == Reply()
        time.sleep(0.5)  # it has nothing to do
        began = time.monotonic()
        assert ask(own, replace(question, wait=0.4)) == Reply()
        assert time.monotonic() - began >= 0.4


@pytest.mark.slow
def test_a_question_is_held_until_there_is_something_new(farm: Folder, tmp_path: Path) -> None:
    with issuing(farm) as issuer:
        own = passes.read(make(farm, "render.w1", issuer, tmp_path, 1.0))
        question = Question(own.chain, digest_of(own.authorities), farm.policy().version, due=False, wait=WAIT)
        held = [Line() for _ in range(8)]
        with ThreadPoolExecutor(len(held)) as pool:
            replies = [pool.submit(each.ask, own, question) for each in held]
            now = ask(own, replace(question, wait=0.0))
            assert now == Reply()
            time.sleep(0.5)
            assert not any(each.done() for each in replies)
            began = time.monotonic()
            farm.revoke("desk.eve")
            assert {'revoked = ["desk.eve"]' in each.result(WAIT).policy for each in replies} == {True}
            assert time.monotonic() - began < 1.5
            question = replace(question, policy=farm.policy().version)
            reply = pool.submit(held[0].ask, own, question)  # by the same connection
            farm.begin()
            assert reply.result(WAIT).authorities == Folder.open(farm.path).realm.authorities
            question = replace(question, trusted=digest_of(Folder.open(farm.path).realm.authorities), wait=0.3)
            assert pool.submit(held[1].ask, own, question).result(WAIT) == Reply()
        for each in held:
            each.close()


def test_a_trust_that_is_gone_ends_a_question_that_is_held(farm: Folder, tmp_path: Path) -> None:
    with issuing(farm) as issuer:
        held = [Trust(make(farm, "render.w1", issuer, tmp_path, 1.0))]
        time.sleep(0.5)
        assert renewing()
        began = time.monotonic()
        held.clear()
        eventually(lambda: not renewing(), WAIT)
        assert time.monotonic() - began < 5  # it would be held for 20 s


ROLES = """
[role.ci]
names = ["ci", "ci.*"]
enrol = ["render.*", "ci.*"]
"""


@pytest.mark.slow
def test_a_name_that_may_enrol_invites_names_below_its_pattern(
    farm: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = farm.path / "policy.toml"
    policy.write_text(policy.read_text() + ROLES)
    farm.sign()
    with issuing(farm) as issuer:
        ci, desk = (str(make(farm, name, issuer, tmp_path, 1.0)) for name in ("ci", "desk.ada"))
        assert main(["trust", "invite", "render.w7", "--pass", ci, "--issuer", issuer]) == 0
        line = capsys.readouterr().out
        invited = passes.parse(passes.from_invitation(line))
        assert (invited.name, invited.issuer) == ("render.w7", issuer)
        assert invited.until == pytest.approx(time.time() + 3600, abs=60)
        path = tmp_path / "w7.pass"
        invitation = tmp_path / "invitation.pass"
        passes.write(invitation, passes.from_invitation(line))
        assert main(["trust", "accept", line, "-o", str(path)]) == 0
        assert passes.read(path).name == "render.w7"
        capsys.readouterr()
        for by, name, says in (
            (ci, "pay", "right: ci may not enrol pay"),
            (ci, "render.w7.x", ""),
            (desk, "render.w8", "right: desk.ada may not enrol render.w8"),
            (str(path), "render.w8", "right: render.w7 may not enrol render.w8"),
            (ci, "ci.two", "right: ci.two may enrol others"),
            (str(invitation), "render.w8", "right: render.w7 may not enrol render.w8"),
        ):
            assert main(["trust", "invite", name, "--pass", by]) == (1 if says else 0)
            assert says in capsys.readouterr().err
        assert main(["trust", "invite", "render.w8", "--pass", ci, "--hours", "25"]) == 1
        farm.revoke("ci")
        time.sleep(0.5)
        assert main(["trust", "invite", "render.w8", "--pass", ci]) != 0


KILLED = """
import os, signal, sys
from pathlib import Path
from nngkit.trust import Folder, passes
left, replace = int(sys.argv[1]), os.replace
def killing(*paths):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    replace(*paths)
os.replace = killing
exec(sys.argv[2])
"""


def killed_at(number: int, work: str) -> bool:
    """Return True if a process was killed in the place of its rename with this number; False if it did the work."""
    done = preloaded.run(
        [sys.executable, "-c", KILLED, str(number), work], capture_output=True, text=True, timeout=WAIT
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def test_a_pass_that_is_being_replaced_by_a_process_that_is_killed_stays_whole(farm: Folder, tmp_path: Path) -> None:
    path = tmp_path / "w1.pass"
    passes.write(path, farm.realm.issue("render.w1"))
    before = passes.read(path)
    work = f"passes.write({str(path)!r}, Folder.open({str(farm.path)!r}).realm.issue('render.w1'))"
    assert killed_at(0, work)
    assert passes.read(path) == before
    (left,) = tmp_path.glob("w1.pass.*.new")
    assert left.stat().st_mode & 0o777 == 0o600
    os.utime(left, (time.time() - 100, time.time() - 100))
    assert not killed_at(1, work)
    assert passes.read(path) != before
    assert not left.exists()


@pytest.mark.parametrize("step", ["begin", "use", "finish"])
def test_a_step_of_a_rotation_that_is_killed_can_be_made_again(step: str, farm: Folder) -> None:
    steps: list[Callable[[Folder], None]] = [Folder.begin, Folder.use, Folder.finish]
    names = [each.__name__ for each in steps]
    for each in steps[: names.index(step)]:
        each(Folder.open(farm.path))
    number = 0
    while killed_at(number, f"Folder.open({str(farm.path)!r}).{step}()"):
        half = Folder.open(farm.path)
        made = passes.parse(half.realm.issue("hub"))  # what is there can be used
        assert farm.realm.certificate in made.authorities or step == "finish"
        number += 1
    assert number == {"begin": 2, "use": 1, "finish": 2}[step] or step == "use"
    for each in steps[names.index(step) + 1 :]:
        each(Folder.open(farm.path))
    after = Folder.open(farm.path)
    assert (after.realm.others, after.realm.certificate != farm.realm.certificate) == ("", True)
    passes.write(farm.path / "hub.pass", after.realm.issue("hub"))
    assert Trust(farm.path / "hub.pass").policy.version == 1  # signed by the new key
    with pytest.raises(ConfigError, match="--begin"):
        after.use()


def test_an_invitation_taken_by_a_process_that_is_killed_can_be_taken_again(farm: Folder) -> None:
    work = f"""
from nngkit.trust import realm
from nngkit.trust.issuer import Issuer
print(Issuer({str(farm.path)!r}, 1).answer("render.w1", "ff", b'{{"key": ' + __import__("json").dumps(
    realm.public_pem(realm.new_key())).encode() + b'}}'))
"""
    assert killed_at(0, work)
    assert not killed_at(1, work)


@pytest.mark.slow
def test_an_issuer_that_is_away_is_named_once(farm: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = make(farm, "render.w1", "tls+tcp://127.0.0.1:1", tmp_path, LIFE / 4)
    trust = Trust(own)
    eventually(lambda: caplog.messages)
    time.sleep(3)  # it asks twice a second
    assert trust.own == passes.read(own)
    del trust
    eventually(lambda: not renewing(), WAIT)
    assert [message for message in caplog.messages if "not renewed" in message] == [
        "tls+tcp://127.0.0.1:1: connection refused: the pass of render.w1 is not renewed"
    ]


def test_bytes_that_are_not_utf8_are_no_question_and_no_reply(tmp_path: Path) -> None:
    assert Issuer(tmp_path, 1).patience(b'{"key": "\xc1"}') == 0.0
    with pytest.raises(BadMessage, match="hub"):
        renewal.read_reply(b'{"chain": "\xc1"}', "hub")
