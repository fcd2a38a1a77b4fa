"""A full backlog puts off a repeated message and nothing else, on either store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from channels import Message, WebhookRequest
from gateway import Agent, ChannelAgent, Gateway
from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.types import Incoming
from gateway.testing import ChannelCase
from tests.e2e.every_channel import case, settings_of
from tests.store.conftest import prefix, redis_url

__all__ = ["case", "prefix", "redis_url"]


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return SqliteStore(str(tmp_path / "askfirst.db"), max_waiting=1)
    url, prefix = request.getfixturevalue("redis_url"), request.getfixturevalue("prefix")
    return RedisStore(url, prefix=prefix, max_waiting=1, ack_seconds=5)


@pytest.fixture
async def gateway(case: ChannelCase, store: Store, tmp_path: Path) -> AsyncIterator[Gateway]:
    """Where so much waits already that nothing more may."""
    bot = ChannelAgent(Agent([], provider="demo"), store=store)
    async with await asyncio.to_thread(Gateway, bot, settings_of(case, tmp_path)) as gateway:
        await store.accept([Incoming(conversation="elsewhere", event_ids=(), body={}, decides=True)])
        yield gateway


async def test_full_store_puts_off_only_messages_that_come_again(gateway: Gateway, case: ChannelCase) -> None:
    webhook = case.webhook
    assert webhook is not None
    comes_again = case.channel.name in ("telegram", "slack")

    async def status(request: WebhookRequest) -> int:
        # Slack's documents name its own server for the answer to a press.
        body = request.body.replace(b"https%3A%2F%2Fhooks.slack.com", b"http%3A%2F%2F127.0.0.1%3A9")
        request = replace(request, body=body)
        answer = await gateway.webhook(case.channel.name, webhook.prove(request, datetime.now(UTC), 1))
        assert ("Retry-After" in answer.headers) == (answer.status == 503)
        assert b"<Message>" not in answer.body, "nobody is asked to send again what can be stored"
        return answer.status

    for words in ("hello", "yes", "delete invoice INV-42", "OK 7K2P"):  # the last has the shape of a code, and is none
        assert (words, await status(webhook.says(words))) == (words, 503 if comes_again else 200)
    if webhook.presses is not None:
        assert await status(webhook.presses("00" + "a" * 22)) == 200
    for delivery in webhook.deliveries:
        if not any(isinstance(event, Message) for event in delivery.parsed.events):
            assert (delivery.name, await status(delivery.request)) == (delivery.name, delivery.parsed.response.status)
