"""The times of a Redis store."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RedisTimings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisTimings:
    """The times of a Redis store, in seconds."""

    work_seconds: float = 5.0
    """Timeout of the calls that no platform waits for."""
    watch_seconds: float = 1.0
    """The least time between two looks for data that the server has lost."""
    look_again_seconds: float = 5.0
    """A waiter looks into all partitions at least this often, or as often as a lease may lapse. New work is notified,
    and the look before shows which lanes become ready by time. So no lease that was taken since then lapses before the
    next look."""
    gather_seconds: float = 0.002
    """After a call with several batches of events, the next ones wait this long for more, as they do during a call. One
    call for many takes a fraction of the time of several calls. An event that arrives alone does not wait."""
    counted_seconds: float = 1.0
    """Greatest age of the count of events in the other partitions."""
