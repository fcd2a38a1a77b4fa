"""The metrics of a gateway: names, texts, labels and buckets, in a separate registry.

The values of a label are chosen by the operator, the bot's author or this program alone. A value from a person, a
platform or a model is mapped to a fixed set, or to `OTHER`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import HistogramMetricFamily, Metric


class Series:
    """The durations of a combination of labels, counted in one thread and possibly read in another."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def read(self) -> tuple[list[tuple[str, float]], float]:
        """Return the buckets, each with the count of all durations up to its bound, and the sum of all durations."""
        bounds = [*map(str, self._bounds), "+Inf"]
        return list(zip(bounds, accumulate(list(self._counts)), strict=True)), self._sum


class Durations:
    """A histogram with labels. `bounds` are the upper bounds of the buckets, in seconds."""

    def __init__(self, name: str, text: str, bounds: Sequence[float], labels: Sequence[str]) -> None:
        self._name, self._text, self._bounds, self._labels = name, text, bounds, labels
        self._series: dict[tuple[str, ...], Series] = {}

    def labels(self, *values: str) -> Series:
        """Return the series of these label values. Callers should keep the series: a look-up takes as long as
        counting."""
        return self._series.setdefault(values, Series(self._bounds))

    def collect(self) -> Iterable[Metric]:
        """Yield the metric."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for values, series in list(self._series.items()):
            buckets, total = series.read()
            family.add_metric(values, buckets, total)
        yield family


OTHER: Final = "other"
UNKNOWN: Final = "unknown"
"""Label of a tool unknown to the bot."""
_MOST_MODELS: Final = 50
_PREFIX: Final = "askfirst"

_FAST: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_SLOW: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0)
_HUMAN: Final = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0, 86400.0)


class Closed:
    """A closed set of label values. `known` is read at each look-up."""

    def __init__(self, known: Collection[str], otherwise: str = OTHER) -> None:
        self._known, self._otherwise = known, otherwise

    def __call__(self, value: str) -> str:
        return value if value in self._known else self._otherwise


class WithoutCreated:
    """The metrics of a registry without the creation times of the series. Creation times double the number of
    metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class Definitions:
    """The metrics for events and for calls of the store."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._define_intake()
        self._define_turns()
        self._define_actions()
        self._define_delivery()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, namespace=_PREFIX, registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: Collection[float], *labels: str) -> Histogram:
        return Histogram(name, text, labels, namespace=_PREFIX, registry=self._registry, buckets=tuple(buckets))

    def _durations(self, name: str, text: str, *labels: str) -> Durations:
        made = Durations(f"{_PREFIX}_{name}", text, _FAST, labels)
        self._registry.register(made)
        return made

    def _define_intake(self) -> None:
        counter = self._counter
        self.webhooks = self._durations(
            "webhook_duration_seconds",
            "Requests of platforms, by the status of the answer: seconds until the answer.",
            *("channel", "status"),
        )
        self.rejected = counter(
            "webhooks_rejected_total", "Requests of platforms that were refused or not stored.", "channel", "reason"
        )
        self.accepted = counter("events_accepted_total", "Events of platforms that were stored.", "channel")
        self.duplicates = counter(
            "events_duplicate_total", "Events of platforms that were stored before, and dropped.", "channel"
        )
        self.rate_limited = counter(
            "events_rate_limited_total",
            "Messages and presses above a rate of ASKFIRST_LIMITS, by whose rate it was: not stored.",
            *("channel", "share"),
        )
        self.poll_failures = counter("poll_failures_total", "Failed calls that poll a platform.", "channel")

    def _define_turns(self) -> None:
        counter, histogram = self._counter, self._histogram
        self.turns = histogram(
            "turn_duration_seconds",
            "Turns that ended, by their stop reason: seconds from the start of the last attempt to its commit.",
            _SLOW,
            "stop_reason",
        )
        self.turns_failed = counter("turns_failed_total", "Attempts at a turn that failed.")
        self.model_calls = histogram(
            "model_call_duration_seconds",
            "Calls to a model, each attempt apart, by outcome (ok, error): seconds.",
            _SLOW,
            *("provider", "model", "outcome"),
        )
        self.model_retries = counter(
            "model_retries_total", "Failed calls to a model that were tried again.", "provider", "model"
        )
        self.tokens = counter(
            "model_tokens_total",
            "Tokens by kind: input (neither read from a cache nor written to one), cached, cache_write, output.",
            *("provider", "model", "kind"),
        )
        self.cost = counter(
            "model_cost_usd_total",
            "Cost of the calls to a model in US dollars, as far as prices are known.",
            *("provider", "model"),
        )
        self.unpriced = counter(
            "model_calls_unpriced_total", "Calls to a model whose price is not known.", "provider", "model"
        )
        self.tools = histogram(
            "tool_duration_seconds",
            "Tools that ran in a turn, by outcome (ok, error): seconds.",
            _SLOW,
            *("tool", "outcome"),
        )
        self.tools_refused = counter(
            "tool_calls_refused_total", "Tool calls of a model that were not run, and not asked about.", "tool"
        )

    def _define_actions(self) -> None:
        counter, histogram = self._counter, self._histogram
        self.asked = counter("actions_asked_total", "Actions that a person was to be asked about.", "tool")
        self.decisions = histogram(
            "decision_duration_seconds",
            "Decisions of people (confirm, cancel): seconds from the arrival of the question.",
            _HUMAN,
            "intent",
        )
        self.effects = histogram(
            "effect_duration_seconds",
            "Tools of confirmed actions, by outcome (done, failed, unknown): seconds.",
            _SLOW,
            *("tool", "state"),
        )
        self.ended = counter("actions_ended_total", "Actions that ended, by state or reason.", "tool", "status")
        self.doubts = counter(
            "action_doubts_total", "Outcomes in doubt (unknown, forged, undeliverable): an operator has to look.", "why"
        )

    def _define_delivery(self) -> None:
        counter = self._counter
        self.deliveries = counter(
            "deliveries_total",
            "Parts of replies by outcome: sent, failed (a dead letter), suppressed (the person opted out or left).",
            *("channel", "outcome"),
        )
        self.delivery_retries = counter(
            "delivery_retries_total", "Calls to a platform that failed and are tried again.", "channel"
        )

        self.leases_lost = counter("leases_lost_total", "Leases that this process lost.", "kind")
        self.takeovers = counter(
            "leases_taken_over_total", "Lanes that this process took over from one that died.", "kind"
        )
        self.store_calls = self._durations(
            "store_call_duration_seconds", "Calls to the store, without leases: seconds.", "operation"
        )
        self.store_errors = counter(
            "store_errors_total",
            "Calls to the store that raised. conflict and fenced are part of the normal work.",
            *("operation", "error"),
        )


def first_models() -> Callable[[str], str]:
    """Return a function that keeps the names of the first models, and returns `OTHER` for all further models."""
    seen: set[str] = set()

    def label(model: str) -> str:
        if len(seen) < _MOST_MODELS:
            seen.add(model)
        return model if model in seen else OTHER

    return label
