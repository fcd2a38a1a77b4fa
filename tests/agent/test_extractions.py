"""Memories of a run without a chat: their values are in the memory objects."""

from __future__ import annotations

import json

import pytest

from gateway import Agent, AgentConfig, ConversationMemory, EntityMemory, KnowledgeGraphMemory, ProviderError
from gateway.testing import RecordingObserver, ScriptedProvider

FOUND = json.dumps({"entities": [{"name": "Alice", "type": "person"}]})
NONE = json.dumps({"entities": []})


@pytest.mark.ledger("CFG-22")
async def test_run_reads_the_entities_of_the_one_before() -> None:
    model, reader, watch = ScriptedProvider(["Noted.", "Alice."]), ScriptedProvider([FOUND, NONE]), RecordingObserver()
    memory = EntityMemory(provider=reader)
    agent = Agent(provider=model, config=AgentConfig(entity_memory=memory, observers=(watch,)))
    result = await agent.run("Alice called")
    assert [entity.name for entity in memory.entities] == ["Alice"]
    assert result.content == "Noted."
    await agent.run("who called?")
    assert '[Known Entities]\n- "Alice (person)"' in model.requests[-1].system
    await agent.drain()
    counts = [fields["turn_count"] for name, fields in watch.events if name == "entity_extraction"]
    assert counts == [1, 2]


async def test_agents_own_provider_extracts_without_another() -> None:
    model = ScriptedProvider(["Noted.", json.dumps({"triples": []})])
    agent = Agent(provider=model, config=AgentConfig(knowledge_graph=KnowledgeGraphMemory(), model="large"))
    await agent.run("Alice manages Alpha")
    assert model.requests[1].model == "large"
    assert json.loads(model.requests[1].messages[0].content) == [
        {"role": "user", "text": "Alice manages Alpha"},
        {"role": "assistant", "text": "Noted."},
    ]


@pytest.mark.parametrize("reply", [ProviderError("scripted", "down", retryable=False), "no JSON"])
async def test_failed_extraction_leaves_the_run_and_the_memory_alone(
    reply: str | ProviderError, caplog: pytest.LogCaptureFixture
) -> None:
    memory = EntityMemory(provider=ScriptedProvider([FOUND, reply]))
    agent = Agent(provider=ScriptedProvider(["Noted.", "Hm."]), config=AgentConfig(entity_memory=memory))
    await agent.run("Alice called")
    result = await agent.run("hello")
    assert result.content == "Hm."
    assert [entity.name for entity in memory.entities] == ["Alice"]
    assert "the entities of a run are not kept" in caplog.text


async def test_batch_reads_and_fills_no_memory() -> None:
    memory = EntityMemory(provider=ScriptedProvider([]))
    agent = Agent(provider=ScriptedProvider(["1", "2"]), config=AgentConfig(entity_memory=memory))
    results = await agent.batch(["Alice called", "Bo called"], max_concurrency=1)
    assert [result.content for result in results] == ["1", "2"]
    assert memory.entities == ()


async def test_provider_that_does_not_exist_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    memory = ConversationMemory(1, summarize_on_trim=True, summarize_provider="opnai:small")
    config = AgentConfig(entity_memory=EntityMemory(provider="opnai:small"))
    result = await Agent(provider=ScriptedProvider(["Noted."]), memory=memory, config=config).run("Alice called")
    assert result.content == "Noted."
    assert caplog.text.count("opnai") == 2
