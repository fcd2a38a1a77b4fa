"""Too much at once: a full backlog, a flood of one chat and the largest body delay no other chat, on either store."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import aiohttp
import pytest

from channels import Message, WebhookRequest
from gateway import Agent, ChannelAgent, Gateway
from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.types import Incoming
from gateway.testing import ChannelCase
from gateway.web.limits import MAX_BODY_BYTES
from tests.e2e.house import SIGNED, House, open_house, settings_of
from tests.fakes.openai import Say
from tests.fakes.telegram import User


@pytest.fixture(params=["sqlite", "redis"])
def store_at(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], Store]:
    """Return a maker of stores with a limit of waiting events."""
    if request.param == "sqlite":
        return lambda most: SqliteStore(str(tmp_path / "askfirst.db"), max_waiting=most)
    url, prefix = request.getfixturevalue("redis_url"), request.getfixturevalue("prefix")
    return lambda most: RedisStore(url, prefix=prefix, max_waiting=most, ack_seconds=5)


@pytest.fixture
async def gateway(case: ChannelCase, store_at: Callable[[int], Store], tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway with a full store."""
    store = store_at(1)
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


# ── a flood of one chat ──


IN_ONE = 5
"""The number of waiting messages in a full conversation."""


numbers = itertools.count(5000)


async def writes(house: House, who: User, text: str) -> aiohttp.ClientResponse:
    """Deliver a message once. Returns the webhook's answer."""
    sender = {"id": who.id, "is_bot": False, "first_name": "Eve", "language_code": "en"}
    chat = {"id": who.id, "type": "private", "first_name": "Eve"}
    number = next(numbers)
    message = {"message_id": number, "from": sender, "chat": chat, "date": int(time.time()), "text": text}
    if text.startswith("/"):
        message["entities"] = [{"type": "bot_command", "offset": 0, "length": len(text)}]
    update = json.dumps({"update_id": number, "message": message})
    async with aiohttp.ClientSession() as http, http.post(house.webhook, data=update, headers=SIGNED) as answer:
        return answer


async def thinks(house: House, who: User) -> asyncio.Event:
    """Have a person's turn hang until the event is set."""
    hold, before = asyncio.Event(), len(house.model.requests)
    house.model.script([Say("I am done.", hold=hold)])
    await house.telegram.person_says(who, who, "think")
    await house.model.wait_for(before + 1)
    return hold


@pytest.mark.ledger("PYG-27")
async def test_a_flooded_chat_delays_only_its_own_messages(
    tmp_path: Path, store_at: Callable[[int], Store], caplog: pytest.LogCaptureFixture
) -> None:
    async with open_house(tmp_path, options={"store": store_at(10 * IN_ONE)}) as house:
        eve, ben = house.telegram.person("Eve"), house.telegram.person("Ben")
        prompt = await house.prompt()
        hold = await thinks(house, eve)
        begun = time.monotonic()
        answers = [await writes(house, eve, f"and of {number}") for number in range(4 * IN_ONE)]
        statuses = [answer.status for answer in answers]
        refused = len(statuses) - (IN_ONE - 1)  # her first message waits, too
        assert statuses == [200] * (IN_ONE - 1) + [503] * refused
        assert {answer.headers["Retry-After"] for answer in answers[-refused:]} == {"5"}
        lines = [record for record in caplog.records if record.getMessage() == "a request was not stored"]
        assert 1 <= len(lines) <= 1 + (time.monotonic() - begun)
        assert f"{IN_ONE} events wait in " in vars(lines[0])["why"]

        deliveries = len(house.telegram.deliveries)
        house.model.script(["Hello Ben."])
        await house.telegram.person_says(ben, ben, "hello")
        await house.until(lambda: house.texts(ben) == ["Hello Ben."])
        assert (await house.presses(prompt)).text == "Confirmed."
        assert {status for _, status in house.telegram.deliveries[deliveries:]} == {200}

        house.model.script(["Enough."])
        assert (await writes(house, eve, "/stop")).status == 200
        await house.until(lambda: house.texts(eve)[-1:] == ["Enough."])
        hold.set()
        await house.idle()
        house.model.script(["I am back."])
        assert (await writes(house, eve, "and now")).status == 200
        await house.until(lambda: house.texts(eve)[-1:] == ["I am back."])


async def test_flooded_chat_under_polling_delays_no_other_chat(
    tmp_path: Path, store_at: Callable[[int], Store]
) -> None:
    async with open_house(tmp_path, way="polling", options={"store": store_at(10 * IN_ONE)}) as house:
        eve, ben = house.telegram.person("Eve"), house.telegram.person("Ben")
        hold = await thinks(house, eve)
        for number in range(2 * IN_ONE):
            await house.telegram.person_says(eve, eve, f"and of {number}", wait=False)
        house.model.script(["Hello Ben."])
        await house.telegram.person_says(ben, ben, "hello")
        await house.until(lambda: house.texts(ben) == ["Hello Ben."])
        house.model.script(["Enough."])
        hold.set()
        await house.until(lambda: house.texts(eve)[-1:] == ["Enough."])


# ── the largest body ──


@pytest.fixture
async def idle(case: ChannelCase, tmp_path: Path) -> AsyncIterator[Gateway]:
    bot = ChannelAgent(Agent([], provider="demo"), store=SqliteStore(":memory:"))
    async with await asyncio.to_thread(Gateway, bot, settings_of(case, tmp_path), role="web") as idle:
        yield idle


MOST_CPU_SECONDS = 0.75
"""Measured: at most a tenth. Work quadratic in the length takes many times as long."""

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
    """Return the largest request within the limit."""
    few, many, most = 1, limit, make(1)
    slope = (len(make(1001).body) - len(most.body)) / 1000
    while many - few > 1:  # each piece is nearly as long as the last ones
        count = min(max(few + int((limit - len(most.body)) / slope), few + 1), many - 1)
        tried = make(count)
        slope = (len(tried.body) - len(most.body)) / (count - few)
        if len(tried.body) > limit:
            many = count
        else:
            few, most = count, tried
    return most


async def seconds(idle: Gateway, case: ChannelCase, request: WebhookRequest) -> float:
    """Return the CPU seconds for all work on a request."""
    assert case.webhook is not None
    proven = case.webhook.prove(request, datetime.now(UTC), 1)
    began = time.process_time()
    answer = await idle.webhook(case.channel.name, proven)
    took = time.process_time() - began
    assert answer.status == 200
    return took


async def test_largest_text_is_parsed_quickly(idle: Gateway, case: ChannelCase) -> None:
    webhook, limit = case.webhook, ACCEPTED_BYTES[case.channel.name]
    assert webhook is not None
    took: dict[str, float] = {}
    for name, piece in WORDS.items():
        for before in ("", "yes "):
            request = largest(lambda count, text=before, piece=piece: webhook.says(text + piece * count), limit)  # type: ignore[misc]
            assert limit - 200 < len(request.body) <= limit
            took[before + name] = await seconds(idle, case, request)
    assert {name: each for name, each in took.items() if each > MOST_CPU_SECONDS} == {}


@pytest.mark.parametrize("case", ["telegram"], indirect=True)
@pytest.mark.parametrize("kind", ["mention", "text_link", "bot_command", "bold"])
async def test_largest_telegram_entities_are_parsed_quickly(idle: Gateway, case: ChannelCase, kind: str) -> None:
    webhook = case.webhook
    assert webhook is not None
    update = json.loads(webhook.says("@a 👍" * 4000).body)

    def make(count: int) -> WebhookRequest:
        spans = [{"type": kind, "offset": number, "length": 20_000 - number} for number in range(count)]
        update["message"]["entities"] = spans
        return replace(webhook.says(""), body=json.dumps(update).encode())

    assert await seconds(idle, case, largest(make, MAX_BODY_BYTES)) < MOST_CPU_SECONDS


@pytest.mark.parametrize("case", ["slack"], indirect=True)
async def test_largest_slack_blocks_are_parsed_quickly(idle: Gateway, case: ChannelCase) -> None:
    webhook = case.webhook
    assert webhook is not None
    callback = json.loads(webhook.says("hello").body)

    def make(count: int) -> WebhookRequest:
        words = [{"type": "text", "text": "<@U1> &lt;", "style": {"bold": True}}] * count
        block = {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": words}]}
        callback["event"]["blocks"] = [block]
        return replace(webhook.says(""), body=json.dumps(callback).encode())

    assert await seconds(idle, case, largest(make, MAX_BODY_BYTES)) < MOST_CPU_SECONDS


@pytest.mark.parametrize("case", ["sms", "whatsapp"], indirect=True)
async def test_most_twilio_fields_are_parsed_quickly(idle: Gateway, case: ChannelCase) -> None:
    webhook = case.webhook
    assert webhook is not None
    form = webhook.says("hello").body.decode()

    def make(count: int) -> WebhookRequest:
        more = urlencode({f"Field{number}": "é" * 10 for number in range(count)})
        return replace(webhook.says(""), body=f"{form}&{more}".encode())

    assert await seconds(idle, case, make(400)) < MOST_CPU_SECONDS
