"""The gauges that are read when a scrape asks: the counts of the store, and the state of this process."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from channels import AskfirstError
from gateway.observe.teller import Teller
from gateway.store.base import Store
from gateway.store.types import Stats

__all__ = ["ProcessGauges", "StoreGauges"]

STORE_SECONDS: Final = 1.0
"""Time limit for the counts of the store. After it the scrape says that the store is down."""
_CACHED_SECONDS: Final = 1.0

_STATES: Final = {"undelivered": "undelivered", "expiry": "shown", "unlaunched": "approved"}
"""Kind of the timer of an open action -> its state. Each open action has exactly one of these timers."""
_LANES: Final = ("turn", "action", "out")


@dataclass(frozen=True, slots=True)
class _Counts:
    stats: Stats
    has_headroom: bool


_COUNTS: Final[Sequence[tuple[str, str, Callable[[_Counts], float]]]] = (
    ("store_headroom", "1 if the store has room left for new messages.", lambda found: int(found.has_headroom)),
    ("events_waiting", "Events that wait for a turn or a decision.", lambda found: found.stats.waiting),
    ("decisions_waiting", "Presses, answers and deadlines that wait.", lambda found: found.stats.pointed),
    (
        "oldest_waiting_seconds",
        "Age of the event that waits longest; 0 if none waits.",
        lambda found: found.stats.oldest_waiting_seconds,
    ),
    ("outbox_parts", "Parts of replies that wait to be sent.", lambda found: found.stats.parts),
    ("timers", "Deadlines of actions and scheduled replies.", lambda found: found.stats.timers),
    ("dead_letters", "Dead letters: see askfirst dead list.", lambda found: found.stats.dead),
)
_COUNTS_BY: Final[Sequence[tuple[str, str, str, Callable[[_Counts], Mapping[str, int]]]]] = (
    (
        "lanes",
        "Conversations, outboxes and actions with work: ready, leased, parked (due later).",
        "state",
        lambda found: {"ready": found.stats.ready, "leased": found.stats.leased, "parked": found.stats.parked},
    ),
    (
        "actions_open",
        "Actions that are not launched yet: undelivered, shown, approved.",
        "state",
        lambda found: {state: found.stats.timer_kinds.get(kind, 0) for kind, state in _STATES.items()},
    ),
)


class StoreGauges:
    """The counts of the store. `refresh` reads them, at most once a second."""

    def __init__(self, store: Store, now: Callable[[], float] = time.monotonic) -> None:
        self._store, self._now = store, now
        self._read_at = -_CACHED_SECONDS
        self._counts: _Counts | None = None
        self._reading = asyncio.Lock()

    async def refresh(self) -> None:
        """Read the counts. A store that does not answer in time has none."""
        async with self._reading:
            if self._now() - self._read_at < _CACHED_SECONDS:
                return
            try:
                async with asyncio.timeout(STORE_SECONDS):
                    self._counts = _Counts(await self._store.stats(), await self._store.has_headroom())
            except (AskfirstError, TimeoutError):
                self._counts = None
            self._read_at = self._now()

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges. All but the first are empty while the store does not answer."""
        counts = self._counts
        yield _gauge("store_up", "1 if the store has answered this scrape.", int(counts is not None))
        for name, text, count in _COUNTS:
            yield _gauge(name, text, None if counts is None else count(counts))
        for name, text, label, count_each in _COUNTS_BY:
            yield _gauges(name, text, label, {} if counts is None else count_each(counts))


class ProcessGauges:
    """The leases that this process holds, and what its observers missed."""

    def __init__(self, held: Collection[tuple[str, str]], events: Teller) -> None:
        self._held, self._events = held, events

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges and counters."""
        # The event loop goes on meanwhile: `list` and `dict` copy in one step.
        held = Counter(kind for kind, _ in list(self._held))
        yield _gauges(
            "leases_held",
            "Leases that this process holds: of running turns, running actions, outboxes that are sent.",
            "kind",
            {kind: held[kind] for kind in _LANES},
        )
        for name, text, counts in (
            ("dropped", "Events that an observer did not get, because too many waited.", self._events.dropped),
            ("failed", "Events at which an observer raised or took too long.", self._events.failed),
        ):
            family = CounterMetricFamily(f"askfirst_observer_events_{name}", text, labels=["observer"])
            for observer, count in dict(counts).items():
                family.add_metric([observer], count)
            yield family


def _gauge(name: str, text: str, value: float | None) -> Metric:
    return GaugeMetricFamily(f"askfirst_{name}", text, value=value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"askfirst_{name}", text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
