"""Calls of the bot's own code, `ask_channel` and `decide`: one at a time a conversation, and what each gives back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakValueDictionary

from gateway.agent import AgentResult
from gateway.artifacts import Artifact
from gateway.channel_agent import Outcome
from gateway.engine.shared import Shared
from gateway.providers.base import Usage
from gateway.tools.action import PendingAction

__all__ = ["Call", "Calls"]


@dataclass(slots=True, kw_only=True)
class Call:
    """Somebody waits for what a conversation comes to. The result is what it was shown since the call began."""

    shared: Shared
    conversation: str
    after: int
    """Where its visible log ended then."""
    awaits_turn: bool = False
    """A message was put into the mailbox, and no turn has taken it yet."""
    outcome: Outcome | None = None
    error: Exception | None = None

    async def result(self) -> AgentResult:
        """Raises what ended the turn."""
        if self.error is not None:
            raise self.error
        shared, outcome = self.shared, self.outcome
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
            pending=await self._pending(),
            stop_reason=outcome.stop_reason if outcome is not None else "decided",
            usage=loop.usage if loop is not None else Usage(),
            iterations=loop.iterations if loop is not None else 0,
            tool_calls=loop.tool_calls if loop is not None else (),
            messages=loop.messages if loop is not None else (),
        )

    async def _pending(self) -> tuple[PendingAction, ...]:
        if self.outcome is None or not self.outcome.asked:
            return ()
        desk = await self.shared.desk(self.conversation, "en")
        found = (desk.action(action.pending_action_id) for action in self.outcome.asked)
        return tuple(action for action in found if action is not None)


class Calls:
    """The calls of this process. Whoever runs a turn, the call or the engine's loops, tells the call how it ended."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._now: dict[str, Call] = {}

    def get(self, conversation: str) -> Call | None:
        """The call that waits for this conversation now."""
        return self._now.get(conversation)

    @contextlib.asynccontextmanager
    async def begin(self, conversation: str) -> AsyncIterator[Call]:
        """A call on this conversation, once those before it are done."""
        lock = self._locks.setdefault(conversation, asyncio.Lock())
        async with lock:
            last = await self._shared.store.read(self._shared.key(conversation, "visible"), last=1)
            call = Call(shared=self._shared, conversation=conversation, after=last[-1].seq if last else 0)
            self._now[conversation] = call
            try:
                yield call
            finally:
                del self._now[conversation]
