"""Sums of usage: an unknown price is never taken for none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.usage import UsageMeter, usage_text
from gateway.providers.base import Usage

CALLS = st.lists(
    st.builds(
        Usage,
        prompt_tokens=st.integers(0, 10_000),
        completion_tokens=st.integers(1, 10_000),
        cost_usd=st.none() | st.integers(0, 100).map(float),
    ),
    max_size=6,
)


@given(CALLS, st.integers(0, 6))
def test_sum_has_a_cost_only_if_every_call_has_one(calls: list[Usage], half: int) -> None:
    whole, halves = sum(calls, Usage()), sum(calls[:half], Usage()) + sum(calls[half:], Usage())
    assert whole == halves == Usage() + whole == whole + Usage()
    unknown = [call for call in calls if call.cost_usd is None]
    known = sum(call.cost_usd for call in calls if call.cost_usd is not None)
    assert whole.cost_usd == (None if unknown or not calls else known)
    assert whole.least_usd == known
    assert (whole.unpriced_calls, whole.unpriced_tokens) == (len(unknown), sum(call.total_tokens for call in unknown))
    assert whole.counted_usd == pytest.approx(known + 15 * whole.unpriced_tokens / 1_000_000)
    assert whole.total_tokens == sum(call.total_tokens for call in calls)


def test_call_that_was_not_counted_makes_the_sum_unknown() -> None:
    uncounted = Usage(unpriced_calls=1)
    total = Usage(prompt_tokens=10, cost_usd=0.5) + uncounted
    assert (total.cost_usd, total.least_usd, total.unpriced_calls) == (None, 0.5, 1)


@pytest.mark.parametrize(
    ("costs", "text"),
    [
        ([], "0 tokens (0 in, 0 out), cost unknown"),
        ([None, None], "20 tokens (20 in, 0 out), cost unknown"),
        ([0.0], "10 tokens (10 in, 0 out), $0.0000"),
        ([0.1, 0.02], "20 tokens (20 in, 0 out), $0.1200"),
        ([0.12, None], "20 tokens (20 in, 0 out), at least $0.1200; the price of 1 call is unknown"),
        ([None, 0.12, None], "30 tokens (30 in, 0 out), at least $0.1200; the price of 2 calls is unknown"),
    ],
)
def test_summary_names_the_unknown_prices(costs: list[float | None], text: str) -> None:
    meter = UsageMeter()
    for cost in costs:
        meter.add(Usage(prompt_tokens=10, cost_usd=cost))
    assert usage_text(meter.total()) == text
