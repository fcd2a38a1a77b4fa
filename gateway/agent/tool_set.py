"""The tools of an agent: own tools, tools of inner agents, and the tools listed by sources between turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gateway.agent.withdrawing import WITHDRAW_QUESTION, refuse_reserved
from gateway.cache import Cache
from gateway.observe.results import AgentResult
from gateway.providers.base import ToolSpec
from gateway.tools import Governed, Tool, ToolContext, ToolPolicy, ToolRegistry, ToolSource, ToolValidationError
from gateway.tools.errors import Problem

if TYPE_CHECKING:
    from gateway.agent.confirming import OnConfirm, Unattended
    from gateway.agent.ports import LoopOutcome, LoopPorts
    from gateway.providers.base import ModelMessage, Provider


class InnerAgent(Protocol):
    """The agent behind a tool."""

    @property
    def reach(self) -> Mapping[str, Governed]: ...

    @property
    def sources(self) -> tuple[ToolSource, ...]: ...

    def caches(self) -> list[Cache]: ...

    def providers(self) -> list[Provider]: ...

    async def run(self, message: str, *, context: ToolContext | None = None) -> AgentResult: ...

    async def answer(
        self,
        messages: Sequence[ModelMessage],
        *,
        context: ToolContext,
        on_confirm: OnConfirm | Unattended,
        ports: LoopPorts,
    ) -> LoopOutcome: ...


class AgentTool(Tool):
    """A tool for runs of another agent.

    In a chat the tools of the other agent request confirmations in the same chat. The steps stand in the journal of the
    turn: a take-over repeats no step. Called alone, tools run only with the approval of the agent's `confirm_action`.
    """

    def __init__(self, agent: InnerAgent, *, name: str, description: str) -> None:
        """Raises ToolValidationError for a name or a description not accepted by models."""

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
    """Return the tools of an agent and of the agents behind the tools, by name, each with the deciding policy.

    Also returns the inner tools left out after a name clash with a tool of a source, because an action refers to a tool
    by name: each with the name of the agent's tool. Raises ToolValidationError for two other tools of one name.
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


log = logging.getLogger("askfirst.tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """The tools of an agent at one time."""

    tools: Mapping[str, Tool]
    reach: Mapping[str, Governed]
    """These tools and the tools of the agents behind them, by name, each with the deciding policy."""
    specs: Mapping[str, ToolSpec]
    everywhere: bool
    """True if every tool serves every channel."""
    lists: tuple[Sequence[Tool], ...] = ()
    """The lists of the sources behind `tools`."""

    def on(self, channel: str) -> Mapping[str, Tool]:
        """Return the tools allowed in the chats of this channel."""
        if self.everywhere:
            return self.tools
        return {name: tool for name, tool in self.tools.items() if tool.serves(channel)}


class ToolSet:
    """The tools of an agent over time."""

    def __init__(self, given: Iterable[Tool | Callable[..., Any] | ToolSource], policy: ToolPolicy | None) -> None:
        """Raises ToolValidationError when two tools have the same name."""
        self._policy = policy
        sources: list[ToolSource] = []
        tools: list[Tool | Callable[..., Any]] = []
        for each in given:
            if isinstance(each, Tool) or not isinstance(each, ToolSource):
                tools.append(each)
            else:
                sources.append(each)
        own, self._own_sources = ToolRegistry(tools).all(), tuple(sources)
        self._own = {tool.name: tool for tool in own}
        for name in self._own:
            refuse_reserved(name)
        self._inner = [tool.agent for tool in own if isinstance(tool, AgentTool)]
        self._told: set[tuple[str, str]] = set()
        self._now = self._made(())

    @property
    def sources(self) -> tuple[ToolSource, ...]:
        """The sources of this agent, and of the agents behind the tools."""
        if not self._inner:
            return self._own_sources
        found = [*self._own_sources, *(source for agent in self._inner for source in agent.sources)]
        return tuple({id(each): each for each in found}.values())

    def now(self) -> Toolbox:
        """Return the current tools."""
        sources = self.sources
        if not sources:
            return self._now
        lists = tuple([source.listed() for source in sources])
        if len(lists) != len(self._now.lists) or any(
            new is not old for new, old in zip(lists, self._now.lists, strict=True)
        ):
            self._now = self._made(lists)
        return self._now

    def extended(self, more: Sequence[ToolSource]) -> ToolSet:
        """Return a set with more sources."""
        return ToolSet([*self._own.values(), *self._own_sources, *more], self._policy)

    async def refresh(self) -> None:
        """Bring the lists of the sources up to date."""
        if sources := self.sources:
            await asyncio.gather(*(source.refresh() for source in sources))

    async def close(self) -> None:
        """Close the sources."""
        if sources := self.sources:
            await asyncio.gather(*(source.close() for source in sources))

    def _made(self, lists: tuple[Sequence[Tool], ...]) -> Toolbox:
        tools, behind = (
            dict(self._own),
            {name: each.tool for agent in self._inner for name, each in agent.reach.items()},
        )
        for source in self._own_sources:
            for tool in source.listed():
                if (
                    tool.name == WITHDRAW_QUESTION
                    or behind.get(tool.name, tool) is not tool
                    or tools.setdefault(tool.name, tool) is not tool
                ):
                    self._tell_taken(tool.name, source.label)
        reach, taken = reach_of(tools, self._policy)
        for name, outer in taken:
            self._tell_taken(name, f"the agent behind {outer!r}")
        return Toolbox(
            tools=tools,
            reach=reach,
            specs={name: ToolSpec(**tool.schema()) for name, tool in tools.items()},
            everywhere=all(tool.channels is None for tool in tools.values()),
            lists=lists,
        )

    def _tell_taken(self, name: str, label: str) -> None:
        if (name, label) not in self._told:
            self._told.add((name, label))
            log.error(
                "the tool %r of %s is left out: another tool has this name, and it stays. Give the source a prefix=",
                name,
                label,
            )
