"""The memories of a run without a chat, written once at the end, and the tool to note facts about a person."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from gateway.agent.aside import SideProviders
from gateway.agent.config import AgentConfig
from gateway.agent.ports import LoopOutcome
from gateway.memory import (
    ConversationMemory,
    Extraction,
    Learned,
    NotedFact,
    Remembered,
    extract,
    summarize,
)
from gateway.memory.extraction import with_words
from gateway.memory.tokens import TokenCount
from gateway.observe.events import EntityExtraction, KgExtraction, MemorySummarize, MemoryTrim, RunUsage
from gateway.observe.teller import RunTeller
from gateway.providers.base import NO_USAGE, ModelMessage, ProviderError, Usage
from gateway.tools import Tool, ToolContext, ToolError, ToolFailed
from gateway.tools.stopping import Stopped

REMEMBER: Final = "remember"
"""The name of the built-in tool. An author's tool with this name replaces the built-in tool."""
_MOST_NOTED: Final = 5


@cache
def remember_tool() -> Tool:
    """Return the model's tool to note a fact about the person. The tool asks no person."""
    return Tool(_remember, name=REMEMBER, idempotent=True)


async def _remember(ctx: ToolContext, content: str, category: str = "general", persistent: bool = False) -> str:
    """Note a fact about the person that will be of use in later conversations. Note no secrets and no passwords.

    Args:
        content: The fact, in one sentence.
        category: A word for its kind, such as preference, contact or project.
        persistent: True for a fact that stays true, False for one of these days.
    """
    if not content.strip():
        raise ToolFailed("there is no fact to note")
    if ctx.note is None:
        raise ToolFailed("facts about a person are noted in their private chat only")
    ctx.note(content, category, persistent)
    return "noted"


def with_remember(tools: Iterable[Any]) -> list[Any]:
    """Return an agent's tools and ``remember``, unless the agent has another tool of this name."""
    given = list(tools)
    names = {getattr(each, "name", getattr(each, "__name__", "")) for each in given}
    return given if REMEMBER in names else [*given, remember_tool()]


def note_into(noted: list[NotedFact]) -> Callable[[str, str, bool], None]:
    """Return the function behind ``remember`` in one call of a tool."""

    def note(content: str, category: str, persistent: bool) -> None:
        if len(noted) >= _MOST_NOTED:
            raise ToolError(f"a call notes at most {_MOST_NOTED} facts")
        noted.append(NotedFact(content=content, category=category, persistent=persistent))

    return note


log = logging.getLogger(__name__)


def extractions_of(config: AgentConfig) -> list[Extraction]:
    """Return the memories filled by a model from the messages of a conversation."""
    memories: list[Extraction | None] = [config.entity_memory, config.knowledge_graph]
    return [memory for memory in memories if memory is not None]


def tell_learned(events: RunTeller, memory: Extraction, learned: Learned, turn: int) -> None:
    """Emit the event of a filled memory. `turn`: the number of the memory's calls to a model."""
    if memory.extracts == "entities":
        events.tell_now(EntityExtraction, entities_extracted=learned.count, turn_count=turn)
    else:
        events.tell_now(KgExtraction, triples_extracted=learned.count)


@dataclass(slots=True, kw_only=True)
class Remembering:
    """The memories of one run, written only at the end: an interrupted run leaves no partial memories.

    The values of the extractions and of the knowledge are in the memory objects, without a store.
    """

    memory: ConversationMemory | None
    extractions: Sequence[Extraction]
    config: AgentConfig
    said: Sequence[ModelMessage]
    """The messages answered by the run."""
    context: ToolContext
    sides: SideProviders
    tokens: TokenCount
    events: RunTeller
    usage: Usage = NO_USAGE

    def history(self) -> list[ModelMessage]:
        """Return the messages of the conversation before this run."""
        return [] if self.memory is None else self.memory.get_history()

    def remembered(self) -> Remembered:
        """Return the memories for the model in this run."""
        knowledge, context = self.config.knowledge_memory, self.context
        return Remembered.of(
            [*self.history(), *self.said],
            summary=(self.memory.summary if self.memory is not None else None) or "",
            extracted=[(memory, memory.alone) for memory in self.extractions],
            facts=((), ())
            if knowledge is None
            else knowledge.lines(knowledge.alone.get(context.person), context.clock()),
        )

    async def __call__(self, outcome: LoopOutcome) -> LoopOutcome:
        """Add this outcome to the memories. Return the outcome with the usage of the models' calls for the memories."""
        said = self.said
        if outcome.guarded is not None and said:
            said = outcome.guarded[-len(said) :]
        new = [*said, *outcome.messages]
        earlier, goes_on = self.history(), outcome.stop_reason != "budget"
        if self.memory is not None:
            for cut in self.memory.append(new, self.tokens).cuts:
                await self.events.tell(MemoryTrim, **cut._asdict())
            if self.memory.summarize_on_trim and goes_on:
                await self._summarize(self.memory)
        if (knowledge := self.config.knowledge_memory) is not None and outcome.noted:
            person, known = self.context.person, knowledge.alone.get(self.context.person)
            knowledge.alone[person] = knowledge.added(known, outcome.noted, self.context.clock())
        added = len(with_words(new))
        for memory in self.extractions if goes_on and added else ():
            await self._extract(memory, with_words([*earlier, *new])[-max(added, memory.relevance_window) :])
        if not self.usage.total_tokens:
            return outcome
        await self.events.tell(RunUsage, usage=self.usage)
        return replace(outcome, usage=outcome.usage + self.usage)

    async def _summarize(self, memory: ConversationMemory) -> None:
        """Sum up the dropped messages. A failure is logged, and the next run tries again."""
        dropped, state = memory.take_dropped()
        if not dropped:
            return
        summary: str | None = None
        try:
            summary = await self.context.stopping.unless_set(self._summary(memory, dropped))
        except ProviderError as error:
            log.warning("the memory could not be summarised: %s", error)
        except Stopped:
            pass
        finally:
            is_new = memory.put_summary(summary, dropped, state)
        if is_new and summary is not None:
            await self.events.tell(MemorySummarize, summary=summary, messages_summarized=len(dropped))

    async def _summary(self, memory: ConversationMemory, dropped: Sequence[ModelMessage]) -> str:
        aside = await self.sides.calls(memory.summarize_provider, memory.summarize_model, self.config, self._book)
        return await summarize(aside, dropped, earlier=memory.summary or "", max_tokens=memory.summarize_max_tokens)

    async def _extract(self, memory: Extraction, messages: Sequence[ModelMessage]) -> None:
        """Take facts out of these messages. A failure is logged, and the memory stays unchanged."""
        turn = memory.runs + 1

        async def learned() -> Learned:
            aside = await self.sides.calls(memory.provider, memory.model, self.config, self._book)
            return await extract(memory, aside, memory.alone, messages, at=self.context.clock(), turn=turn)

        try:
            found = await self.context.stopping.unless_set(learned())
        except ProviderError as error:
            log.warning("the %s of a run are not kept: %s", memory.extracts, error)
        except Stopped:
            pass
        else:
            memory.alone, memory.runs = found.value, turn
            tell_learned(self.events, memory, found, turn)

    def _book(self, usage: Usage) -> None:
        self.usage += usage
