"""`ask_channel` keeps people apart: no two are one, and none gets into another's own conversation."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gateway import Agent, ChannelAgent, ToolContext
from gateway.channel_agent import NotAllowed
from gateway.testing import ScriptedProvider
from tests.engine.bots import Invoices
from tests.engine.rig import user_lines

CALLERS: list[dict[str, Any]] = [
    {"user_id": "c", "channel_id": "a:b"},
    {"user_id": "b:c", "channel_id": "a"},
    {"user_id": "c", "channel_id": "a%3Ab"},
    {"user_id": "bob"},
    {"user_id": "bob/7"},
    {"user_id": "bob%2F7"},
    *({"user_id": "eve", "conversation_id": conversation_id} for conversation_id in (
        "user:bob", "%user:bob", "%%user:bob", "user:bob/7", "bob/7", "bob%2F7", "bob/", "bob%2F", "/bob", "user%3Abob",
    )),
    {"user_id": "eve", "channel_id": "-:user", "conversation_id": "bob"},
    {"user_id": "eve", "channel_id": "a", "conversation_id": "b:user:c"},
]  # fmt: skip


def showing() -> ChannelAgent:
    bot = ChannelAgent(Agent(provider=ScriptedProvider([])))

    @bot.command("where")
    async def where(ctx: ToolContext, text: str) -> str:
        """Say where this is."""
        return f"{ctx.conversation} {ctx.person}"

    return bot


async def test_no_two_callers_share_a_conversation_they_did_not_name() -> None:
    async with showing() as bot:
        said = [(await bot.ask_channel(message="/where", **caller)).content.split() for caller in CALLERS]
    for (one, (place, _)), (other, (other_place, _)) in itertools.combinations(zip(CALLERS, said, strict=True), 2):
        assert place != other_place, f"{one} and {other}"


async def test_no_two_users_of_two_channels_are_one_person() -> None:
    async with showing() as bot:
        users = [caller for caller in CALLERS if caller["user_id"] != "eve"]
        people = [(await bot.ask_channel(message="/where", **caller)).content.split()[1] for caller in users]
    assert len(set(people)) == len(users)


@pytest.mark.parametrize(
    ("caller", "conversation", "person"),
    [
        ({"user_id": "ana"}, "app:-:user:ana", "app:-:ana"),
        ({"user_id": "auth0|5", "channel_id": "crm"}, "app:crm:user:auth0|5", "app:crm:auth0|5"),
        ({"user_id": "google/5"}, "app:-:user:google/5", "app:-:google/5"),
        ({"user_id": "ana", "conversation_id": "tickets/17"}, "app:-:tickets/17", "app:-:ana"),
        ({"user_id": "ana", "conversation_id": "case:5"}, "app:-:case:5", "app:-:ana"),
        ({"user_id": "ana", "channel_id": "eu/crm", "conversation_id": "100%"}, "app:eu/crm:100%", "app:eu/crm:ana"),
    ],
    ids=str,
)
async def test_stored_conversations_keep_their_keys(caller: dict[str, Any], conversation: str, person: str) -> None:
    async with showing() as bot:
        result = await bot.ask_channel(message="/where", **caller)
    assert result.content == f"agent/{conversation} {person}"


@pytest.mark.parametrize("empty", ["user_id", "channel_id", "conversation_id"])
async def test_an_empty_id_is_refused_and_shared_by_nobody(empty: str) -> None:
    caller: dict[str, Any] = {"user_id": "ana", empty: ""}
    async with showing() as bot:
        with pytest.raises(ValueError, match=empty):
            await bot.ask_channel(message="/where", **caller)


async def test_another_persons_own_conversation_is_not_named() -> None:
    script = ScriptedProvider(["Noted.", "I know of none."])
    async with ChannelAgent(Agent(provider=script)) as bot:
        await bot.ask_channel("bob", "my PIN is 4711")
        await bot.ask_channel("eve", "what is the PIN?", conversation_id="user:bob")
    assert user_lines(script) == ["what is the PIN?"]


@pytest.mark.parametrize("conversation_id", ["tickets/17", "tickets/", "user:ana", "a:b/c"])
async def test_a_yes_counts_wherever_it_was_asked(conversation_id: str) -> None:
    invoices = Invoices()
    async with invoices.bot() as bot:
        await bot.ask_channel("ana", "delete INV-1", conversation_id=conversation_id)
        done = await bot.ask_channel("ana", "yes", conversation_id=conversation_id)
    assert (done.content, invoices.deleted) == ("Invoice INV-1 is deleted.", ["INV-1"])


@pytest.mark.parametrize("answer", ["a yes", "a code", "an id"])
async def test_a_person_of_another_channel_confirms_nothing(answer: str) -> None:
    invoices = Invoices()
    async with invoices.bot() as bot:
        (action,) = (await bot.ask_channel("c", "delete INV-1", channel_id="a:b")).pending
        if answer == "a yes":
            await bot.ask_channel("b:c", "yes", channel_id="a")
        else:
            which = {"code": action.code} if answer == "a code" else {"action_id": action.pending_action_id}
            with pytest.raises(NotAllowed):
                await bot.decide("app:a:b:c", "confirm", **which)
        assert invoices.deleted == []
        await bot.decide("app:a%3ab:c", "confirm", action_id=action.pending_action_id)
        assert invoices.deleted == ["INV-1"]
