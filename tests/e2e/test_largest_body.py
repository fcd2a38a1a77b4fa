"""The largest body that is let in holds up the event loop for a moment only, however it is made."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import pytest

from channels import WebhookRequest
from gateway import Agent, ChannelAgent, Gateway
from gateway.store.sqlite import SqliteStore
from gateway.testing import ChannelCase
from gateway.web.limits import MAX_BODY_BYTES
from tests.e2e.every_channel import case, settings_of

__all__ = ["case"]


@pytest.fixture
async def gateway(case: ChannelCase, tmp_path: Path) -> AsyncIterator[Gateway]:
    bot = ChannelAgent(Agent([], provider="demo"), store=SqliteStore(":memory:"))
    async with await asyncio.to_thread(Gateway, bot, settings_of(case, tmp_path), role="web") as gateway:
        yield gateway


MOST_CPU_SECONDS = 0.75
"""Measured: a tenth of it at most. What grows with the square of the length takes many times as long."""

ACCEPTED_BYTES = {"telegram": MAX_BODY_BYTES, "slack": MAX_BODY_BYTES, "sms": 64 * 1024, "whatsapp": 64 * 1024}

WORDS = {
    "letters": "x",
    "spaces": " ",
    "yeses": "yes ",
    "one long yes": "yes",
    "codes": "OK 7K2P ",
    "politeness": "please ",
    "signatures": "\nSent from my ",
    "quoted lines": "\n> ",
    "questions": "?",
    "markup": "*_~`",
    "quotes": "\"'“«",
    "escapes": "&amp;",
    "mentions": "<@U0LAN0Z89> ",
    "links": "<https://a.example/|a> ",
    "never closed": "<",
    "emoji": "👍",
    "joined emoji": "👩\u200d",
    "accents": "e\u0301\u0327",
    "marks alone": "\u0315",
    "no width": "\u200b",
    "right to left": "\u202e",
    "one that is many": "ﷺ",
    "commands": "/stop ",
}


def largest(make: Callable[[int], WebhookRequest], limit: int) -> WebhookRequest:
    """The request of the most pieces that is no larger."""
    few, many = 1, limit
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if len(make(middle).body) <= limit else (few, middle)
    return make(few)


async def seconds(gateway: Gateway, case: ChannelCase, request: WebhookRequest) -> float:
    """Of this processor, for all that becomes of a request."""
    assert case.webhook is not None
    proven = case.webhook.prove(request, datetime.now(UTC), 1)
    began = time.process_time()
    answer = await gateway.webhook(case.channel.name, proven)
    took = time.process_time() - began
    assert answer.status == 200
    return took


async def test_largest_text_is_parsed_quickly(gateway: Gateway, case: ChannelCase) -> None:
    webhook, limit = case.webhook, ACCEPTED_BYTES[case.channel.name]
    assert webhook is not None
    took: dict[str, float] = {}
    for name, piece in WORDS.items():
        for before in ("", "yes "):
            request = largest(lambda count, text=before, piece=piece: webhook.says(text + piece * count), limit)  # type: ignore[misc]
            assert limit - 200 < len(request.body) <= limit
            took[before + name] = await seconds(gateway, case, request)
    assert {name: each for name, each in took.items() if each > MOST_CPU_SECONDS} == {}


@pytest.mark.parametrize("case", ["telegram"], indirect=True)
@pytest.mark.parametrize("kind", ["mention", "text_link", "bot_command", "bold"])
async def test_largest_telegram_entities_are_parsed_quickly(gateway: Gateway, case: ChannelCase, kind: str) -> None:
    webhook = case.webhook
    assert webhook is not None
    update = json.loads(webhook.says("@a 👍" * 4000).body)

    def make(count: int) -> WebhookRequest:
        spans = [{"type": kind, "offset": number, "length": 20_000 - number} for number in range(count)]
        update["message"]["entities"] = spans
        return replace(webhook.says(""), body=json.dumps(update).encode())

    assert await seconds(gateway, case, largest(make, MAX_BODY_BYTES)) < MOST_CPU_SECONDS


@pytest.mark.parametrize("case", ["slack"], indirect=True)
async def test_largest_slack_blocks_are_parsed_quickly(gateway: Gateway, case: ChannelCase) -> None:
    webhook = case.webhook
    assert webhook is not None
    callback = json.loads(webhook.says("hello").body)

    def make(count: int) -> WebhookRequest:
        words = [{"type": "text", "text": "<@U1> &lt;", "style": {"bold": True}}] * count
        block = {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": words}]}
        callback["event"]["blocks"] = [block]
        return replace(webhook.says(""), body=json.dumps(callback).encode())

    assert await seconds(gateway, case, largest(make, MAX_BODY_BYTES)) < MOST_CPU_SECONDS


@pytest.mark.parametrize("case", ["sms", "whatsapp"], indirect=True)
async def test_most_twilio_fields_are_parsed_quickly(gateway: Gateway, case: ChannelCase) -> None:
    webhook = case.webhook
    assert webhook is not None
    form = webhook.says("hello").body.decode()

    def make(count: int) -> WebhookRequest:
        more = urlencode({f"Field{number}": "é" * 10 for number in range(count)})
        return replace(webhook.says(""), body=f"{form}&{more}".encode())

    assert await seconds(gateway, case, make(400)) < MOST_CPU_SECONDS
