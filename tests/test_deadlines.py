"""Deadlines with a shared timer, compared with asyncio's own."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from gateway.timing.deadlines import Deadline

SOON = 0.01


async def test_deadline_ends_slow_blocks_only() -> None:
    began: list[int] = []

    async def takes(seconds: float, number: int) -> int:
        with Deadline(SOON):
            began.append(number)
            await asyncio.sleep(seconds)
        await asyncio.sleep(2 * SOON)  # time after the block does not count
        return number

    ended = await asyncio.gather(*(takes(number % 2 * 60, number) for number in range(20)), return_exceptions=True)
    assert began == list(range(20))
    assert [type(one) if number % 2 else one for number, one in enumerate(ended)] == [
        TimeoutError if number % 2 else number for number in range(20)
    ]


async def test_each_length_has_its_own_timer() -> None:
    async def never(seconds: float) -> None:
        with Deadline(seconds):
            await asyncio.Event().wait()

    long = asyncio.create_task(never(3600))
    with pytest.raises(TimeoutError):
        await never(SOON)
    with pytest.raises(TimeoutError):  # the timer goes on for later deadlines
        await never(SOON)
    assert not long.done()
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long


async def test_a_cancelled_task_stays_cancelled() -> None:
    entered = asyncio.Event()

    async def takes_long() -> None:
        with Deadline(SOON):
            entered.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:  # the deadline's; meanwhile another task cancels
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(takes_long())


async def test_an_error_of_its_own_is_raised() -> None:
    with pytest.raises(ValueError, match="own"), Deadline(SOON):
        raise ValueError("own")
    await asyncio.sleep(2 * SOON)  # no task is cancelled afterwards


def test_a_loop_that_is_gone_is_not_kept() -> None:
    loops = []

    async def waits() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        with Deadline(60):
            await asyncio.sleep(0)

    asyncio.run(waits())
    gc.collect()
    assert loops[0]() is None


async def test_no_limit_never_expires() -> None:
    with Deadline(None) as deadline:
        await asyncio.sleep(2 * SOON)
    assert not deadline.expired


async def test_an_earlier_deadline_is_not_kept_waiting_by_a_later_one() -> None:
    with Deadline(60) as outer:
        with pytest.raises(TimeoutError), Deadline(SOON) as inner:
            await asyncio.Event().wait()
        assert inner.expired and not outer.expired


async def test_ended_blocks_leave_no_deadline_behind() -> None:
    gc.collect()
    before = sum(type(each) is Deadline for each in gc.get_objects())
    for _ in range(1000):
        with Deadline(60):
            await asyncio.sleep(0)
    assert sum(type(each) is Deadline for each in gc.get_objects()) <= before + 1
