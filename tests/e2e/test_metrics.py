"""The metrics of a running gateway, as an operator scrapes them."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from gateway import Agent, ChannelAgent, Gateway, Settings, tool
from gateway.store.redis import RedisStore
from gateway.testing import ScriptedProvider, ToolCall
from gateway.web import serve
from tests.e2e.house import SIGNED, SIGNING, House, open_house
from tests.fakes.openai import Call, Fail, Say
from tests.metrics import scraped

CLOSED = {
    "channel": {"telegram", "app", "other"},
    "status": {"200", "400", "401", "503", "done", "failed", "unknown", "refused", "expired", "undelivered", "other"},
    "reason": {"forged", "stale", "unreadable", "overloaded", "not_started", "store_unavailable", "other"},
    "share": {"person", "place", "all"},
    "stop_reason": {"answered", "asked", "command", "decided", "provider_error", "max_iterations", "other"},
    "provider": {"openai"},
    "model": {"test-model"},
    "outcome": {"ok", "error", "sent", "failed", "suppressed"},
    "kind": {"input", "cached", "cache_write", "output", "turn", "memory", "action", "out"},
    "tool": {"list_invoices", "delete_invoice", "send_invoice_pdf", "archive_invoice", "unknown"},
    "intent": {"confirm", "cancel"},
    "state": {"done", "failed", "unknown", "ready", "leased", "parked", "undelivered", "shown", "approved"},
    "why": {"unknown", "forged", "undeliverable"},
    "error": {"conflict", "fenced", "too_late", "overloaded", "unavailable", "other"},
    "observer": set(),
}
"""Every possible value of a label here, for any input of a person, a platform or a model."""
FREE = {"le", "operation", "version", "python", "implementation"}
"""Labels with values from this program alone."""


@pytest.mark.ledger("OBS-35", "CLI-02")
async def test_a_message_and_a_yes_are_counted_at_each_station(house: House) -> None:
    prompt = await house.prompt()
    await house.later(4.0)
    await house.presses(prompt)
    await house.until(lambda: house.shop.deleted or None)
    await house.idle()
    await asyncio.sleep(0)
    found = await scraped(house.url)

    assert found.value("askfirst_webhook_duration_seconds_count", channel="telegram", status="200") == 2
    assert found.value("askfirst_events_accepted_total", channel="telegram") == 2
    assert found.value("askfirst_turn_duration_seconds_count", stop_reason="asked") == 1
    model = {"provider": "openai", "model": "test-model"}
    assert found.value("askfirst_model_call_duration_seconds_count", **model, outcome="ok") == 1
    assert found.value("askfirst_model_tokens_total", **model, kind="output") > 0
    assert found.value("askfirst_actions_asked_total", tool="delete_invoice") == 1
    assert found.value("askfirst_decision_duration_seconds_count", intent="confirm") == 1
    assert 4 <= found.value("askfirst_decision_duration_seconds_sum", intent="confirm") < 60
    assert found.value("askfirst_effect_duration_seconds_count", tool="delete_invoice", state="done") == 1
    assert found.value("askfirst_actions_ended_total", tool="delete_invoice", status="done") == 1
    assert found.value("askfirst_actions_open") == 0
    assert found.value("askfirst_deliveries_total", channel="telegram", outcome="sent") >= 2
    assert found.value("askfirst_store_up") == found.value("askfirst_store_headroom") == 1
    assert found.value("askfirst_store_call_duration_seconds_count", operation="accept") >= 2
    assert found.value("askfirst_build_info") == 1
    assert found.value("process_resident_memory_bytes") > 0


@pytest.mark.ledger("OBS-35")
async def test_tools_that_run_fail_or_do_not_exist_are_apart(house: House) -> None:
    await house.asks("list", Call("list_invoices", {}), Call("drop_all_tables", {"x": 1}), Say("INV-7"))
    found = await scraped(house.url)
    assert found.value("askfirst_tool_duration_seconds_count", tool="list_invoices", outcome="ok") == 1
    assert found.value("askfirst_tool_calls_refused_total", tool="unknown") == 1
    assert "drop_all_tables" not in found.text


async def test_failed_calls_to_the_model_and_their_retries_are_counted(house: House) -> None:
    house.model.script([Fail(500), Fail(429, headers={"Retry-After": "1"}), Say("hello")])
    await house.asks("hi")
    found = await scraped(house.url)
    assert found.value("askfirst_model_call_duration_seconds_count", outcome="error") == 2
    assert found.value("askfirst_model_call_duration_seconds_count", outcome="ok") == 1
    assert found.value("askfirst_model_retries_total", provider="openai", model="test-model") == 2
    assert found.value("askfirst_model_calls_unpriced_total", model="test-model") == 1


async def test_no_sent_text_makes_a_new_label(house: House) -> None:
    odd = 'x"} 1\n# HELP evil\n\U0001f4a9'
    await house.asks(f"/{'b' * 40} {odd}", Say(odd))
    await house.asks(odd, Call(odd, {odd: odd}), Call("delete_invoice", {"wrong": odd}), Say(odd))
    await house.asks("/total", to=None)
    prompt = await house.prompt(odd[:5])
    await house.presses(prompt, "Cancel")
    headers = {"X-Telegram-Bot-Api-Secret-Token": "wrong"}
    for body, sent in (
        (b"{}", headers),
        (b"\xff\xfe", SIGNED),
        (b'{"update_id": 7, "message": 5}', SIGNED),
        (b'{"update_id": 8, "\xf0\x9f\x92\xa9": {}}', {**SIGNED, "Content-Type": "text/odd; charset=klingon"}),
        (b"[]" * 1000, {**SIGNED, "Content-Type": "\u00ff/x"}),
    ):
        await house.post(body, sent)
    async with aiohttp.ClientSession() as http:
        for path in ("/metrics/x", "/webhooks/odd", "/webhooks/telegram/%2e%2e", "//", "/%F0%9F%92%A9?a=b"):
            for method in ("GET", "POST", "ODD"):
                async with http.request(method, house.url + path, data=odd) as answer:
                    assert answer.status in (400, 404, 405)
    await house.idle()

    found = await scraped(house.url)
    names = {name for sample in found.samples for name in sample.labels}
    assert names <= CLOSED.keys() | FREE
    for label in names - FREE:
        assert found.labels(label) <= CLOSED[label], label
    assert found.labels("operation") <= {
        *("accept", "acquire", "commit", "get", "has_headroom", "now", "outbox", "pending_decisions"),
        *("ping", "read", "renew", "run_timers", "scan", "stats"),
    }
    assert found.value("askfirst_webhooks_rejected_total", reason="forged") >= 1


async def test_messages_above_a_rate_are_counted_by_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKFIRST_LIMITS", "messages=1/-/-")
    async with open_house(tmp_path) as house:
        await house.asks("one", Say("hello"))
        await house.says("two")
        found = await scraped(house.url)
    assert found.value("askfirst_events_rate_limited_total", channel="telegram", share="person") == 1


async def test_a_scrape_is_answered_while_the_store_is_away(house: House) -> None:
    await house.prompt()
    await house.gateway.store.close()
    found = await scraped(house.url)
    assert found.value("askfirst_store_up") == 0
    assert "askfirst_dead_letters " not in "".join(line for line in found.text.splitlines(True) if line[0] != "#")
    assert found.value("askfirst_store_errors_total", operation="stats", error="unavailable") == 1
    assert found.value("askfirst_turn_duration_seconds_count", stop_reason="asked") == 1


async def test_two_gateways_of_one_process_count_apart(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with open_house(tmp_path / "a") as one, open_house(tmp_path / "b") as other:
        await one.asks("hi", Say("hello"))
        counts = [(await scraped(each.url)).value("askfirst_events_accepted_total") for each in (one, other)]
    assert counts == [1, 0]


async def test_an_open_question_is_counted_as_shown(house: House) -> None:
    await house.prompt()
    found = await scraped(house.url)
    assert found.value("askfirst_actions_open", state="shown") == found.value("askfirst_actions_open") == 1
    assert found.value("askfirst_timers") == 1


async def test_a_refused_question_is_counted(house: House) -> None:
    await house.presses(await house.prompt("INV-7"), "Cancel")
    await house.idle()
    found = await scraped(house.url)
    assert found.value("askfirst_decision_duration_seconds_count", intent="cancel") == 1
    assert found.value("askfirst_actions_ended_total", tool="delete_invoice", status="refused") == 1
    assert found.value("askfirst_actions_open") == 0


async def test_processes_on_one_redis_show_the_same_store(redis_url: str, prefix: str, tmp_path: Path) -> None:
    @tool(confirm="Delete {invoice}?")
    async def delete_invoice(invoice: str) -> str:
        """Delete an invoice."""
        return invoice

    settings = Settings(store=f"sqlite:///{tmp_path / 'none.db'}", secret=SIGNING, allow="*")
    async with contextlib.AsyncExitStack() as stack:
        urls, bots = [], []
        for _ in range(2):
            model = ScriptedProvider([ToolCall("delete_invoice", {"invoice": "INV-7"})])
            store = RedisStore(redis_url, prefix=prefix, ack_seconds=5)
            bots.append(ChannelAgent(Agent([delete_invoice], provider=model), store=store))
            gateway = await stack.enter_async_context(await asyncio.to_thread(Gateway, bots[-1], settings))
            running = await serve(gateway.aiohttp_app(), "127.0.0.1", 0)
            stack.push_async_callback(running.cleanup)
            urls.append(f"http://127.0.0.1:{running.port}")
        await bots[0].ask_channel("ana", "delete INV-7")
        found = [await scraped(url) for url in urls]
    assert [each.value("askfirst_actions_open") for each in found] == [1, 1]
    assert [each.value("askfirst_store_up") for each in found] == [1, 1]
    assert sum(each.value("askfirst_actions_asked_total", tool="delete_invoice") for each in found) == 1


def test_prometheus_client_is_loaded_by_a_gateway_alone() -> None:
    code = "import sys, gateway, gateway.app, gateway.cli; assert 'prometheus_client' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
