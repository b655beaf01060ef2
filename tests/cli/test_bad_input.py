"""Invalid command lines of the three cats: the error names the option, has its exit code, and nothing is sent.

`nngkit cat` reports in one line. The stand-ins print the originals' lines, byte for byte: nanocat lists the candidates
of an ambiguous option, and conflicting options, in further lines.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from nngkit.cli.main import main
from nngkit.cli.option_errors import named
from nngkit.errors import ConfigError
from nngkit.protocols import Pull
from tests.cli.certificates import Certificate, issue

FILE = "No such file or directory"


@pytest.fixture
def listener() -> Iterator[Pull]:
    """Listen as a peer that would notice a message."""
    with tempfile.TemporaryDirectory(prefix="nngkit") as folder, Pull(listen=f"ipc://{folder}/a") as pull:
        yield pull


def ends(pull: Pull, capfd: pytest.CaptureFixture[str], command: str, line: str) -> tuple[str, int]:
    """Return standard error and the exit code, and assert that nothing else happened."""
    code = main([command, *shlex.split(line.replace("URL", pull.address))])
    out, err = capfd.readouterr()
    assert out == ""
    assert (pull.stats.joined, pull.stats.read) == (0, 0)
    return err, code


@pytest.mark.parametrize(
    ("wrong", "command", "line", "says", "code"),
    [
        ("two protocols", "cat", "--push --pub --data x URL", "nngkit cat: --pub: the protocol is push already\n", 2),
        ("two protocols", "nngcat", "--push --pub --data x --dial URL", "Only one protocol may be specified.\n", 1),
        (
            "two protocols",
            "nanocat",
            "--push --pub --data x --connect URL",
            "nanocat: Option --pub conflicts with the following options:\n    --push \n",
            1,
        ),
        ("none", "cat", "--data x URL", "nngkit cat: protocol: none given: --push, --pull, --pub, --sub, ", 2),
        ("none", "nngcat", "--data x --dial URL", "No protocol specified.\n", 1),
        ("none", "nanocat", "--data x --connect URL", "nanocat: ", 1),
        ("an ambiguous prefix", "cat", "--pu --data x URL", "nngkit cat: --pu: may be --pub, --pub0, --pull, ", 2),
        (
            "an ambiguous prefix",
            "nngcat",
            "--pu --data x --dial URL",
            "Option --pu is ambiguous (specify in full).\n",
            1,
        ),
        (
            "an ambiguous prefix",
            "nanocat",
            "--pu --data x --connect URL",
            "nanocat: Ambiguous option ``--pu'':\n    pu",
            1,
        ),
        (
            "does not fit",
            "cat",
            "--push --data x --subscribe a URL",
            "nngkit cat: --subscribe: does not apply to push\n",
            2,
        ),
        (
            "does not fit",
            "push",
            "--data x --subscribe a URL",
            "nngkit push: --subscribe: does not apply to push\n",
            2,
        ),
        (
            "does not fit",
            "nngcat",
            "--push --data x --subscribe a --dial URL",
            "Protocol does not support --subscribe.\n",
            1,
        ),
        (
            "does not fit",
            "nanocat",
            "--push --data x --subscribe a --connect URL",
            "nanocat: Option --subscribe requires at least one of the following options:\n    --sub\n",
            1,
        ),
        ("an unreadable file", "cat", "--push --file /nowhere URL", f"nngkit cat: --file: /nowhere: {FILE}\n", 2),
        (
            "an unreadable file",
            "nngcat",
            "--push --file /nowhere --dial URL",
            f"Cannot open file /nowhere: {FILE}\n",
            1,
        ),
        (
            "an unreadable file",
            "nanocat",
            "--push --file /nowhere --connect URL",
            f"Error opening file ``/nowhere'': {FILE}\n",
            2,
        ),
        (
            "a bad number",
            "cat",
            "--push --data x --interval 5x URL",
            "nngkit cat: --interval: '5x' is not a time like 1.5, 20ms or 2m\n",
            2,
        ),
        ("a bad number", "nngcat", "--push --data x --interval 5x --dial URL", "Integer argument expected.\n", 1),
        (
            "a bad number",
            "nanocat",
            "--push --data x --interval 5x --connect URL",
            "nanocat: Option --interval requires float point argument\n",
            1,
        ),
    ],
    ids=lambda each: each if isinstance(each, str) and " " in each and len(each) < 20 else "",
)
def test_bad_input_is_reported_and_nothing_is_sent(
    wrong: str, command: str, line: str, says: str, code: int, listener: Pull, capfd: pytest.CaptureFixture[str]
) -> None:
    err, ended = ends(listener, capfd, command, line)
    assert ended == code
    assert err.startswith(says)
    if command != "nanocat":
        assert err.count("\n") == 1


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Create valid files, and beside them plain text, a header with garbage, and the key of another certificate."""
    folder, authority = tmp_path_factory.mktemp("c"), trustme.CA()
    good = issue(folder / "good", "localhost", authority=authority)
    issue(folder / "other", "localhost", authority=authority)
    (folder / "text").write_text("this is none")
    (folder / "bad").write_text("-----BEGIN CERTIFICATE-----\nZ2FyYmFnZQ==\n-----END CERTIFICATE-----\n")
    return good


CRYPTOGRAPHIC = "Unable to configure TLS: Cryptographic error\n"


@pytest.mark.parametrize(
    "command", ["cat --push --data x", "device streamer --front-listen tcp://127.0.0.1:0", "bench"]
)
@pytest.mark.parametrize(
    ("files", "says"),
    [
        ("--cert FOLDER/nowhere --key GOOD/key.pem", f"cert: FOLDER/nowhere: {FILE}"),
        ("--cert FOLDER/text --key GOOD/key.pem", "cert: FOLDER/text: not PEM text"),
        ("--cert FOLDER/bad --key GOOD/key.pem", "cert: FOLDER/bad: not a readable certificate"),
        ("--cert GOOD/cert.pem --key FOLDER/bad", "key: FOLDER/bad: not a readable key"),
        ("--cert GOOD/cert.pem --key FOLDER/other/key.pem", "key: FOLDER/other/key.pem: not the key of GOOD/cert.pem"),
        ("--cacert FOLDER/bad --cert GOOD/cert.pem --key GOOD/key.pem", "cacert: FOLDER/bad: not a readable cert"),
        ("--key GOOD/key.pem", "key: "),
        ("", "cert: a listener over TLS needs it, and --"),
    ],
)
def test_a_bad_certificate_is_reported_with_its_option(
    command: str, files: str, says: str, certificates: Certificate, capfd: pytest.CaptureFixture[str]
) -> None:
    good = certificates.cert.parent
    files, says = (each.replace("GOOD", str(good)).replace("FOLDER", str(good.parent)) for each in (files, says))
    listens = {"bench": "tls+tcp://127.0.0.1:0 --listen --protocol pair"}
    listens["device"] = "--back-listen tls+tcp://127.0.0.1:0"
    name = command.partition(" ")[0]
    line = f"{command} {listens.get(name, '--listen tls+tcp://127.0.0.1:0')} "
    if name == "device":  # the same, for the side that it is about
        files, says = files.replace("--", "--back-"), f"back-{says}"
    assert main(shlex.split(line + files)) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"nngkit {name}: --{says}")


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ("--cert FOLDER/nowhere", f"Cannot open file FOLDER/nowhere: {FILE}\n"),
        ("--cert FOLDER/text", CRYPTOGRAPHIC),
        ("--cert FOLDER/bad", CRYPTOGRAPHIC),
        ("--cert GOOD/cert.pem", CRYPTOGRAPHIC),  # and no key in it
        ("--cert GOOD/cert.pem --key FOLDER/bad", CRYPTOGRAPHIC),
        ("--cert GOOD/cert.pem --key GOOD/key.pem --cacert FOLDER/bad", CRYPTOGRAPHIC),
        ("", "Unable to configure TLS: a listener needs cert and key\n"),  # where the original fails in each handshake
    ],
)
def test_nngcat_reports_a_bad_certificate_as_the_original_does(
    files: str, says: str, certificates: Certificate, capfd: pytest.CaptureFixture[str]
) -> None:
    good = certificates.cert.parent
    files, says = (each.replace("GOOD", str(good)).replace("FOLDER", str(good.parent)) for each in (files, says))
    line = f"nngcat --push --data x --listen tls+tcp://127.0.0.1:0 {files}"
    assert main(shlex.split(line)) == 1
    assert capfd.readouterr() == ("", says)


def test_a_valid_certificate_is_accepted(certificates: Certificate, capfd: pytest.CaptureFixture[str]) -> None:
    both = Path(certificates.cert.parent, "both.pem")
    both.write_bytes(certificates.cert.read_bytes() + certificates.key.read_bytes())
    waits = ["--listen", "tls+tcp://127.0.0.1:0", "--recv-timeout", "50ms"]
    for files in (["--cert", str(both)], list(certificates.options)):
        assert main(["pull", *waits, *files]) == 3
        assert "no peer connected" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("what", "why", "side", "says"),
    [
        ("dial", "no port", "", "tcp://h: no port"),
        ("tls", "a listener over TLS needs a certificate", "", "--cert: a listener over TLS needs it, and --key"),
        (
            "tls",
            "a dialer over TLS needs it",
            "front",
            "--front-cacert: a dialer over TLS needs it, or --front-insecure",
        ),
        ("name", "too long", "", "name: too long"),
    ],
)
def test_an_error_of_a_socket_names_the_option(what: str, why: str, side: str, says: str) -> None:
    assert str(named(ConfigError(what, why), "tcp://h", side)) == says
