"""The tool that stands behind what was stashed: its executor, as a tool that always asks and takes nothing."""

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
    """Runs the executor of one action. Its arguments are shown and sealed; the executor does not take them."""

    def __init__(self, action: PendingAction, executor: Executor | None) -> None:
        """Without an `executor` it can be asked about, and not run."""
        function = _absent if executor is None else _taking_nothing(executor)
        description = "Do what was stashed."
        rule = Confirm(ttl_seconds=action.ttl_seconds, volatile=True)
        super().__init__(function, name="stashed", description=description, confirm=rule)
        self.name, self.version_hash, self.action = action.kind, ADAPTER, action
        self.runs = executor is not None

    async def run(self, args: Mapping[str, Any], ctx: ToolContext, **options: Any) -> Any:
        """Run the executor; what it returned, awaited where that is needed. Raises as `Tool.run`."""
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
