"""Settings: the table of variables, their precedence, and one-line errors for invalid values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nngkit.discovery.settings import (
    VARIABLES,
    ClientSettings,
    DaemonSettings,
    ServiceSettings,
    dialable,
    query_address,
)
from nngkit.errors import ConfigError
from nngkit.protocols import TLS

ROOT = Path(__file__).parents[2]
daemon, service, client = (
    DaemonSettings.from_environment,
    ServiceSettings.from_environment,
    ClientSettings.from_environment,
)


def test_defaults_are_the_articles() -> None:
    assert daemon({}) == DaemonSettings(("tcp://127.0.0.1:5555",), (), 5.0, 2.0, True, ())
    assert service({}) == ServiceSettings("foo", "tcp://127.0.0.1:9000", ("tcp://127.0.0.1:5555",))
    assert client({}) == ClientSettings(("tcp://127.0.0.1:5556",))


def test_article_variable_names_work() -> None:
    settings = daemon({"PORT": "7000", "DEADLINE": "300", "INTERVAL": "0"})
    assert (settings.listen, settings.deadline, settings.interval) == (("tcp://0.0.0.0:7000",), 0.3, 0.0)
    article = {
        "DISCOVERY_HOST": "discovery",
        "DISCOVERY_PORT": "7000",
        "SERVICE_NAME": "answer",
        "SERVICE_HOST": "web-1",
        "SERVICE_PORT": "80",
        "SERVICE_PROTOCOL": "ws",
    }
    assert service(article) == ServiceSettings("answer", "ws://web-1:80", ("tcp://discovery:7000",))
    assert client(article) == ClientSettings(("tcp://discovery:7001",))


def test_port_alone_listens_on_every_interface_with_a_warning() -> None:
    (warning,) = daemon({"PORT": "7000"}).warnings
    assert "every interface" in warning
    assert "\n" not in warning
    for closed in (
        {"PORT": "7000", "NNGKIT_HOST": "127.0.0.1"},
        {"NNGKIT_PORT": "7000"},
        {"NNGKIT_PORT": "7000", "PORT": "1"},
    ):
        assert daemon(closed).listen == ("tcp://127.0.0.1:7000",)
        assert daemon(closed).warnings == ()
    opened = daemon({"PORT": "7000", "NNGKIT_HOST": "0.0.0.0"})
    assert (opened.listen, opened.warnings) == (("tcp://0.0.0.0:7000",), ())  # set explicitly


def test_nngkit_names_take_precedence_and_empty_is_unset() -> None:
    both = {"DEADLINE": "1", "NNGKIT_DEADLINE": "250", "NNGKIT_INTERVAL": "", "INTERVAL": " 40 "}
    assert (daemon(both).deadline, daemon(both).interval) == (0.25, 0.04)
    listen = daemon({"PORT": "x", "NNGKIT_LISTEN": "tcp://a:1, ipc:///b tcp://c:2"})
    assert listen.listen == ("tcp://a:1", "ipc:///b", "tcp://c:2")
    assert service({"NNGKIT_DISCOVERY": "tcp://a:1 tcp://b:2", "DISCOVERY_PORT": "x"}).discovery == (
        "tcp://a:1",
        "tcp://b:2",
    )
    assert client({"NNGKIT_QUERY": "tcp://*:1,tcp://0.0.0.0:2 tcp://[::]:3"}).daemons == (
        "tcp://127.0.0.1:1",
        "tcp://127.0.0.1:2",
        "tcp://[::1]:3",
    )
    assert daemon({"NNGKIT_TEXT": "No"}).text is False


def test_hosts_are_formatted_for_urls() -> None:
    assert service({"SERVICE_HOST": "::1"}).address == "tcp://[::1]:9000"
    assert service({"DISCOVERY_HOST": "localhost"}).discovery == ("tcp://localhost:5555",)


@pytest.mark.parametrize(
    ("survey", "query"),
    [
        ("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5556"),
        ("tcp://[::1]:5555", "tcp://[::1]:5556"),
        ("tcp://*:0", "tcp://*:0"),
        ("ws://h:80/path", "ws://h:81/path"),
        ("ipc:///tmp/x", "ipc:///tmp/x.query"),
        ("inproc://x", "inproc://x.query"),
    ],
)
def test_query_address_is_the_next_port(survey: str, query: str) -> None:
    assert query_address(survey) == query


def test_query_address_after_port_65535_is_an_error() -> None:
    with pytest.raises(ConfigError, match="NNGKIT_QUERY: has to be set"):
        query_address("tcp://127.0.0.1:65535")


def test_a_survey_address_that_is_no_url_is_named() -> None:
    with pytest.raises(ConfigError, match="listen: tcp://\\[::1:5555: Invalid IPv6 URL"):
        query_address("tcp://[::1:5555")


def test_dialable_replaces_only_wildcards() -> None:
    for address in ("tcp://10.0.0.1:1", "ipc://*", "tcp://a*:1"):
        assert dialable(address) == address


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PORT", "http"),
        ("NNGKIT_PORT", "65536"),
        ("PORT", "-1"),
        ("PORT", "5555.0"),
        ("PORT", "٥٥"),
        ("DEADLINE", "5s"),
        ("DEADLINE", "0"),
        ("NNGKIT_DEADLINE", "9" * 5000),
        ("INTERVAL", "1e3"),
        ("NNGKIT_TEXT", "maybe"),
        ("NNGKIT_LISTEN", "127.0.0.1:5555"),
        ("NNGKIT_QUERY", "5556"),
        ("NNGKIT_HOST", "a b"),
        ("NNGKIT_DISCOVERY", "host"),
        ("DISCOVERY_HOST", "tcp://host"),
        ("DISCOVERY_PORT", "0"),
        ("SERVICE_NAME", "a|b"),
        ("SERVICE_PORT", "?"),
        ("SERVICE_PROTOCOL", "tcp://"),
        ("SERVICE_HOST", "a\nb"),
        ("NNGKIT_PRIORITY", "0"),
        ("NNGKIT_PRIORITY", "17"),
        ("NNGKIT_PRIORITY", "first"),
        ("NNGKIT_CERT", "cert.pem"),
        ("NNGKIT_KEY", "key.pem"),
    ],
)
def test_invalid_value_is_reported_in_one_line_with_its_variable(variable: str, value: str) -> None:
    reader = {"daemon": daemon, "service": service, "caller": client}
    row = next(row for row in VARIABLES if variable in (row.name, row.article))
    for who in row.readers.split(", "):
        with pytest.raises(ConfigError) as caught:
            reader[who]({variable: value})
        assert str(caught.value).startswith(f"{variable}: ")
        assert "\n" not in str(caught.value)


def test_certificates_are_read_by_all_and_priority_by_services() -> None:
    given = {"NNGKIT_CACERT": "ca.pem", "NNGKIT_CERT": "cert.pem", "NNGKIT_KEY": "key.pem"}
    for read in (daemon, service, client):
        assert read({}).certificates.tls is None
        assert read({"NNGKIT_CACERT": "ca.pem"}).certificates.tls == TLS(ca="ca.pem")
        assert read(given).certificates.tls == TLS(ca="ca.pem", cert="cert.pem", key="key.pem")
    assert (service({}).priority, service({"NNGKIT_PRIORITY": "1"}).priority) == (8, 1)


def test_given_daemons_replace_those_of_the_environment() -> None:
    variables = {"NNGKIT_QUERY": "tcp://other:1", "NNGKIT_ZONE": "ny"}
    assert client(variables, daemons=("tcp://this:1",)) == ClientSettings(("tcp://this:1",), ("ny",))
    assert client(variables) == ClientSettings(("tcp://other:1",), ("ny",))


def test_docs_page_has_the_table() -> None:
    page = (ROOT / "docs" / "discovery.md").read_text()
    rows = re.findall(r"^\| `(NNGKIT_[A-Z_]+)` \| (.*?) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    article = {row.name: f"`{row.article}`" if row.article else "" for row in VARIABLES}
    assert [row[0] for row in rows] == [row.name for row in VARIABLES]
    for name, theirs, readers, default, unit, meaning in rows:
        (known,) = [row for row in VARIABLES if row.name == name]
        assert (theirs, readers, default, unit, meaning) == (
            article[name],
            known.readers,
            f"`{known.default}`" if known.default else "",
            known.unit,
            known.meaning,
        )
