"""The tool of a stashed action: its executor, as a tool without arguments that always asks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from gateway.tools.confirm import Confirm
from gateway.tools.context import ToolContext
from gateway.tools.executor import Executor, called
from gateway.tools.pending_action import PendingAction
from gateway.tools.stash import ADAPTER
from gateway.tools.tool import Tool

__all__ = ["StashedTool"]


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
