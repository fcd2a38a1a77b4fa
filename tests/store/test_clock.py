"""The store's clock follows the machine's, but none of the steps, and never goes backwards."""

from __future__ import annotations

import pytest

from gateway.store.clock_steps import ClockSteps, elapsed_ns
from gateway.store.sqlite.clock import Clock

SECOND = 1_000_000_000


class Machine:
    """The machine's wall clock, and the steady clock, in nanoseconds."""

    def __init__(self) -> None:
        self.wall = 1_000_000 * SECOND
        self.elapsed = 5 * SECOND

    def runs(self, seconds: int) -> None:
        self.wall += seconds * SECOND
        self.elapsed += seconds * SECOND


def clock_of(machine: Machine) -> Clock:
    return Clock(lambda: machine.wall, lambda: machine.elapsed)


def seconds(clock: Clock) -> float:
    return round(clock.tick().now / 1e6, 3)


def test_clock_follows_the_machines_clock() -> None:
    machine = Machine()
    clock = clock_of(machine)
    assert seconds(clock) == 1_000_000
    machine.runs(10)
    assert seconds(clock) == 1_000_010
    assert clock.tick().real == 15


def test_no_two_moments_are_the_same() -> None:
    clock = clock_of(Machine())
    moments = [clock.tick().now for _ in range(100)]
    assert moments == sorted(set(moments))


def test_a_machine_that_is_set_back_makes_no_deadline_longer() -> None:
    machine = Machine()
    clock = clock_of(machine)
    assert seconds(clock) == 1_000_000
    machine.wall -= 3600 * SECOND
    assert seconds(clock) == 1_000_000
    machine.runs(10)
    assert seconds(clock) == 1_000_010


def test_a_machine_that_was_suspended_is_followed() -> None:
    """Otherwise a question would be open for as long as the lid was closed."""
    machine = Machine()
    clock = clock_of(machine)
    seconds(clock)
    machine.runs(3600)
    assert seconds(clock) == 1_003_600


def test_a_machine_that_is_set_forward_makes_no_deadline_shorter(caplog: pytest.LogCaptureFixture) -> None:
    """Finding 32: twenty minutes forward, and a question with "15 minutes" had expired."""
    machine = Machine()
    clock = clock_of(machine)
    assert seconds(clock) == 1_000_000
    machine.wall += 1200 * SECOND
    assert seconds(clock) == 1_000_000
    machine.runs(880)
    assert 1_000_880 <= seconds(clock) <= 1_000_881
    [record] = caplog.records
    assert (record.levelname, "set forward by 1200 seconds" in record.message) == ("WARNING", True)


def test_clock_step_is_followed_slowly_or_at_the_next_start() -> None:
    machine = Machine()
    clock = clock_of(machine)
    machine.wall += 60 * SECOND
    seconds(clock)
    machine.runs(30_000)
    assert seconds(clock) == 1_030_030
    assert seconds(clock_of(machine)) == 1_030_060
    machine.runs(30_000)
    assert seconds(clock) == 1_060_060
    machine.runs(30_000)
    assert seconds(clock) == 1_090_060


def test_a_step_that_is_taken_back_is_made_good_at_once() -> None:
    machine = Machine()
    clock = clock_of(machine)
    machine.wall += 3600 * SECOND
    seconds(clock)
    machine.wall -= 3600 * SECOND
    machine.runs(10)
    assert seconds(clock) == 1_000_010
    machine.runs(10_000)
    assert seconds(clock) == 1_010_010


def test_small_correction_is_followed_without_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = clock_of(machine)
    seconds(clock)
    machine.wall += 2 * SECOND
    assert seconds(clock) == 1_000_002
    assert caplog.records == []


def test_the_time_that_is_compared_with_goes_on() -> None:
    assert 0 < elapsed_ns() <= elapsed_ns()


MILLION = 1_000_000


def test_a_slow_answer_hides_no_step_and_makes_none(caplog: pytest.LogCaptureFixture) -> None:
    """A server standing still for a minute has not set the clock."""
    steps = ClockSteps("it")
    steps.observe(500 * MILLION, 10 * MILLION, 10 * MILLION)
    steps.observe(560 * MILLION, 11 * MILLION, 70 * MILLION)
    steps.observe(561 * MILLION, 71 * MILLION, 71 * MILLION)
    assert steps.ahead(71 * MILLION) == 0
    steps.observe(662 * MILLION, 72 * MILLION, 72 * MILLION)
    assert steps.ahead(72 * MILLION) == 100 * MILLION
    assert len(caplog.records) == 1


def test_clock_steps_have_an_upper_bound_once_heard() -> None:
    steps = ClockSteps("it")
    assert steps.at_most(5) == 0
    steps.observe(500 * MILLION, 10 * MILLION, 10 * MILLION)
    assert steps.at_most(110 * MILLION) == 602_100_000


def test_clock_goes_on_after_the_last_stamp_of_a_file() -> None:
    machine = Machine()
    clock = clock_of(machine)
    clock.start_after(2_000_000 * 1_000_000)
    machine.runs(10)
    assert seconds(clock) == 2_000_010


def test_offset_moves_the_clock_and_removing_it_stops_it() -> None:
    machine = Machine()
    clock = clock_of(machine)
    clock.offset_seconds = 60
    assert (clock.offset_seconds, seconds(clock)) == (60, 1_000_060)
    clock.offset_seconds = 0
    assert seconds(clock) == 1_000_060
    machine.runs(61)
    assert seconds(clock) == 1_000_061
