"""Facts about a person: the persistent ones stay, the others for some days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway import Agent, AgentConfig, KnowledgeMemory, ToolContext
from gateway.agent.memory import remember_tool
from gateway.config.options import WrongOption
from gateway.memory import NotedFact
from gateway.testing import ScriptedProvider, ToolCall

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)


def fact(content: str, *, persistent: bool = False, category: str = "general") -> NotedFact:
    return NotedFact(content=content, persistent=persistent, category=category)


def test_recent_facts_are_told_for_some_days() -> None:
    memory = KnowledgeMemory(recent_days=2)
    known = memory.added(None, [fact("waits for a parcel"), fact("likes tea", persistent=True)], NOON)
    assert memory.lines(known, NOON + timedelta(days=1)) == (["likes tea"], ["waits for a parcel"])
    assert memory.lines(known, NOON + timedelta(days=2)) == (["likes tea"], [])


def test_fact_noted_again_is_the_newest_and_stays_persistent() -> None:
    memory = KnowledgeMemory(max_entries=2)
    known = memory.added(None, [fact("likes tea", persistent=True), fact("is in Porto")], NOON)
    known = memory.added(known, [fact("likes  tea"), fact("has a cat", persistent=True)], NOON)
    assert memory.lines(known, NOON) == (["likes tea", "has a cat"], [])


def test_newest_facts_are_told_within_the_limit_of_characters() -> None:
    memory = KnowledgeMemory(max_context_chars=20)
    known = memory.added(None, [fact("one 456789", persistent=True), fact("two 456789"), fact("six 456789")], NOON)
    assert memory.lines(known, NOON) == ([], ["two 456789", "six 456789"])


@pytest.mark.parametrize("option", ["recent_days", "max_context_chars", "max_entries"])
def test_limit_of_knowledge_below_one_is_refused(option: str) -> None:
    with pytest.raises(WrongOption, match=f"KnowledgeMemory: {option}"):
        KnowledgeMemory(**{option: 0})


async def test_run_without_a_chat_keeps_the_facts_of_each_person() -> None:
    noted = ToolCall("remember", {"content": "likes tea", "persistent": True})
    model = ScriptedProvider([noted, "Noted.", "Tea?", "Hello."])
    agent = Agent(provider=model, config=AgentConfig(knowledge_memory=KnowledgeMemory()))
    await agent.run("I like tea", context=ToolContext(person="app:-:ana"))
    await agent.run("hello", context=ToolContext(person="app:-:ana"))
    assert '[Long-term Memory]\n- "likes tea"' in model.requests[-1].system
    await agent.run("hello", context=ToolContext(person="app:-:ben"))
    assert model.requests[-1].system == ""


async def test_tool_of_the_same_name_stays_the_authors() -> None:
    async def remember(text: str) -> str:
        """Remember."""
        return text

    agent = Agent([remember], config=AgentConfig(knowledge_memory=KnowledgeMemory()))
    assert agent.tools["remember"].description == "Remember."


async def test_more_than_five_facts_of_one_reply_are_all_noted() -> None:
    calls = [ToolCall("remember", {"content": f"fact {number}"}) for number in range(6)]
    model = ScriptedProvider([calls, "Noted.", "Hello."])
    agent = Agent(provider=model, config=AgentConfig(knowledge_memory=KnowledgeMemory()))
    await agent.run("six facts")
    await agent.run("hello")
    assert model.requests[-1].system.count("- ") == 6


async def test_empty_fact_is_refused() -> None:
    model = ScriptedProvider([ToolCall("remember", {"content": "  "}), "Hm."])
    agent = Agent(provider=model, config=AgentConfig(knowledge_memory=KnowledgeMemory()))
    await agent.run("remember")
    assert "there is no fact to note" in model.requests[-1].messages[-1].content


def test_fact_is_noted_again_after_a_crash() -> None:
    assert remember_tool().repeatable
