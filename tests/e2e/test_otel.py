"""The spans of a real gateway, as a collector of OpenTelemetry gets them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels import WebhookRequest
from gateway.observe import otel
from gateway.observe.runs import action_event_id, run_id_of
from tests.e2e.house import SECRET, House, delete, open_house
from tests.e2e.test_confirming import DONE
from tests.fakes.collector import FakeCollector, SpanTaken
from tests.fakes.openai import Answer, Call

CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
LOOK: list[Answer] = [Call("list_invoices", {}), "INV-7 and INV-42 are open."]
NO_ROOT = ""


@pytest.fixture
async def collector() -> AsyncIterator[FakeCollector]:
    async with FakeCollector() as collector:
        yield collector


def tree(spans: list[SpanTaken]) -> dict[str, list[str]]:
    """Parent's name -> the names of the spans below. The root is below "-"."""
    names = {span.span_id: span.name for span in spans} | {NO_ROOT: "-"}
    below: dict[str, list[str]] = {}
    for span in spans:
        below.setdefault(names[span.parent], []).append(span.name)
    return below


@pytest.mark.ledger("OBS-36", "TRC-15")
async def test_one_trace_leads_from_the_webhook_to_the_delivery(tmp_path: Path, collector: FakeCollector) -> None:
    before = time.time_ns()
    async with open_house(tmp_path, otel_endpoint=collector.url) as house:
        await house.asks("what is open?", *LOOK)
        await house.idle()
    (received,) = collector.named("receive telegram")
    spans = collector.in_trace(received.trace_id)
    assert spans[0] == received and set(map(id, spans)) == set(map(id, collector.spans))
    assert {name: sorted(names) for name, names in tree(spans).items()} == {
        "-": ["receive telegram"],
        "receive telegram": ["deliver telegram", "invoke_agent Shop"],
        "invoke_agent Shop": [
            *("chat test-model", "chat test-model", "execute_tool list_invoices"),
            *("session_load", "session_save", "tool_selection"),
        ],
    }
    assert len({span.span_id for span in spans}) == len(spans)
    assert all(before <= span.began <= span.ended <= time.time_ns() for span in spans)
    (turn,), (sent,) = collector.named("invoke_agent Shop"), collector.named("deliver telegram")
    assert received.began <= turn.began < turn.ended <= sent.ended
    assert all(turn.began <= span.began <= span.ended for span in spans if span.parent == turn.span_id)
    first, _ = collector.named("chat test-model")
    assert first.attributes["gen_ai.usage.input_tokens"] > 0
    assert first.ended > first.began
    assert turn.attributes["askfirst.stop_reason"] == "answered"
    assert received.resource["service.name"] == "Shop"


@pytest.mark.ledger("OBS-36", "TRC-15")
async def test_a_press_links_to_the_run_that_asked(tmp_path: Path, collector: FakeCollector) -> None:
    async with open_house(tmp_path, otel_endpoint=collector.url) as house:
        prompt = await house.prompt()
        await house.presses(prompt)
        await house.until(lambda: DONE in house.texts())
        await house.idle()
        (action,) = await house.actions()
    asked, pressed = collector.named("receive telegram")
    (kept,) = [span for span in collector.spans if span.name == "pending_action delete_invoice"]
    assert asked.trace_id == action.run_id
    assert kept.trace_id == run_id_of(action.conversation, action_event_id(action.pending_action_id))
    assert kept.links == [(asked.trace_id, asked.span_id)]
    (turn,) = [span for span in collector.in_trace(asked.trace_id) if span.name == "invoke_agent Shop"]
    assert (kept.trace_id, kept.span_id) in turn.links
    assert tree(collector.in_trace(asked.trace_id))["receive telegram"] == ["invoke_agent Shop", "deliver telegram"]
    decided = collector.in_trace(pressed.trace_id)
    assert [span.name for span in decided] == ["receive telegram", "decide"]
    assert decided[1].links == [(kept.trace_id, kept.span_id)]
    below = tree(collector.in_trace(kept.trace_id))
    assert below["-"] == ["pending_action delete_invoice"]
    assert below["pending_action delete_invoice"][:2] == ["decide", "execute_tool delete_invoice"]
    assert "deliver telegram" in below["pending_action delete_invoice"]
    assert kept.attributes["askfirst.outcome"] == "done"


@pytest.mark.parametrize("content", [False, True])
async def test_arguments_are_sent_only_with_content(tmp_path: Path, collector: FakeCollector, content: bool) -> None:
    async with open_house(tmp_path, otel_endpoint=collector.url, log_content=content) as house:
        prompt = await house.asks("my word is CANARY-1", *delete("INV-CANARY-2"))
        await house.presses(prompt)
        await house.until(lambda: "Invoice INV-CANARY-2 is deleted." in house.texts())
        await house.idle()
        ana = str(house.ana.id)
    whole = repr(collector.spans)
    assert ("INV-CANARY-2" in whole) is content
    assert "CANARY-1" not in whole and "Ana" not in whole
    values = [str(value) for span in collector.spans for value in span.attributes.values()]
    assert not [value for value in values if value.endswith(f":{ana}")]
    assert collector.named("receive telegram")[0].attributes["gen_ai.conversation.id"].startswith("Shop/telegram:")


async def test_a_run_that_no_platform_began_has_its_turn_as_root(tmp_path: Path, collector: FakeCollector) -> None:
    async with open_house(tmp_path, otel_endpoint=collector.url, allow="*") as house:
        house.model.script(["Hello."])
        result = await house.gateway.bot.ask_channel("ana", "hi")
    (turn,) = [span for span in collector.spans if span.parent == NO_ROOT]
    assert (turn.name, turn.trace_id) == ("invoke_agent Shop", result.trace.run_id)
    assert tree(collector.spans)["invoke_agent Shop"] == [
        "session_load",
        "chat test-model",
        "session_save",
        "deliver app",
    ]


async def test_the_headers_of_the_setting_are_sent(tmp_path: Path, collector: FakeCollector) -> None:
    async with open_house(tmp_path, otel_endpoint=collector.url, otel_headers="x-key=a%20secret") as house:
        await house.asks("hi", "Hello.")
    assert collector.headers[0]["x-key"] == "a secret"


# ── the caller's trace ──


@pytest.mark.parametrize("sampled", [True, False])
async def test_a_sampled_traceparent_is_linked(tmp_path: Path, collector: FakeCollector, sampled: bool) -> None:
    async with open_house(tmp_path, otel_endpoint=collector.url) as house:
        await written(house, f"00-{CALLER[0]}-{CALLER[1]}-{sampled:02x}")
    (received,) = collector.named("receive telegram")
    assert received.links == [CALLER] * sampled
    assert received.trace_id != CALLER[0]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"ff-{CALLER[0]}-{CALLER[1]}-01",
        f"00-{'0' * 32}-{CALLER[1]}-01",
        f"00-{CALLER[0]}-{'0' * 16}-01",
        f"00-{CALLER[0].upper()}-{CALLER[1]}-01",
        f"00-{CALLER[0]}-{CALLER[1]}-01-{'x' * 4_000}",
        f"00-{CALLER[0]}-{CALLER[1]}-01, 00-{CALLER[0]}-{CALLER[1]}-01",
        "00-\N{ARABIC-INDIC DIGIT ONE}-\x7f-01",
        "-" * 7_000,
    ],
)
async def test_a_malformed_traceparent_is_ignored(tmp_path: Path, collector: FakeCollector, header: str) -> None:
    async with open_house(tmp_path, otel_endpoint=collector.url) as house:
        await written(house, header)
    (received,) = collector.named("receive telegram")
    assert received.links == []


async def written(house: House, traceparent: str) -> None:
    house.model.script(["Hello."])
    ana = {"id": house.ana.id, "first_name": "Ana"}
    message = {"message_id": 1, "date": 1, "chat": ana | {"type": "private"}, "from": ana | {"is_bot": False}}
    body = json.dumps({"update_id": 7, "message": message | {"text": "hi"}}).encode()
    headers = {"x-telegram-bot-api-secret-token": SECRET, "traceparent": traceparent}
    request = WebhookRequest(method="POST", url=house.webhook, headers=headers, body=body)
    assert (await house.gateway.webhook("telegram", request)).status == 200


# ── a collector in trouble ──


async def test_collector_that_is_down_is_harmless_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    caplog.set_level(logging.INFO)
    async with open_house(tmp_path, otel_endpoint="http://127.0.0.1:9") as house:
        for number in range(3):
            await house.asks("hi", f"Hello {number}.")
    assert house.texts() == ["Hello 0.", "Hello 1.", "Hello 2."]
    lines = [record for record in caplog.records if "opentelemetry" in record.name or "OpenTelemetry" in record.msg]
    assert [record.msg for record in lines if record.levelno >= logging.WARNING] == [
        "the OpenTelemetry collector takes no spans: they are dropped until it does (logged once)"
    ]


async def test_busy_collector_is_asked(
    tmp_path: Path, collector: FakeCollector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.statuses = [429]
    async with open_house(tmp_path, otel_endpoint=collector.url) as house:
        await house.asks("hi", "Hello.")
        await house.idle()
    assert collector.calls == 2
    assert collector.named("deliver telegram")
    assert not [record for record in caplog.records if "OpenTelemetry" in record.getMessage()]


async def test_a_stop_waits_only_so_long_for_a_slow_collector(
    tmp_path: Path, collector: FakeCollector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(otel, "FLUSH_SECONDS", 0.05)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "30")
    collector.hold = asyncio.Event()
    async with asyncio.timeout(15):
        async with open_house(tmp_path, otel_endpoint=collector.url) as house:
            await house.asks("hi", "Hello.")
            await house.idle()
    assert collector.spans == []
    assert "did not take the last spans within 0.05 s" in caplog.text
