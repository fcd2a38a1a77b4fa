"""The coherence checks of one run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from channels import Json
from gateway.agent.coherence import COHERENCE, MOST_TOKENS, SYSTEM, CoherenceConfig, coherence_prompt, coherent
from gateway.agent.spec import AgentSpec
from gateway.logs import describe_error
from gateway.observe.events import GuardrailTriggered
from gateway.observe.teller import RunTeller
from gateway.providers.aside import Aside
from gateway.providers.base import ProviderError, Usage
from gateway.tools import Tool
from gateway.tools.stopping import Stopped, Stopping

__all__ = ["CoherenceCheck"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoherenceCheck:
    """A checker of the tool calls of one run, by a small call to a model for each."""

    config: CoherenceConfig
    spec: AgentSpec
    asked: str
    """The person's message."""
    events: RunTeller
    stopping: Stopping
    book: Callable[[Usage], None]

    async def fits(self, tool: Tool, args: Mapping[str, Json], *, asks: bool) -> bool:
        """Return True if the call fits what the person asked for.

        Without a clear answer a call that asks does not fit, and any other does unless `fail_closed`.
        """
        answer: bool | None = None
        fault = "no clear answer"
        try:
            answer = coherent(await self.stopping.unless_set(self._ask(tool, args)))
        except ProviderError as error:
            fault = describe_error(error)
        except Stopped:
            return False
        if answer is None:
            log.warning("the coherence check of a call of %s failed: %s", tool.name, fault)
            answer = not (asks or self.config.fail_closed)
            await self._tell("warn" if answer else "block", "the check failed")
        elif not answer:
            await self._tell("block", f"the call of {tool.name} does not fit")
        return answer

    async def _ask(self, tool: Tool, args: Mapping[str, Json]) -> str:
        config = self.config
        aside = Aside(
            provider=await self.spec.sides.get(config.provider),
            model=config.model,
            timeout_seconds=self.spec.config.request_timeout_seconds,
            book=self.book,
        )
        prompt = coherence_prompt(self.asked, tool.name, tool.description, args)
        return (await aside.ask(prompt, system=SYSTEM, max_tokens=MOST_TOKENS)).content

    async def _tell(self, action: str, detail: str) -> None:
        await self.events.tell(
            GuardrailTriggered, stage="tool_args", guardrail_name=COHERENCE, action=action, detail=detail
        )
