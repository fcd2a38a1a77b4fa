"""Turns planned by tools: once, after the messages of people, and never read as an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from channels import Event, Message
from gateway import Agent, AgentConfig, ChannelAgent, StoreCache, Tool, ToolContext, ToolPolicy, tool
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from gateway.tools import ToolError, ToolValidationError
from tests.engine.bots import Model
from tests.engine.rig import rig, until


@tool(read_only=True)
async def plan(text: str, ctx: ToolContext, after_seconds: float = 0.0) -> str:
    """Plan to go on."""
    ctx.follow_up(text, after_seconds=after_seconds)
    return "planned"


def planned(text: str = "check the order", **more: Any) -> ToolCall:
    return ToolCall("plan", {"text": text, **more})


def read(model: ScriptedProvider) -> str:
    """Return the last message read by the model."""
    return model.requests[-1].messages[-1].content


@pytest.mark.ledger("PYG-26")
async def test_a_follow_up_is_a_turn_of_its_own() -> None:
    model = ScriptedProvider([planned(), "I will look.", "It has arrived."])
    async with ChatDriver(Agent([plan]), provider=model) as chat:
        await chat.says("ana", "watch my order")
        assert [message.text for message in chat.messages] == ["I will look.", "It has arrived."]
        assert read(model) == "You planned to go on now: check the order"
        assert model.requests[-1].messages[-1].role == "event"


async def test_a_later_follow_up_comes_when_it_is_due() -> None:
    model = ScriptedProvider([planned(after_seconds=3600), "I will look.", "It has arrived."])
    async with ChatDriver(Agent([plan]), provider=model) as chat:
        await chat.says("ana", "watch my order")
        await chat.clock.advance(3500)
        assert len(chat.messages) == 1
        await chat.clock.advance(200)
        assert chat.messages[-1].text == "It has arrived."


async def test_follow_ups_of_follow_ups_are_three_deep() -> None:
    steps: list[Any] = []
    for number in range(3):
        steps += [planned(f"again {number}"), f"turn {number}"]
    model = ScriptedProvider([*steps, planned("too deep"), "enough"])
    async with ChatDriver(Agent([plan]), provider=model) as chat:
        await chat.says("ana", "go on")
        assert [message.text for message in chat.messages] == ["turn 0", "turn 1", "turn 2", "enough"]
        assert "at most 3 deep" in read(model)


async def test_follow_up_comes_after_messages_written_meanwhile() -> None:
    hold = asyncio.Event()
    model = ScriptedProvider([planned(), hold, "I will look.", "both"])
    async with ChatDriver(Agent([plan]), provider=model) as chat:
        first = asyncio.create_task(chat.says("ana", "watch my order"))
        await until(lambda: len(model.requests) >= 2)
        second = asyncio.create_task(chat.says("ana", "and my parcel"))
        while (await chat.engine.context.store.stats()).waiting < 2:
            await asyncio.sleep(0.001)
        hold.set()
        await asyncio.gather(first, second)
        said = [message.content for message in model.requests[-1].messages]
        assert "and my parcel" in said and "You planned to go on now: check the order" in said
        assert [message.text for message in chat.messages] == ["I will look.", "both"]


@pytest.mark.parametrize("text", ["yes", "OK", "confirm"])
async def test_a_follow_up_never_confirms(text: str) -> None:
    ran: list[str] = []

    @tool(confirm="Delete it?")
    async def delete() -> str:
        """Delete."""
        ran.append("gone")
        return "gone"

    model = ScriptedProvider([(planned(text), ToolCall("delete", {})), "waiting"])
    async with ChatDriver(Agent([plan, delete]), provider=model) as chat:
        await chat.says("ana", "delete it")
        assert ran == [] and "Delete it?" in "".join(message.text for message in chat.messages)
        await chat.presses("ana", "Confirm")
        assert ran == ["gone"]


async def test_follow_up_has_the_person_of_the_planning_turn() -> None:
    people: list[str] = []

    @tool(read_only=True)
    async def note(ctx: ToolContext) -> str:
        """Note."""
        people.append(ctx.person)
        ctx.follow_up("more") if ctx.depth == 0 else None
        return "noted"

    model = ScriptedProvider([ToolCall("note", {}), "one", ToolCall("note", {}), "two"])
    async with ChatDriver(Agent([note]), provider=model) as chat:
        await chat.says("ana", "hello", group="team")
        assert len(people) == 2 and len(set(people)) == 1 and people[0].endswith(":ana")
        assert [message.place for message in chat.messages] == ["#team", "#team"]


async def test_follow_up_is_planned_once_despite_a_take_over(tmp_path: Path) -> None:
    """The first attempt at the turn ends after the tool, before its commit."""
    from gateway.providers import ProviderError

    down = ProviderError("openai", "503", retryable=False)
    model = ScriptedProvider([planned(), down, "I will look.", "It has arrived."])
    async with rig(ChannelAgent(Agent([plan], provider=model)), tmp_path) as chat:
        await chat.hears("ana", "watch my order")
        await chat.later(60)
        assert chat.platform.texts()[-2:] == ["I will look.", "It has arrived."]
        assert len(model.requests) == 4


@pytest.mark.parametrize(
    ("text", "after_seconds"), [("", 0.0), (" ", 0.0), ("x" * 4001, 0.0), ("x", -1.0), ("x", 1e9), ("x", float("nan"))]
)
def test_follow_up_with_invalid_values_is_refused(text: str, after_seconds: float) -> None:
    context = ToolContext(person="app:-:ana", plan=lambda planned: None)
    with pytest.raises(ValueError, match=r"1 to 4000 characters|0 to 30 days"):
        context.follow_up(text, after_seconds=after_seconds)


async def test_follow_up_without_a_chat_is_refused() -> None:
    with pytest.raises(ToolError, match="needs the turn of a chat"):
        ToolContext(person="app:-:ana").follow_up("x")


RAN: list[str] = []


@tool(confirm="Refund order {order}?")
async def refund(order: str, ctx: ToolContext) -> str:
    """Refund an order."""
    RAN.append(order)
    ctx.emit_artifact(content=b"note", filename="note.txt")
    return f"Order {order} is refunded."


def bot(model: ScriptedProvider, policy: ToolPolicy | None = None) -> ChannelAgent:
    accountant = Agent([refund], provider=model, policy=policy)
    return ChannelAgent(Agent([accountant.as_tool("ask_accountant", "Ask the accountant about money.")]))


async def test_a_confirmed_action_of_the_inner_agent_runs_once() -> None:
    RAN.clear()
    accountant = ScriptedProvider([ToolCall("refund", {"order": "A-1"})])
    front = ScriptedProvider([ToolCall("ask_accountant", {"task": "Refund A-1."}), "Anything else?"])
    async with ChatDriver(bot(accountant), provider=front) as chat:
        await chat.says("ana", "refund A-1")
        assert "Refund order “A\\-1”?" in chat.last.text
        assert RAN == []
        await chat.presses("ben", "Confirm")
        assert RAN == [], "another person's press decides nothing"
        await chat.presses("ana", "Confirm")
        assert RAN == ["A-1"]
        assert "Order A-1 is refunded." in [message.text for message in chat.messages]
        assert chat.last.artifacts[0].filename == "note.txt"
        await chat.says("ana", "thanks")
        told = [message.content for message in front.requests[-1].messages if message.role == "event"]
        assert any("refund" in each and "done" in each for each in told)


async def test_policy_of_the_inner_agent_is_asked_again_at_the_launch() -> None:
    RAN.clear()
    policy = ToolPolicy(allow=["*"])
    accountant = ScriptedProvider([ToolCall("refund", {"order": "A-1"})])
    front = ScriptedProvider([ToolCall("ask_accountant", {"task": "Refund A-1."})])
    chatting = bot(accountant, policy)
    async with ChatDriver(chatting, provider=front) as chat:
        await chat.says("ana", "refund A-1")
        assert chatting.agent.reach["refund"].policy is policy
        policy.deny = ("refund",)
        await chat.presses("ana", "Confirm")
        assert RAN == []


async def test_the_providers_of_both_agents_are_closed() -> None:
    closed: list[str] = []

    class Closing(ScriptedProvider):
        def __init__(self, name: str) -> None:
            super().__init__([])
            self.name = name

        async def close(self) -> None:
            closed.append(self.name)

    inner = Agent([refund], provider=Closing("inner"))
    async with ChannelAgent(
        Agent([inner.as_tool("ask", "Ask.")], provider=Closing("outer")), store="sqlite:///:memory:"
    ):
        assert closed == []
    assert sorted(closed) == ["inner", "outer"]


def deleting(done: list[str], channels: list[str] | None) -> Tool:
    @tool(confirm="Delete {invoice_id}?", channels=channels)
    async def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        done.append(invoice_id)
        return "It is gone."

    return delete_invoice


@tool
async def look_up(invoice_id: str) -> str:
    """Look an invoice up."""
    return invoice_id


async def test_tool_is_offered_only_in_its_channels(tmp_path: Path) -> None:
    done: list[str] = []
    for channels, offered in ((["slack"], ["look_up"]), (["slack", "test"], ["delete_invoice", "look_up"])):
        model = Model()
        bot = ChannelAgent(Agent([deleting(done, channels), look_up], provider=model))
        async with rig(bot, tmp_path / channels[-1]) as chat:
            await chat.hears("ana", "delete INV-1")
        assert [each.name for each in model.requests[0].tools] == offered
        if channels == ["slack"]:
            assert chat.platform.texts() == ["The tool said: Unknown tool 'delete_invoice'. Available tools: look_up"]
        else:
            assert "Delete" in chat.platform.texts()[0]
    assert done == []


async def test_action_asked_before_its_channel_was_removed_is_not_run(tmp_path: Path) -> None:
    done: list[str] = []
    free = deleting(done, None)
    async with rig(ChannelAgent(Agent([free], provider=Model())), tmp_path) as chat:
        await chat.hears("ana", "delete INV-1")
        free.channels = frozenset({"slack"})  # as in the release that follows
        code = chat.platform.texts()[0].partition("**OK ")[2][:4]
        await chat.handles("ana", f"OK {code}")
        assert done == []
        assert any("no longer as it was shown" in text for text in chat.platform.texts())


def test_a_conversation_of_ones_own_code_is_of_the_channel_app() -> None:
    assert ToolContext(person="app:-:ana").channel == "app"


@pytest.mark.parametrize("channels", ["slack", []])
def test_channels_are_a_list_of_names(channels: list[str]) -> None:
    with pytest.raises(ToolValidationError, match=r"channels must be a list of names.*Write channels="):
        tool(channels=channels)(look_up.__wrapped__)  # type: ignore[attr-defined]


@pytest.mark.ledger("CACHE-06")
@pytest.mark.both_stores
async def test_a_chat_keeps_replies_in_its_store() -> None:
    script, cache = ScriptedProvider(["a language", "a snake"]), StoreCache(default_ttl_seconds=60)
    async with ChatDriver(Agent(provider=script, config=AgentConfig(cache=cache))) as chat:
        await chat.says("ana", "What is Python?")
        await chat.says("ana", "/new")
        await chat.says("ana", "What is Python?")
        assert (len(script.requests), cache.stats.hits) == (1, 1)
        await chat.clock.advance(61)
        await chat.says("ana", "/new")
        await chat.says("ana", "What is Python?")
        assert len(script.requests) == 2
        await cache.clear()
        assert (cache.stats.hits, cache.stats.misses) == (0, 0)


async def test_cache_entry_can_be_deleted() -> None:
    cache = StoreCache()
    async with ChatDriver(Agent(provider=ScriptedProvider([]), config=AgentConfig(cache=cache))):
        await cache.set("a", {"n": 1})
        await cache.set("b", [2], 60)
        assert [await cache.get(key) for key in "abc"] == [{"n": 1}, [2], None]
        assert (await cache.delete("a"), await cache.delete("a")) == (True, False)
        await cache.clear()
        assert await cache.get("b") is None


async def test_two_bots_have_a_cache_each() -> None:
    script = ScriptedProvider(["one", "two"])
    caches = [StoreCache(), StoreCache()]
    for cache in caches:
        async with ChatDriver(Agent(provider=script, config=AgentConfig(cache=cache))) as chat:
            await chat.says("ana", "What is Python?")
    assert len(script.requests) == 2


class Recorded(ChatDriver):
    """Keeps the acts of people."""

    def __init__(self, *said: str) -> None:
        super().__init__(ChannelAgent(Agent([])), provider=ScriptedProvider(list(said)))
        self.events: list[Event] = []

    async def _take(self, event: Event) -> None:
        self.events.append(event)
        await super()._take(event)

    @property
    def seen(self) -> list[str | None]:
        return [event.after for event in self.events if isinstance(event, Message)]


async def test_words_come_after_the_newest_message_of_their_place() -> None:
    async with Recorded("to Ana", "to Bob", "to the team", "to Ana again", "to the team again") as chat:
        await chat.says("ana", "one")
        await chat.says("bob", "two")
        await chat.says("ana", "three", group="team")
        await chat.says("ana", "four")
        await chat.says("bob", "five", group="team")
        assert chat.seen == [None, None, None, "1", "3"]
        assert [message.text for message in chat.messages][3:] == ["to Ana again", "to the team again"]


async def test_words_may_come_after_an_older_message() -> None:
    async with Recorded("one", "two", "three") as chat:
        for _ in range(2):
            await chat.says("ana", "go on")
        await chat.says("ana", "go on", after=1)
        assert chat.seen == [None, "1", "1"]


async def test_the_end_of_the_script_fails_the_call_that_led_there() -> None:
    async with Recorded("one") as chat:
        await chat.says("ana", "hello")
        with pytest.raises(AssertionError, match=r"the script of 1 steps is used up.*last user: 'and now\?'"):
            await chat.says("ana", "and now?")


async def test_used_up_script_of_the_bots_own_provider_fails() -> None:
    bot = ChannelAgent(Agent([], provider=ScriptedProvider([])))
    async with ChatDriver(bot) as chat:
        with pytest.raises(AssertionError, match="used up"):
            await chat.says("ana", "hello")
