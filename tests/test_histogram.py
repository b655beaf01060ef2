"""Percentiles in bounded memory are accurate within 1 %."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.histogram import Histogram, milliseconds


@given(st.lists(st.floats(1e-9, 86_400), min_size=1), st.floats(0, 1))
def test_percentiles_are_within_one_percent_of_the_nearest_rank(measured: list[float], share: float) -> None:
    spread = Histogram()
    for seconds in measured:
        spread.add(seconds)
    exact = sorted(measured)[max(1, math.ceil(share * len(measured))) - 1]
    assert exact / 1.0101 <= spread.at(share) <= exact * 1.0101
    assert (spread.least, spread.most, spread.count) == (min(measured), max(measured), len(measured))
    assert spread.at(0) <= spread.at(0.5) <= spread.at(1)
    assert spread.least <= spread.at(share) <= spread.most
    assert math.isclose(spread.mean, sum(measured) / len(measured))


def test_memory_is_bounded() -> None:
    spread = Histogram()
    for exponent in range(-90, 50):
        for step in range(100):
            spread.add(10 ** (exponent / 10) * (1 + step / 100))
    assert len(spread._buckets) < 3300


def test_an_empty_histogram_has_no_figures() -> None:
    assert Histogram().fields(0.5, 0.999) == {"min": None, "avg": None, "p50": None, "p999": None, "max": None}
    assert (Histogram().at(0.5), Histogram().mean) == (0.0, 0.0)


def test_figures_are_rounded_to_nanoseconds() -> None:
    spread = Histogram()
    spread.add(1 / 3)
    assert spread.fields(0.5) == {"min": 0.333333333, "avg": 0.333333333, "p50": 0.333333333, "max": 0.333333333}


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.0002873, "0.287"), (0.0123, "12.3"), (1.5, "1500"), (0, "0.000")]
)
def test_milliseconds_have_three_significant_digits(seconds: float | None, text: str) -> None:
    assert milliseconds(seconds) == text
