"""Writes docs/grafana.json, the dashboard of the metrics: ``python -m scripts.dashboard``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["FILE", "dashboard", "main", "text"]

FILE: Final = Path(__file__).parent.parent / "docs" / "grafana.json"
_COLUMNS: Final = 24
_HEIGHT: Final = 8
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


class Graph(NamedTuple):
    """A graph: title, unit, and each query with the text of the query's legend. ``$`` stands for the chosen job."""

    title: str
    unit: str
    queries: dict[str, str]


def _rate(metric: str, by: str, *labels: str) -> str:
    return f"sum by ({by}) (rate(askfirst_{metric}{{{', '.join((*labels, '$'))}}}[$__rate_interval]))"


def _quantile(share: float, metric: str, by: str = "") -> str:
    series = f"rate(askfirst_{metric}_bucket{{$}}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by ({', '.join(filter(None, ('le', by)))}) ({series}))"


def _shared(metric: str, by: str = "") -> str:
    """Return a query of a count reported by all processes on a store."""
    return f"max by ({', '.join(filter(None, ('job', by)))}) (askfirst_{metric}{{$}})"


_ROWS: Final[dict[str, list[Graph]]] = {
    "Is it well?": [
        Graph(
            "Store answers, has room",
            "short",
            {"min(askfirst_store_up{$})": "answers", "min(askfirst_store_headroom{$})": "has room"},
        ),
        Graph("Oldest waiting event", "s", {_shared("oldest_waiting_seconds"): "{{job}}"}),
        Graph(
            "In doubt, and dead letters",
            "short",
            {
                "sum by (why) (increase(askfirst_action_doubts_total{$}[1h]))": "{{why}} within an hour",
                _shared("dead_letters"): "dead letters",
            },
        ),
    ],
    "Messages": [
        Graph(
            "Webhooks", "reqps", {_rate("webhook_duration_seconds_count", "channel, status"): "{{channel}} {{status}}"}
        ),
        Graph(
            "Time to answer a webhook",
            "s",
            {
                _quantile(0.5, "webhook_duration_seconds", "channel"): "{{channel}} p50",
                _quantile(0.99, "webhook_duration_seconds", "channel"): "{{channel}} p99",
            },
        ),
        Graph(
            "Events",
            "short",
            {
                _rate("events_accepted_total", "channel"): "{{channel}} stored",
                _rate("events_duplicate_total", "channel"): "{{channel}} twins",
                _rate("events_rate_limited_total", "share"): "above the rate of {{share}}",
            },
        ),
        Graph(
            "Refused requests, failed polls",
            "short",
            {
                _rate("webhooks_rejected_total", "channel, reason"): "{{channel}} {{reason}}",
                _rate("poll_failures_total", "channel"): "{{channel}} poll failed",
            },
        ),
        Graph(
            "Waiting",
            "short",
            {
                _shared("events_waiting"): "events",
                _shared("decisions_waiting"): "decisions",
                _shared("outbox_parts"): "unsent parts",
                _shared("timers"): "timers",
                _shared("lanes", "state"): "lanes {{state}}",
            },
        ),
        Graph(
            "Deliveries",
            "short",
            {
                _rate("deliveries_total", "channel, outcome"): "{{channel}} {{outcome}}",
                _rate("delivery_retries_total", "channel"): "{{channel}} tried again",
            },
        ),
    ],
    "Turns, models and tools": [
        Graph(
            "Turns",
            "short",
            {
                _rate("turn_duration_seconds_count", "stop_reason"): "{{stop_reason}}",
                "sum(rate(askfirst_turns_failed_total{$}[$__rate_interval]))": "failed",
            },
        ),
        Graph(
            "Duration of a turn",
            "s",
            {_quantile(0.5, "turn_duration_seconds"): "p50", _quantile(0.95, "turn_duration_seconds"): "p95"},
        ),
        Graph(
            "Calls to models",
            "short",
            {
                _rate("model_call_duration_seconds_count", "model, outcome"): "{{model}} {{outcome}}",
                _rate("model_retries_total", "model"): "{{model}} tried again",
            },
        ),
        Graph(
            "Duration of a model's call",
            "s",
            {_quantile(0.95, "model_call_duration_seconds", "model"): "{{model}} p95"},
        ),
        Graph("Tokens", "short", {_rate("model_tokens_total", "model, kind"): "{{model}} {{kind}}"}),
        Graph(
            "Cost of a day",
            "currencyUSD",
            {
                "sum by (model) (increase(askfirst_model_cost_usd_total{$}[1d]))": "{{model}}",
                "sum by (model) (increase(askfirst_model_calls_unpriced_total{$}[1d]))": "{{model}}: unpriced calls",
            },
        ),
        Graph(
            "Tools",
            "short",
            {
                _rate("tool_duration_seconds_count", "tool, outcome"): "{{tool}} {{outcome}}",
                _rate("tool_calls_refused_total", "tool"): "{{tool}} not run",
            },
        ),
        Graph("Duration of a tool", "s", {_quantile(0.95, "tool_duration_seconds", "tool"): "{{tool}} p95"}),
    ],
    "Actions": [
        Graph("Open actions", "short", {_shared("actions_open", "state"): "{{state}}"}),
        Graph(
            "Asked and ended",
            "short",
            {
                _rate("actions_asked_total", "tool"): "{{tool}} asked",
                _rate("actions_ended_total", "tool, status"): "{{tool}} {{status}}",
            },
        ),
        Graph(
            "Time to decide",
            "s",
            {
                _quantile(0.5, "decision_duration_seconds", "intent"): "{{intent}} p50",
                _quantile(0.9, "decision_duration_seconds", "intent"): "{{intent}} p90",
            },
        ),
        Graph(
            "Effects",
            "short",
            {_rate("effect_duration_seconds_count", "tool, state"): "{{tool}} {{state}}"},
        ),
        Graph("Duration of an effect", "s", {_quantile(0.95, "effect_duration_seconds", "tool"): "{{tool}} p95"}),
    ],
    "Store and processes": [
        Graph(
            "Duration of a store's call",
            "s",
            {_quantile(0.99, "store_call_duration_seconds", "operation"): "{{operation}} p99"},
        ),
        Graph(
            "Errors of the store", "short", {_rate("store_errors_total", "operation, error"): "{{operation}} {{error}}"}
        ),
        Graph(
            "Leases",
            "short",
            {
                "sum by (instance, kind) (askfirst_leases_held{$})": "{{instance}} holds {{kind}}",
                _rate("leases_lost_total", "kind"): "{{kind}} lost",
                _rate("leases_taken_over_total", "kind"): "{{kind}} taken over",
            },
        ),
        Graph(
            "Event loop",
            "s",
            {
                "max by (instance) (askfirst_loop_lag_seconds{$})": "{{instance}} lag",
                _rate("loop_stalled_seconds_total", "instance"): "{{instance}} stalled seconds a second",
                _rate("loop_stalls_total", "instance"): "{{instance}} stalls a second",
            },
        ),
        Graph(
            "Memory and CPU",
            "bytes",
            {
                "process_resident_memory_bytes{$}": "{{instance}} memory",
                "rate(process_cpu_seconds_total{$}[$__rate_interval])": "{{instance}} CPU seconds a second",
            },
        ),
        Graph(
            "Observers",
            "short",
            {
                _rate("observer_events_dropped_total", "observer"): "{{observer}} dropped",
                _rate("observer_events_failed_total", "observer"): "{{observer}} failed",
            },
        ),
        Graph("Releases", "short", {"count by (version) (askfirst_build_info{$})": "{{version}}"}),
    ],
}


def dashboard() -> dict[str, Any]:
    """Return the dashboard in Grafana's import format."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, graphs in _ROWS.items():
        panels.append({"type": "row", "title": title, "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1}})
        y += 1
        width = _COLUMNS // 3
        for number, graph in enumerate(graphs):
            x = number % 3 * width
            panels.append(_panel(graph, {"x": x, "y": y + number // 3 * _HEIGHT, "w": width, "h": _HEIGHT}))
        y += -(-len(graphs) // 3) * _HEIGHT
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        {
            "name": "job", "type": "query", "label": "Job", "datasource": _SOURCE, "refresh": 1, "includeAll": True,
            "multi": True, "allValue": ".*", "query": "label_values(askfirst_build_info, job)",
            "current": {"text": "All", "value": "$__all"},
        },
    ]  # fmt: skip
    return {
        "title": "Askfirst", "uid": "askfirst", "schemaVersion": 39, "version": 1, "tags": ["askfirst"],
        "editable": True, "refresh": "30s", "time": {"from": "now-6h", "to": "now"}, "templating": {"list": variables},
        "panels": panels,
    }  # fmt: skip


def _panel(graph: Graph, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + number), "datasource": _SOURCE, "legendFormat": legend,
            "expr": query.replace("{$}", '{job=~"$job"}').replace("$}", 'job=~"$job"}'),
        }
        for number, (query, legend) in enumerate(graph.queries.items())
    ]  # fmt: skip
    return {
        "type": "timeseries", "title": graph.title, "datasource": _SOURCE, "gridPos": place, "targets": targets,
        "fieldConfig": {"defaults": {"unit": graph.unit, "min": 0}, "overrides": []},
    }  # fmt: skip


def text() -> str:
    """Return the file's text."""
    return json.dumps(dashboard(), indent=2) + "\n"


def main() -> None:
    FILE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
