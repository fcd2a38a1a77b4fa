"""The store's clock follows the machine's forward and never goes backwards."""

from __future__ import annotations

from gateway.store.sqlite.clock import Clock

SECOND = 1_000_000_000


class Machine:
    """Its two clocks, in nanoseconds."""

    def __init__(self) -> None:
        self.wall = 1_000_000 * SECOND
        self.monotonic = 5 * SECOND

    def runs(self, seconds: int) -> None:
        self.wall += seconds * SECOND
        self.monotonic += seconds * SECOND


def clock_of(machine: Machine) -> Clock:
    return Clock(lambda: machine.wall, lambda: machine.monotonic)


def seconds(clock: Clock) -> float:
    return round(clock.tick().now / 1e6, 3)


def test_it_is_the_machines_clock() -> None:
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


def test_a_machine_that_was_suspended_or_set_forward_is_followed() -> None:
    machine = Machine()
    clock = clock_of(machine)
    machine.wall += 3600 * SECOND
    assert seconds(clock) == 1_003_600
    machine.runs(10)
    assert seconds(clock) == 1_003_610


def test_it_goes_on_behind_what_a_file_knows() -> None:
    machine = Machine()
    clock = clock_of(machine)
    clock.start_after(2_000_000 * 1_000_000)
    machine.runs(10)
    assert seconds(clock) == 2_000_010


def test_an_offset_moves_it_and_taking_it_back_makes_it_stand() -> None:
    machine = Machine()
    clock = clock_of(machine)
    clock.offset_seconds = 60
    assert (clock.offset_seconds, seconds(clock)) == (60, 1_000_060)
    clock.offset_seconds = 0
    assert seconds(clock) == 1_000_060
    machine.runs(61)
    assert seconds(clock) == 1_000_061
