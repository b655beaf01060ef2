"""Code points and bytes of a changing text, against a plain str."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from nngkit.documents.engine import codepoints
from nngkit.documents.engine.codepoints import (
    Delete,
    Delta,
    Insert,
    Keep,
    Positions,
    compose,
    composed,
    delta_of,
)
from tests.documents.deltas import patched

TEXTS = st.text(st.sampled_from("ab\néß漢😀🇬👨‍👩\u0301\u200d\U0010ffff\x00"), max_size=12)
PLACES = st.floats(0, 1)


class Mirror(RuleBasedStateMachine):
    """Blocks and groups are small here, so that a short text has many."""

    def __init__(self) -> None:
        super().__init__()
        self.text = "aé😀" * 20
        self.positions = Positions(self.text)

    @rule(at=PLACES, text=TEXTS, times=st.sampled_from([1, 1, 9]))
    def insert(self, at: float, text: str, times: int) -> None:
        index = round(at * len(self.text))
        self.positions.insert(index, text * times)
        self.text = self.text[:index] + text * times + self.text[index:]

    @rule(start=PLACES, stop=PLACES)
    def delete(self, start: float, stop: float) -> None:
        low, high = sorted((round(start * len(self.text)), round(stop * len(self.text))))
        self.positions.delete(low, high)
        self.text = self.text[:low] + self.text[high:]

    @rule(first=PLACES, text=TEXTS, second=PLACES)
    def others_edit(self, first: float, text: str, second: float) -> None:
        """Remote edits arrive as a delta in bytes."""
        low, high = sorted((round(first * len(self.text)), round(second * len(self.text))))
        before, gone = self.text[:low], self.text[low:high]
        delta: Delta = (Keep(len(before.encode())), Insert(text), Delete(len(gone.encode())))
        assert self.positions.follow(delta) == (Keep(low), Insert(text), Delete(high - low))
        self.text = before + text + self.text[high:]

    @rule(start=PLACES, stop=PLACES)
    def read(self, start: float, stop: float) -> None:
        low, high = round(start * len(self.text)), round(stop * len(self.text))
        assert self.positions.text(low, high) == self.text[low:high]

    @rule(at=PLACES)
    def count(self, at: float) -> None:
        index = round(at * len(self.text))
        offset = len(self.text[:index].encode())
        assert self.positions.to_bytes(index) == offset
        assert self.positions.to_index(offset) == index

    @invariant()
    def the_same(self) -> None:
        assert str(self.positions) == self.text
        assert len(self.positions) == len(self.text)
        assert self.positions.size == len(self.text.encode())


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codepoints, "BLOCK", 4)
    monkeypatch.setattr(codepoints, "GROUP", 3)


@pytest.mark.parametrize("histories", [15, pytest.param(100, marks=pytest.mark.slow)])
def test_positions_follow_local_and_remote_edits(histories: int) -> None:
    run_state_machine_as_test(Mirror, settings=settings(max_examples=histories, deadline=None))


@pytest.mark.parametrize("offset", [2, 4, 5, 6])
def test_byte_offset_inside_a_character_is_rejected(offset: int) -> None:
    with pytest.raises(ValueError, match=f"byte {offset} is inside a character"):
        Positions("aé😀").to_index(offset)


def test_byte_offset_beyond_the_end_is_rejected() -> None:
    with pytest.raises(ValueError, match="byte 8 is beyond the end"):
        Positions("aé😀").to_index(8)


@given(TEXTS, st.lists(st.tuples(PLACES, PLACES, TEXTS), max_size=12))
def test_consecutive_edits_compose_to_one_delta(text: str, edits: list[tuple[float, float, str]]) -> None:
    made = []
    now = text
    for first, second, inserted in edits:
        low, high = sorted((round(first * len(now)), round(second * len(now))))
        made.append((low, high - low, inserted))
        now = now[:low] + inserted + now[high:]
    delta = composed(made)
    assert patched(text, delta) == now
    assert all(type(a) is not type(b) for a, b in pairwise(delta))
    one_by_one: Delta = ()
    for edit in made:
        one_by_one = compose(one_by_one, delta_of(edit))
    assert patched(text, one_by_one) == now
