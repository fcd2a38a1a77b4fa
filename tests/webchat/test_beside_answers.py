"""What the visible log has beside the words: the tools that ran, and the ratings, which observers hear of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from channels import Address, Feedback, Message, Parsed, Person, WebhookResponse
from channels.webchat import WebChatChannel
from gateway import Agent, AgentConfig, ChannelAgent, tool
from gateway.assembly import in_memory
from gateway.observe.events import FeedbackGiven, MessageSent, ObservedEvent
from gateway.observe.observer import AgentObserver
from gateway.store.errors import StoreUnavailable
from gateway.store.transaction import Transaction
from gateway.stored import keys
from gateway.testing import ScriptedProvider, ToolCall

HERE = Address(channel="webchat", account="local", place="s" * 22)
ANA = Person(channel="webchat", account="local", user_id="s" * 22)


@tool(read_only=True)
async def look_up(number: str) -> str:
    """Look an invoice up."""
    if number == "INV-9":
        raise ValueError("no such invoice")
    return "paid"


@tool(confirm="Delete {number}?")
async def delete(number: str) -> str:
    """Delete an invoice."""
    return "deleted"


class Told(AgentObserver):
    """Keeps the sent messages and the ratings."""

    def __init__(self) -> None:
        self.events: list[ObservedEvent] = []

    def on_event(self, event: ObservedEvent) -> None:
        if isinstance(event, FeedbackGiven | MessageSent):
            self.events.append(event)

    def ratings(self) -> list[tuple[str, str, str | None]]:
        return [(each.run_id, each.message_id, each.value) for each in self.events if isinstance(each, FeedbackGiven)]


class Chat:
    """A conversation of the page with a bot in memory."""

    def __init__(self, engine: Any, told: Told) -> None:
        self.engine, self.told, self._number = engine, told, 0

    async def takes(self, kind: type[Message] | type[Feedback], **fields: Any) -> None:
        self._number += 1
        event = kind(event_ids=(str(self._number),), address=HERE, person=ANA, **fields)
        page = self.engine.context.channels["webchat"]
        await self.engine.inbox.accept(page, Parsed(events=(event,), response=WebhookResponse()))
        while not await self.engine.idle():
            await asyncio.sleep(0.001)

    async def rates(self, message_id: str, value: Literal["up", "down"] | None) -> None:
        await self.takes(Feedback, message_id=message_id, value=value)

    async def lines(self) -> list[Any]:
        context = self.engine.context
        log = keys.key(context.store, context.conversation(HERE), keys.visible_log)
        return [entry.value for entry in await context.store.read(log)]


@asynccontextmanager
async def chatting(*script: Any) -> AsyncIterator[Chat]:
    told = Told()
    config = AgentConfig(observers=(told,))
    bot = ChannelAgent(Agent([look_up, delete], provider=ScriptedProvider(script), config=config))
    page = WebChatChannel(keys=[b"k" * 32], hosts=["localhost"])
    async with in_memory(bot, {"webchat": page}) as engine:
        engine.start()
        yield Chat(engine, told)
        await engine.stop()


async def test_the_log_says_which_tools_ran() -> None:
    """Before the answer, without arguments. A call that waits for a person has not run."""
    calls = [ToolCall("look_up", {"number": number}) for number in ("INV-7", "INV-9")]
    async with chatting(calls, [ToolCall("delete", {"number": "INV-7"})], "Hello.") as chat:
        await chat.takes(Message, message_id="m1", text="delete INV-7")
        await chat.takes(Message, message_id="m2", text="hello")
        lines = await chat.lines()
    assert [each["from"] for each in lines][:5] == ["person", "steps", "bot", "person", "bot"]
    assert sum(each["from"] == "steps" for each in lines) == 1
    assert lines[1]["tools"] == [{"name": "look_up", "failed": False}, {"name": "look_up", "failed": True}]


async def test_a_rating_is_told_with_the_run_and_kept() -> None:
    async with chatting("Hello.") as chat:
        await chat.takes(Message, message_id="m1", text="hi")
        [sent] = [each for each in chat.told.events if isinstance(each, MessageSent)]
        shown = (await chat.lines())[-1]["message_id"]
        for value in ("up", "down", None):
            await chat.rates(shown, value)
        ratings = (await chat.lines())[2:]
    assert shown == sent.message_id
    assert chat.told.ratings() == [(sent.run_id, shown, value) for value in ("up", "down", None)]
    assert ratings == [{"from": "rating", "message_id": shown, "value": value} for value in ("up", "down", None)]


async def test_a_rating_of_no_message_of_the_bot_is_dropped() -> None:
    async with chatting("Hello.") as chat:
        await chat.takes(Message, message_id="m1", text="hi")
        for message_id in ("m1", "none", "x" * 200):
            await chat.rates(message_id, "up")
        assert (chat.told.ratings(), len(await chat.lines())) == ([], 2)


async def test_a_rating_is_told_again_if_it_was_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with chatting("Hello.") as chat:
        await chat.takes(Message, message_id="m1", text="hi")
        shown = (await chat.lines())[-1]["message_id"]
        store, failures = type(chat.engine.context.store), [StoreUnavailable("busy")]
        commit = store.commit

        async def failing(self: Any, transaction: Transaction) -> Any:
            if failures and any("rating" in str(line) for _, line in transaction.appends):
                raise failures.pop()
            return await commit(self, transaction)

        monkeypatch.setattr(store, "commit", failing)
        await chat.rates(shown, "up")
        while len(chat.told.ratings()) < 2 or not await chat.engine.idle():
            await asyncio.sleep(0.001)
        assert [each[2] for each in chat.told.ratings()] == ["up", "up"]
        assert [each["value"] for each in await chat.lines() if each["from"] == "rating"] == ["up"]
