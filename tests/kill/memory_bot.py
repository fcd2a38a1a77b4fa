"""The bot killed during the filling of a memory."""

from __future__ import annotations

from gateway import Agent, AgentConfig, ChannelAgent, EntityMemory, KnowledgeMemory

config = AgentConfig(entity_memory=EntityMemory(model="small-model"), knowledge_memory=KnowledgeMemory())
bot = ChannelAgent(Agent(provider="openai:test-model", config=config))
