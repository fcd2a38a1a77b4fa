"""The dashboard, the alert rules and the list of metrics name the metrics of a scrape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from gateway.agent.checking import CallFailed
from gateway.observe.events import EVENTS, LlmEnd, ToolErrorRaised
from gateway.observe.teller import Teller
from gateway.observe.watchdog import Watchdog
from gateway.providers.base import Usage
from gateway.store.errors import StoreUnavailable
from gateway.store.sqlite import SqliteStore
from gateway.web.metrics import Metrics
from scripts import dashboard
from tests.metrics import Scrape
from tests.observe.samples import sample

DOCS = Path(__file__).parent.parent / "docs"
NAME = re.compile(r"\b(?:askfirst|process)_[a-z_]+")
SELECTOR = re.compile(r"\b(?P<name>[a-z_]+)\{(?P<labels>[^}]*)\}")
LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
GROUPING = re.compile(r"\bby \((?P<labels>[^)]*)\)")
OF_PROMETHEUS = {"job", "instance"}
"""Labels added by Prometheus to each sample."""


@pytest.fixture
async def scrape() -> Scrape:
    """A scrape with a sample of each metric."""
    store = SqliteStore(":memory:")
    await store.open()
    metrics, events = Metrics(channels=["web"], tools=["pay"]), Teller()
    events.dropped["Slow"] = events.failed["Odd"] = 1
    metrics.watch(store, [("turn", "lane")], events, Watchdog())
    for kind in EVENTS.values():
        if kind in metrics.events.kinds:
            named = {each.name for each in fields(cast("Any", kind))} & {"from_checkpoint", "from_cache"}
            metrics.events.read(sample(kind, **dict.fromkeys(named, False)))
    priced = Usage(prompt_tokens=9, cached_prompt_tokens=2, completion_tokens=1, cost_usd=0.5)
    for usage in (priced, Usage()):
        metrics.events.read(sample(LlmEnd, usage=usage, from_checkpoint=False, from_cache=False))
    metrics.events.read(sample(ToolErrorRaised, error=CallFailed("unknown"), from_checkpoint=False))
    await metrics.timed(store).now()
    metrics._note_call("get", 0.1, StoreUnavailable("away"))
    found = Scrape((await metrics.scrape()).decode())
    await store.close()
    return found


def dashboard_queries() -> Iterator[str]:
    found: dict[str, Any] = json.loads(dashboard.FILE.read_text(encoding="utf-8"))
    for panel in found["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DOCS / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def names(query: str) -> set[str]:
    return set(NAME.findall(query))


def check(query: str, scrape: Scrape) -> None:
    """Raise AssertionError for a name or a label missing in the scrape."""
    labels: dict[str, set[str]] = {}
    for each in scrape.samples:
        labels.setdefault(each.name, set(OF_PROMETHEUS)).update(each.labels)
    assert names(query) <= labels.keys(), query
    of_all = set().union(*(labels[name] for name in names(query))) | OF_PROMETHEUS
    for selector in SELECTOR.finditer(query):
        assert set(LABEL.findall(selector["labels"])) <= labels.get(selector["name"], OF_PROMETHEUS), query
    for grouping in GROUPING.finditer(query):
        assert {label.strip() for label in grouping["labels"].split(",")} <= of_all, query
    assert query.count("(") == query.count(")")


async def test_each_query_of_the_dashboard_has_its_metric_and_labels(scrape: Scrape) -> None:
    queries = list(dashboard_queries())
    assert len(queries) > 40
    for query in queries:
        check(query, scrape)


def test_the_dashboard_is_the_one_that_the_script_writes() -> None:
    assert dashboard.FILE.read_text(encoding="utf-8") == dashboard.text(), "run python -m scripts.dashboard"


async def test_the_dashboard_shows_every_metric_of_ours(scrape: Scrape) -> None:
    shown = {re.sub("_(bucket|count|sum)$", "", name) for query in dashboard_queries() for name in names(query)}
    ours = {
        re.sub("_(bucket|count|sum)$", "", each.name) for each in scrape.samples if each.name.startswith("askfirst_")
    }
    assert ours <= shown


async def test_each_alert_has_its_metric_and_a_remedy(scrape: Scrape) -> None:
    found = rules()
    for rule in found:
        check(rule["expr"], scrape)
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert re.fullmatch(r"\d+[smhd]", rule.get("for", "1m"))
    assert len({rule["alert"] for rule in found}) == len(found)


async def test_every_metric_is_documented_and_no_other(scrape: Scrape) -> None:
    page = (DOCS / "observe.md").read_text(encoding="utf-8").partition("\n## Metrics\n")[2]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    documented = {f"askfirst_{name}" for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    ours = {
        re.sub("_(bucket|count|sum)$", "", each.name) for each in scrape.samples if each.name.startswith("askfirst_")
    }
    assert documented - {"askfirst_ASKFIRST_ADMIN_TOKEN"} == ours


async def test_names_have_their_units(scrape: Scrape) -> None:
    for family in scrape.families:
        assert family.documentation
        if family.name.startswith("askfirst_"):
            ends = {"histogram": "_seconds", "counter": ""}.get(family.type, "")
            assert family.name.endswith(ends), family.name
            assert not any(each.name.endswith("_created") for each in family.samples)
