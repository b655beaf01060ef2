"""Bodies forwarded once, and rates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nngkit.devices.examining import MOST_REMEMBERED, Once, Rate


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.floats(0, 3)), max_size=30))
def test_a_body_is_new_again_after_the_time(arrivals: list[tuple[bytes, float]]) -> None:
    once, now = Once(2.0), 100.0
    forwarded: dict[bytes, float] = {}
    for body, pause in arrivals:
        now += pause
        expected = body not in forwarded or now >= forwarded[body] + 2.0
        assert once.is_new(body, now) == expected
        if expected:
            forwarded[body] = now


def test_the_memory_is_bounded() -> None:
    once = Once(1e6)
    for number in range(MOST_REMEMBERED + 10):
        assert once.is_new(b"%d" % number, 0.0)
    assert once.is_new(b"0", 0.0)  # forgotten
    assert not once.is_new(b"%d" % MOST_REMEMBERED, 0.0)


@given(st.floats(0.5, 1e6), st.lists(st.floats(0, 0.1), max_size=50))
def test_a_rate_allows_its_number_and_one_burst(rate: float, pauses: list[float]) -> None:
    bucket, now, used = Rate(rate), 10.0, 0
    for pause in pauses:
        now += pause
        allowed = bucket.allowed(now)
        bucket.use(allowed)
        used += allowed
        assert used <= rate * (now - 10.0) + max(1.0, rate * 0.05) + 1e-6
        assert bucket.allowed(now + bucket.wait + 1e-9) >= 1
