"""What a call of `ask_channel` or `decide` gives back: what the conversation was shown since the call began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, cast

from gateway.agent import AgentResult
from gateway.artifacts import Artifact
from gateway.channel_agent import Outcome
from gateway.engine.shared import Shared
from gateway.providers.base import Usage
from gateway.tools.action import PendingAction

__all__ = ["Collected"]


@dataclass(frozen=True, slots=True)
class Collected:
    """A conversation's visible log, from a moment on."""

    shared: Shared
    conversation: str
    after: int

    @classmethod
    async def begin(cls, shared: Shared, conversation: str) -> Self:
        last = await shared.store.read(shared.key(conversation, "visible"), last=1)
        return cls(shared, conversation, last[-1].seq if last else 0)

    async def result(self, outcome: Outcome | None) -> AgentResult:
        """Everything that was said since, as one result."""
        shared = self.shared
        entries = await shared.store.read(shared.key(self.conversation, "visible"), after=self.after)
        said = [cast("dict[str, Any]", entry.value) for entry in entries]
        said = [line for line in said if line["from"] == "bot" and line["edits"] is None]
        artifacts = tuple(
            Artifact(
                sha256=item["sha256"],
                mime_type=item["mime_type"],
                filename=item["filename"],
                size=item["size"],
                role=item["role"],
            )
            for line in said
            for item in line["media"]
        )
        loop = outcome.loop if outcome is not None else None
        return AgentResult(
            content="\n\n".join(line["text"] for line in said if line["text"]),
            artifacts=artifacts,
            pending=await self._pending(outcome),
            stop_reason=outcome.stop_reason if outcome is not None else "decided",
            usage=loop.usage if loop is not None else Usage(),
            iterations=loop.iterations if loop is not None else 0,
            tool_calls=loop.tool_calls if loop is not None else (),
            messages=loop.messages if loop is not None else (),
        )

    async def _pending(self, outcome: Outcome | None) -> tuple[PendingAction, ...]:
        if outcome is None or not outcome.asked:
            return ()
        desk = await self.shared.desk(self.conversation, "en")
        found = (desk.action(action.pending_action_id) for action in outcome.asked)
        return tuple(action for action in found if action is not None)
