"""The hand-over of a task to another agent, as a part of the turn that hands it over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from gateway.agent.agent_tool import AgentTool
from gateway.agent.confirming import OnConfirm
from gateway.agent.journal import CallResult, Progress
from gateway.agent.outcome import LoopOutcome
from gateway.agent.ports import LoopPorts
from gateway.agent.unattended import Unattended
from gateway.observe.results import StopReason
from gateway.observe.runs import run_id_of
from gateway.observe.teller import RunTeller, begin_run
from gateway.providers.base import ModelMessage
from gateway.tools import ToolContext, serialise

__all__ = ["HandOver"]

_ANSWERED: Final[frozenset[StopReason]] = frozenset({"answered", "terminal_tool", "stop_condition"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Hands tasks of one turn over to other agents.

    The inner run has a run id of its own, made of the outer one and the call, and the outer one as its parent. It asks
    the person of the outer turn, and its steps stand in the outer journal under the call's key.
    """

    progress: Progress
    on_confirm: OnConfirm | Unattended
    events: RunTeller
    ports: LoopPorts

    @property
    def asking(self) -> RunTeller:
        """The run that asks people: this one, or the one that handed its task over."""
        return self.ports.asking or self.events

    async def __call__(self, tool: AgentTool, key: str, task: str, context: ToolContext) -> CallResult:
        """Return the other agent's answer as the result of the call. Raises ProviderError in a chat."""
        outer = self.events.run_id
        events = begin_run(self.events.teller, run_id_of(outer, key), clock=context.clock, parent_run_id=outer)
        ports = replace(
            self.ports,
            journal=self.progress.inside(key),
            on_text=None,
            live=None,
            at_end=None,
            events=events,
            asking=self.asking,
            remembered=None,
        )
        message = ModelMessage(role="user", content=task)
        return _result(
            await tool.agent.turn([message], context=context, on_confirm=self.on_confirm, ports=ports), tool.name
        )


def _result(outcome: LoopOutcome, name: str) -> CallResult:
    """Return an inner outcome as the result of the outer call."""
    done = CallResult(
        text=outcome.content,
        artifacts=outcome.artifacts,
        usage=outcome.usage,
        follow_ups=outcome.follow_ups,
        noted=outcome.noted,
    )
    if outcome.asked:
        told = "\n".join([*filter(None, [outcome.content]), *(serialise(each.confirmation) for each in outcome.asked)])
        return replace(done, text=told, asked=outcome.asked)
    if outcome.stop_reason in _ANSWERED:
        return done
    reason = outcome.error or outcome.stop_reason
    return replace(done, text=f"Tool {name!r}: the other agent ended without an answer ({reason}).", failed=True)
