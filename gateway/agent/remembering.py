"""The memory of a run without a chat: written once, at the end of the run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.agent.aside import SideProviders
from gateway.agent.config import AgentConfig
from gateway.agent.outcome import LoopOutcome
from gateway.logs import describe_error
from gateway.memory import ConversationMemory
from gateway.memory.summary import summarize
from gateway.memory.tokens import TokenCount
from gateway.observe.events import MemorySummarize, MemoryTrim, RunUsage
from gateway.observe.teller import RunTeller
from gateway.observe.usage import UsageMeter
from gateway.providers.aside import Aside
from gateway.providers.base import NO_USAGE, ModelMessage, ProviderError, Usage
from gateway.tools.stopping import Stopped, Stopping

__all__ = ["Remembering"]

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Remembering:
    """Adds the messages of a run to a memory when the run has ended, so that a run that dies leaves no half of them."""

    memory: ConversationMemory
    said: Sequence[ModelMessage]
    """The messages that the run answers."""
    config: AgentConfig
    sides: SideProviders
    meter: UsageMeter
    tokens: TokenCount
    events: RunTeller
    stopping: Stopping
    usage: Usage = NO_USAGE

    async def __call__(self, outcome: LoopOutcome) -> LoopOutcome:
        """Add the messages of this outcome. Return it with the usage of the summary, if one was made."""
        said = self.said
        if outcome.guarded is not None and said:
            said = outcome.guarded[-len(said) :]
        trim = self.memory.append([*said, *outcome.messages], self.tokens)
        for cut in trim.cuts:
            await self.events.tell(MemoryTrim, **cut._asdict())
        if self.memory.summarize_on_trim and outcome.stop_reason != "budget":
            await self._summarize()
        return replace(outcome, usage=outcome.usage + self.usage) if self.usage.total_tokens else outcome

    async def _summarize(self) -> None:
        """Sum up the dropped messages. A failure is logged, and the next run tries again."""
        memory = self.memory
        dropped, state = memory.take_dropped()
        if not dropped:
            return
        summary: str | None = None
        try:
            summary = await self.stopping.unless_set(self._summary(dropped))
        except ProviderError as error:
            log.warning("the memory could not be summarised: %s", describe_error(error))
        except Stopped:
            pass
        finally:
            is_new = memory.put_summary(summary, dropped, state)
        if self.usage.total_tokens:
            await self.events.tell(RunUsage, usage=self.usage)
        if is_new and summary is not None:
            await self.events.tell(MemorySummarize, summary=summary, messages_summarized=len(dropped))

    async def _summary(self, dropped: Sequence[ModelMessage]) -> str:
        memory, config = self.memory, self.config
        own_model = config.model if memory.summarize_provider is None else None
        aside = Aside(
            provider=await self.sides.get(memory.summarize_provider),
            model=memory.summarize_model or own_model,
            timeout_seconds=config.request_timeout_seconds,
            book=self._book,
        )
        return await summarize(aside, dropped, earlier=memory.summary or "", max_tokens=memory.summarize_max_tokens)

    def _book(self, usage: Usage) -> None:
        self.meter.add(usage)
        self.usage += usage
