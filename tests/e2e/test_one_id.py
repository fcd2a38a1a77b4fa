"""One id leads from the webhook of a message through the log, its trace, the metrics and the spans to the audit."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Process, forked
from tests.e2e.house import SECRET, SIGNING
from tests.fakes.collector import FakeCollector
from tests.fakes.openai import Call, FakeOpenAI
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram
from tests.fakes.twilio import FakeTwilio
from tests.metrics import scraped
from tests.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "invoices.py"
ANA = "+15557654321"
CHANNELS = ("telegram", "slack", "sms", "whatsapp")


@dataclass
class Served:
    """One process with four channels."""

    process: Process
    url: str
    telegram: FakeTelegram
    slack: FakeSlack
    twilio: FakeTwilio
    model: FakeOpenAI
    collector: FakeCollector

    async def says(self, channel: str, text: str) -> None:
        """A person writes this on a channel, and waits for the answer."""
        if channel == "telegram":
            ana = self.telegram.person("Ana")
            await self.telegram.person_says(ana, ana, text)
            await self.telegram.wait_for(lambda: self.telegram.sent or None)
        elif channel == "slack":
            ben = self.slack.person("ben")
            await self.slack.says(ben, self.slack.direct(ben), text)
            await self.slack.wait_for(lambda: self.slack.sent or None)
        else:
            before = len(self.twilio.sent)
            await self.twilio.person_says(ANA, text, whatsapp=channel == "whatsapp")
            await self.twilio.wait_for(lambda: self.twilio.sent[before:] or None)


@contextlib.asynccontextmanager
async def served(directory: Path) -> AsyncIterator[Served]:
    async with (
        FakeTelegram() as telegram,
        FakeSlack() as slack,
        FakeTwilio() as twilio,
        FakeOpenAI() as model,
        FakeCollector() as collector,
    ):
        port = free_port()
        env = {
            "ASKFIRST_STORE": f"sqlite:///{directory / 'askfirst.db'}",
            "ASKFIRST_SECRET": SIGNING,
            "ASKFIRST_ALLOW": "*",
            "ASKFIRST_PROVIDER": "openai:test-model",
            "ASKFIRST_PUBLIC_URL": f"http://127.0.0.1:{port}",
            "TELEGRAM_BOT_TOKEN": telegram.token,
            "TELEGRAM_WEBHOOK_SECRET": SECRET,
            "TELEGRAM_API_URL": telegram.url,
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_SIGNING_SECRET": slack.signing_secret,
            "SLACK_API_URL": slack.api_url,
            "TWILIO_ACCOUNT_SID": twilio.account_sid,
            "TWILIO_AUTH_TOKEN": twilio.auth_token,
            "TWILIO_SMS_FROM": twilio.sms,
            "TWILIO_WHATSAPP_FROM": f"whatsapp:{twilio.whatsapp}",
            "TWILIO_API_URL": twilio.url,
            "OPENAI_API_KEY": model.key,
            "OPENAI_BASE_URL": model.url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        }
        async with forked("serve", EXAMPLE, "--host=127.0.0.1", f"--port={port}", cwd=directory, env=env) as process:
            url = await process.url()
            telegram.webhook.update(url=f"{url}/webhooks/telegram", secret=SECRET)
            slack.webhook = f"{url}/webhooks/slack"
            twilio.webhook_url = f"{url}/webhooks/twilio"
            yield Served(process, url, telegram, slack, twilio, model, collector)
            process.signal(signal.SIGTERM)
            assert await process.ended() == 0


def rows_with(file: Path, text: str) -> dict[str, list[Any]]:
    """The rows of each table that hold a text."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in names}
    return {name: found for name, each in rows.items() if (found := [row for row in each if text in str(row)])}


@pytest.mark.timeout(120)
async def test_one_id_is_in_log_trace_metrics_spans_and_audit(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        for channel in CHANNELS:
            house.model.script([Call("delete_invoice", {"invoice_id": "INV-42"})])
            await house.says(channel, "delete INV-42")
            found = await scraped(house.url)
            assert found.value("askfirst_events_accepted_total", channel=channel) >= 1
            assert found.value("askfirst_webhook_duration_seconds_count", channel=channel, status="200") >= 1
        found = await scraped(house.url)
        assert found.value("askfirst_turn_duration_seconds_count", stop_reason="asked") == len(CHANNELS)
        assert found.value("askfirst_actions_asked_total", tool="delete_invoice") == len(CHANNELS)
    for channel in CHANNELS:
        turns = [span.trace_id for span in house.collector.named("invoke_agent Invoices")]
        (run_id,) = [span.trace_id for span in house.collector.named(f"receive {channel}") if span.trace_id in turns]
        names = [span.name for span in house.collector.in_trace(run_id)]
        assert "chat test-model" in names and f"deliver {channel}" in names
        lines = [line for line in house.process.said.splitlines() if run_id in line]
        for station in ("accepted", "turn begun", "model answered", "tool asks", "committed", "delivered"):
            assert any(station in line for line in lines), f"{channel}: no line {station!r} with the id"
        stored = rows_with(tmp_path / "askfirst.db", run_id)
        assert any(f"trace/{run_id}/" in str(row) and "llm_call" in str(row) for row in stored["record"])
        [action_id] = {str(row[0]).partition("/")[2] for row in stored["record"] if str(row[0]).startswith("action/")}
        asked = rows_with(tmp_path / "askfirst.db", action_id)["log"]
        assert any('"what":"asked"' in str(row).replace(" ", "") for row in asked)
