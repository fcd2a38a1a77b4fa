"""The tools of an agent: its own, and those that its sources list. A list is taken between turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.agent.agent_tool import AgentTool, reach_of
from gateway.providers.base import ToolSpec
from gateway.tools import Governed, Tool, ToolPolicy, ToolRegistry, ToolSource

__all__ = ["ToolSet", "Toolbox"]

log = logging.getLogger("askfirst.tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """The tools of an agent at one time."""

    tools: Mapping[str, Tool]
    reach: Mapping[str, Governed]
    """These tools and those of the agents behind them, by name, each with the policy that decides on it."""
    specs: Mapping[str, ToolSpec]
    everywhere: bool
    """True if every tool serves every channel."""
    lists: tuple[Sequence[Tool], ...] = ()
    """The lists of the sources that it was made of."""

    def on(self, channel: str) -> Mapping[str, Tool]:
        """Return the tools that may be called in the chats of this channel."""
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
        self._inner = [tool.agent for tool in own if isinstance(tool, AgentTool)]
        self._told: set[tuple[str, str]] = set()
        self._now = self._made(())

    @property
    def sources(self) -> tuple[ToolSource, ...]:
        """The sources of this agent, and of the agents behind its tools."""
        if not self._inner:
            return self._own_sources
        found = [*self._own_sources, *(source for agent in self._inner for source in agent.sources)]
        return tuple({id(each): each for each in found}.values())

    def now(self) -> Toolbox:
        """Return the tools as they are now."""
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
                if behind.get(tool.name, tool) is not tool or tools.setdefault(tool.name, tool) is not tool:
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
