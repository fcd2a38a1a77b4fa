"""What a tool is told about the turn it runs in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from channels import Address, Person
from gateway.tools.errors import ToolError
from gateway.tools.pending_action import PendingAction

__all__ = ["ToolContext"]


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """Who is asking, where, and with what: filled in for a parameter annotated with it, and never seen by the model."""

    person: str
    """As written everywhere: ``telegram:123:456``; ``app:-:ana`` from `ask_channel`."""
    address: Address | None = None
    """Where the conversation is; None from `ask_channel`."""
    conversation: str = ""
    language: str = "en"
    """BCP 47: the conversation's."""
    deps: Any = None
    """What the bot's lifespan yielded in this process."""
    idempotency_key: str = ""
    """The same for every attempt at the same effect: the action's id, else turn and call."""
    action: PendingAction | None = None
    """The confirmed action that is being executed; None for a call the model makes itself."""
    now: Callable[[], datetime] = _utc_now
    shared: bool = field(default=False, repr=False)
    """Whether other processes work on the same store: what is stashed has to be understood there too."""
    emit: Callable[..., Any] | None = field(default=None, repr=False)
    """What `emit_artifact` calls; None where no run collects artifacts."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    """Set when the turn is to end: the loop stops at the next step, and a long tool may look at `cancelled`."""

    @property
    def channel(self) -> str:
        """The name of the channel whose chat this is; ``app`` from `ask_channel`."""
        return self.address.channel if self.address is not None else Person.parse(self.person).channel

    @property
    def cancelled(self) -> bool:
        """Whether the turn is to end."""
        return self.stopping.is_set()

    def clock(self) -> datetime:
        """Now, in UTC, by the clock the bot runs on."""
        return self.now()

    def emit_artifact(self, url: str | None = None, **options: Any) -> Any:
        """Hand a file to the person; the options are those of `gateway.emit_artifact`. Raises outside a run."""
        if self.emit is None:
            raise ToolError("ctx.emit_artifact was called outside a run: call it inside a tool that an agent runs")
        return self.emit(url, **options)
