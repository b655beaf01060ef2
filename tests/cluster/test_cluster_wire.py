"""docs/wire.md has the frames of a cluster as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nngkit.cluster.content import messages as documents_messages
from nngkit.cluster.election import messages as election_messages
from nngkit.cluster.frames import Channel, Greeting, greeting_frame, local_frame, pack_body, routed_frame
from nngkit.cluster.jobs import messages as work_messages
from nngkit.cluster.tree import messages as place_messages
from nngkit.mesh.wire import data_frame, key_of

WIRE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
PAGE = WIRE.partition("\n## Clusters\n")[2].partition("\n## ")[0]
PATH = place_messages.Path(3, 1, ("a", "b"), "tcp://a:7000", None, None)
BLOCK = work_messages.Block(0, "render", 30.0, False, [9], [1], [1], [b"scene"])
CHANGES = documents_messages.Changes("prices", documents_messages.Position(3, 7, 0), 7, 0, 1, (b"tea=2",))
FRAMES = {
    "greeting": greeting_frame(Greeting("farm", "b", 7, False, "s3cret", None)),
    "path": local_frame(Channel.PLACE, place_messages.KINDS.pack(PATH)),
    "survey": local_frame(Channel.ELECTION, election_messages.KINDS.pack(election_messages.Survey(7, 3, 1))),
    "grant": local_frame(Channel.WORK, work_messages.pack(work_messages.Grant(3, [BLOCK]))),
    "message": data_frame(key_of("b", 7), 1, pack_body("chat", b"hello")),
    "letter": routed_frame(Channel.LETTERS, "a", "b", 7, [0, 1, 1, "chat", b"hello"]),
    "question": routed_frame(Channel.QUERY, "", "b", 7, [0, 1, "status", ""]),
    "shared": routed_frame(Channel.DOCUMENTS, "", "b", 7, documents_messages.pack(CHANGES)),
}
KINDS = {
    "place": set(place_messages.KINDS.kinds),
    "election": set(election_messages.KINDS.kinds),
    "work": set(work_messages.KINDS.kinds),
    "documents": set(documents_messages.KINDS.kinds),
}


@pytest.mark.parametrize("name", FRAMES)
def test_the_example_on_the_page_is_the_frame(name: str) -> None:
    found = re.search(rf"(?m)^{name} += ([0-9a-f]+)$", PAGE)
    assert found is not None
    assert bytes.fromhex(found[1]) == FRAMES[name]


@pytest.mark.parametrize("part", KINDS)
def test_the_page_has_every_kind_of_message(part: str) -> None:
    titles = {"place": "Places", "election": "Elections", "work": "Work", "documents": "Documents of a cluster"}
    section = PAGE.partition(f"\n### {titles[part]}\n")[2].partition("\n### ")[0]
    if part == "election":
        section = section.partition("The entries of the log")[0]
    numbers = {int(number) for number in re.findall(r"(?m)^ *(?:[\w-]+ *= *|//? *)?[(\[](\d+)[,)]", section)}
    assert numbers == KINDS[part]
