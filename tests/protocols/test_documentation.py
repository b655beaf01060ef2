"""The tables of docs/protocols.md agree with the code."""

import ast
import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from nngkit import protocols
from nngkit.protocols import Socket, Stats

PAGE = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text()


def table(heading: str) -> list[list[str]]:
    """Return the cells of the first table under ``heading``, without backticks and without its header."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_options_and_their_defaults() -> None:
    documented = {name: ast.literal_eval(default) for name, default, _ in table("Options")}
    parameters = inspect.signature(Socket).parameters
    assert documented == {name: parameter.default for name, parameter in parameters.items()}


def test_counters() -> None:
    assert [row[0] for row in table("Counters")] == [field.name for field in dataclasses.fields(Stats)]


BUFFERS = {
    name: row[1:4] for row in table("Queues, and what happens when they are full") for name in row[0].split(", ")
}


@pytest.mark.parametrize("name", BUFFERS)
def test_default_buffers_and_policies(name: str) -> None:
    kind = getattr(protocols, name)
    received, sent, policies = BUFFERS[name]
    assert received in ("-", str(kind._default_recv_buffer))
    assert sent in ("-", str(kind._default_send_buffer))
    assert policies in ("-", ", ".join(kind._policies))


def test_every_socket_has_a_row_and_every_link_a_heading() -> None:
    sockets = {
        name
        for name, one in vars(protocols).items()
        if inspect.isclass(one) and issubclass(one, Socket) and one is not Socket
    }
    assert set(BUFFERS) == sockets
    headings = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in re.findall("\n## (.*)", PAGE)]
    assert re.findall(r"\]\(#([^)]*)\)", PAGE) == headings


def test_the_named_tests_exist() -> None:
    for name in re.findall(r"test_\w+\.py", PAGE):
        assert (Path(__file__).parent / name).exists(), name
