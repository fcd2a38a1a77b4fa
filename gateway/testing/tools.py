"""One call of a tool, without an agent, a chat or a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from channels import Json
from gateway.artifacts import Artifact, collecting, emit_artifact
from gateway.tools import PendingAction, Tool, ToolContext
from gateway.tools.stash import Stash, stashing

__all__ = ["ToolRun", "run_tool"]


@dataclass(frozen=True, slots=True)
class ToolRun:
    """What one call of a tool came to."""

    value: Any
    """What the tool returned, as it is."""
    artifacts: tuple[Artifact, ...] = ()
    """The files it handed over, in order."""
    asked: tuple[PendingAction, ...] = ()
    """What it stashed: a person would be asked now, and nothing of it has happened."""
    stashes: tuple[Stash, ...] = ()
    """The same with their executors: ``run.stashes[0].executor()`` does what a yes would do."""


async def run_tool(
    tool: Tool | Callable[..., Any],
    arguments: Mapping[str, Json],
    *,
    person: str = "app:-:ana",
    deps: Any = None,
    **context: Any,
) -> ToolRun:
    """Call a tool as an agent would, with checked arguments, and collect its files and stashes.

    A tool with ``confirm=`` runs at once, as it does after a yes. `context` are more fields of the ToolContext that it
    is given, such as ``language="pt"`` or ``now=...``. Raises ToolValidationError for arguments that do not fit, and
    what `Tool.run` raises.
    """
    called = tool if isinstance(tool, Tool) else Tool(tool)
    fields = {"idempotency_key": "test", "conversation": "test", "emit": emit_artifact, **context}
    ctx = ToolContext(person=person, deps=deps, **fields)
    with collecting() as artifacts, stashing(ctx) as stashes:
        value = await called.run(arguments, ctx)
    return ToolRun(value, tuple(artifacts), tuple(stash.action for stash in stashes), tuple(stashes))
