"""A tool that hands a task over to another agent of the same bot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from gateway.cache import Cache
from gateway.observe.results import AgentResult
from gateway.tools import Governed, Tool, ToolContext, ToolPolicy, ToolSource, ToolValidationError
from gateway.tools.errors import Problem

if TYPE_CHECKING:
    from gateway.agent.confirming import OnConfirm
    from gateway.agent.outcome import LoopOutcome
    from gateway.agent.ports import LoopPorts
    from gateway.agent.unattended import Unattended
    from gateway.providers.base import ModelMessage, Provider

__all__ = ["AgentTool", "InnerAgent", "reach_of"]


class InnerAgent(Protocol):
    """The agent behind a tool."""

    @property
    def reach(self) -> Mapping[str, Governed]: ...

    @property
    def sources(self) -> tuple[ToolSource, ...]: ...

    def caches(self) -> list[Cache]: ...

    def providers(self) -> list[Provider]: ...

    async def run(self, message: str, *, context: ToolContext | None = None) -> AgentResult: ...

    async def turn(
        self,
        messages: Sequence[ModelMessage],
        *,
        context: ToolContext,
        on_confirm: OnConfirm | Unattended,
        ports: LoopPorts,
    ) -> LoopOutcome: ...


class AgentTool(Tool):
    """A tool whose calls are runs of another agent.

    In a chat its tools that ask are asked about in that chat, and its steps stand in the journal of the turn: a
    take-over repeats none of them. Called alone, its tools that ask do not run.
    """

    def __init__(self, agent: InnerAgent, *, name: str, description: str) -> None:
        """Raises ToolValidationError for a name or a description that no model takes."""

        async def hand_over(task: str, ctx: ToolContext) -> str:
            return (await agent.run(task, context=ctx)).content

        told = "What it has to do, with everything that it needs to know: it does not see this conversation."
        super().__init__(
            hand_over,
            name=name,
            description=description,
            idempotent=True,
            param_metadata={"task": {"description": told}},
        )
        self.agent = agent


def reach_of(tools: Mapping[str, Tool], policy: ToolPolicy | None) -> tuple[dict[str, Governed], list[tuple[str, str]]]:
    """Return the tools of an agent and of the agents behind them, by name, each with the policy that decides on it.

    Also returns the listed tools of sources that are left out, because an action names its tool: each with the name of
    the agent's tool. Raises ToolValidationError for two other tools of one name.
    """
    found = {name: Governed(tool, tool.under(policy)) for name, tool in tools.items()}
    taken: list[tuple[str, str]] = []
    for outer in tools.values():
        if not isinstance(outer, AgentTool):
            continue
        for name, inner in outer.agent.reach.items():
            other = found.setdefault(name, inner).tool
            if other is inner.tool:
                continue
            if not (other.origin or inner.tool.origin):
                issue = f"the agent behind {outer.name!r} has another tool of this name"
                raise ToolValidationError(name, Problem("", issue, "Give one of them name="))
            taken.append((name, outer.name))
    return found, taken
