"""run_tool: a call of a tool, without an agent, a chat or a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from channels import Json
from gateway.artifacts import Artifact, collecting, emit_artifact
from gateway.tools import PendingAction, Tool, ToolContext
from gateway.tools.stash import Stash, stashing


@dataclass(frozen=True, slots=True)
class ToolRun:
    """The outcome of a call of a tool."""

    value: Any
    """The return value of the tool, unchanged. For a streaming tool: all pieces as a single text."""
    artifacts: tuple[Artifact, ...] = ()
    """The files emitted by the tool, in order."""
    asked: tuple[PendingAction, ...] = ()
    """The actions stashed by the tool. In a chat the person would be asked now; no action has run."""
    stashes: tuple[Stash, ...] = ()
    """The same actions with executors: ``run.stashes[0].executor()`` runs as after a yes."""
    pieces: tuple[str, ...] = ()
    """The pieces of a streaming tool, in order."""


async def run_tool(
    tool: Tool | Callable[..., Any],
    arguments: Mapping[str, Json],
    *,
    person: str = "app:-:ana",
    deps: Any = None,
    **context: Any,
) -> ToolRun:
    """Call a tool as an agent does, with checked arguments, and collect the emitted files and stashed actions.

    A tool with ``confirm=`` runs at once, as after a yes. `context` gives more fields of the ToolContext, for example
    ``language="pt"`` or ``now=...``. Raises ToolValidationError for invalid arguments, and the errors of `Tool.run`.
    """
    called = tool if isinstance(tool, Tool) else Tool(tool)
    fields = {"idempotency_key": "test", "conversation": "test", "emit": emit_artifact, **context}
    ctx = ToolContext(person=person, deps=deps, **fields)
    pieces: list[str] = []
    with collecting() as artifacts, stashing(ctx) as stashes:
        value = await called.run(arguments, ctx, on_chunk=pieces.append)
    actions = tuple(stash.action for stash in stashes)
    return ToolRun(value, tuple(artifacts), actions, tuple(stashes), tuple(pieces))
