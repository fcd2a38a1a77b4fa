"""Rates: taken from all cells or from none, and never exceeded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.store.base import Store
from gateway.store.types import Cell
from gateway.testing.store_contract.helpers import many_histories

if TYPE_CHECKING:
    from collections.abc import Sequence

STEPS = st.lists(st.tuples(st.floats(0, 30), st.sampled_from([0.5, 1.0, 2.0])), min_size=1, max_size=25)


class CellsContract:
    async def test_a_burst_is_free_and_then_the_pace_holds(self, store: Store) -> None:
        cell = Cell(name="bot", burst=3, period_seconds=300)
        assert [await store.acquire([cell]) for _ in range(3)] == [0, 0, 0]
        wait = await store.acquire([cell])
        assert wait == pytest.approx(100, abs=5)
        assert await store.acquire([cell]) <= wait, "asking takes nothing"
        store.offset_seconds = wait
        assert await store.acquire([cell]) == 0
        assert await store.acquire([cell]) == pytest.approx(100, abs=5)

    async def test_cells_are_taken_all_or_none(self, store: Store) -> None:
        one, many = Cell(name="chat", burst=1, period_seconds=100), Cell(name="bot", burst=2, period_seconds=1000)
        assert await store.acquire([one, many]) == 0
        assert await store.acquire([many, one]) == pytest.approx(100, abs=5), "the longest wait of those that are full"
        assert await store.acquire([many]) == 0, "nothing was taken from it"
        assert await store.acquire([one, many]) == pytest.approx(500, abs=5)

    async def test_of_many_at_once_no_more_pass_than_may(self, store: Store) -> None:
        waits = await asyncio.gather(
            *(store.acquire([Cell(name="x", burst=10, period_seconds=1000)]) for _ in range(64))
        )
        assert waits.count(0) == 10
        assert all(wait > 0 for wait in waits if wait != 0)

    async def test_cost_counts_as_that_many_calls(self, store: Store) -> None:
        cell = Cell(name="tokens", burst=100, period_seconds=1000, cost=60)
        assert await store.acquire([cell]) == 0
        assert await store.acquire([cell]) == pytest.approx(200, abs=5)

    async def test_a_cost_that_never_fits_is_a_mistake(self, store: Store) -> None:
        with pytest.raises(ValueError, match="tokens"):
            await store.acquire([Cell(name="tokens", burst=1, period_seconds=1, cost=2)])

    async def test_no_cells_take_nothing(self, store: Store) -> None:
        assert await store.acquire([]) == 0

    @many_histories
    @given(steps=STEPS)
    async def test_the_rate_holds_over_every_stretch(self, store: Store, steps: Sequence[tuple[float, float]]) -> None:
        """In any period at most a burst and its refill are taken, and the wait that is returned suffices."""
        store.offset_seconds += 1000  # refilled since the last history
        burst, period = 4.0, 40.0
        taken: list[tuple[float, float]] = []
        for pause, cost in steps:
            store.offset_seconds += pause
            cell = Cell(name="one", burst=burst, period_seconds=period, cost=cost)
            wait = await store.acquire([cell])
            if wait > 0:
                assert wait <= cost * period / burst + 1e-6, "no longer than it takes to refill the cost"
                store.offset_seconds += wait
                assert await store.acquire([cell]) == 0
            taken.append(((await store.now()).timestamp(), cost))
        for first in range(len(taken)):
            for last in range(first, len(taken)):
                stretch = taken[last][0] - taken[first][0]
                assert sum(cost for _, cost in taken[first : last + 1]) <= burst + (stretch + 0.1) * burst / period
