"""The tool of a stashed action: its executor, as a tool without arguments that always asks."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from gateway.tools.confirm import Confirm
from gateway.tools.context import ToolContext
from gateway.tools.executor import Executor, Factory, called, check_factory, made_by
from gateway.tools.pending_action import PendingAction
from gateway.tools.stash import ADAPTER
from gateway.tools.tool import Tool

__all__ = ["Executors", "StashedTool"]

_MOST_KEPT = 5000
"""Executors that are kept for stashed actions that have not ended."""


class StashedTool(Tool):
    """A tool that runs the executor of one action. The arguments are shown and sealed, but not passed to it."""

    def __init__(self, action: PendingAction, executor: Executor | None) -> None:
        """Make the tool of an action. Without an `executor` it can ask, and cannot run."""
        function = _absent if executor is None else _taking_nothing(executor)
        description = "Do what was stashed."
        rule = Confirm(ttl_seconds=action.ttl_seconds, volatile=True)
        super().__init__(function, name="stashed", description=description, confirm=rule)
        self.name, self.version_hash, self.action = action.kind, ADAPTER, action
        self.runs = executor is not None

    async def run(self, args: Mapping[str, Any], ctx: ToolContext, **options: Any) -> Any:
        """Run the executor and return its result, awaited if necessary. Raises as `Tool.run`."""
        result = await super().run({}, ctx, **options)
        return await result if inspect.isawaitable(result) else result


class Executors:
    """The executors of stashed actions that this process has: the stashed ones, and those that factories make."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, StashedTool] = OrderedDict()
        self._factories: dict[str, Factory] = {}

    def add_factory(self, kind: str, factory: Factory) -> None:
        """Add the factory of the actions of this kind. Raises ValueError if it is async or not a function."""
        check_factory(kind, factory)
        self._factories[kind] = factory

    def keep(self, action_id: str, tool: StashedTool) -> None:
        """Keep the executor of an action until it has ended. Beyond 5,000, the oldest is dropped."""
        self._kept[action_id] = tool
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)

    def forget(self, action_id: str) -> None:
        """Let the executor of an action go that has ended."""
        self._kept.pop(action_id, None)

    def tool_of(self, action: PendingAction) -> StashedTool | None:
        """Return the tool of a stashed action. None if this process has no executor for it."""
        if (factory := self._factories.get(action.kind)) is not None:
            return StashedTool(action, made_by(factory, action))
        kept = self._kept.get(action.pending_action_id)
        return kept if kept is not None and kept.runs else None


def _absent() -> None:
    """Stand where no executor is."""


def _taking_nothing(executor: Executor) -> Callable[[], Any]:
    """Return the executor without its parameters: a lambda often has some, with defaults."""
    if inspect.iscoroutinefunction(executor):

        async def later() -> Any:
            return await executor()

        return later

    def now() -> Any:
        return called(executor)

    return now
