"""The context of a tool call: the person, the conversation, and the resources of the bot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from channels import Address, Person
from gateway.tools.errors import ToolError
from gateway.tools.pending_action import PendingAction
from gateway.tools.stopping import Stopping

__all__ = ["ToolContext"]


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """The context of one call of a tool.

    It is passed to each parameter that is annotated with it. The model never sees that parameter.
    """

    person: str
    """The person that the turn is for, like ``telegram:123:456``; ``app:-:ana`` from `ask_channel`."""
    address: Address | None = None
    """The address of the conversation; None from `ask_channel`."""
    conversation: str = ""
    language: str = "en"
    """The language of the conversation, a BCP 47 tag."""
    deps: Any = None
    """The value that the bot's lifespan yielded in this process."""
    idempotency_key: str = ""
    """The id of the effect, equal in every attempt at it: the action's id, or the turn and the call."""
    action: PendingAction | None = None
    """The confirmed action that is being executed; None for a call that the model makes itself."""
    now: Callable[[], datetime] = _utc_now
    shared: bool = field(default=False, repr=False)
    """True if other processes work on the same store, so that a stashed call has to be executable there too."""
    emit: Callable[..., Any] | None = field(default=None, repr=False)
    """The function behind `emit_artifact`; None if no run collects artifacts."""
    raw_results: Callable[[str], Awaitable[Sequence[str]]] | None = field(default=None, repr=False)
    """The function behind the built-in tool ``full_result``: the results of a tool before they were shortened."""
    stopping: Stopping = field(default_factory=Stopping, repr=False)
    """Set when the turn is to end.

    The loop stops at the next step. A long-running tool may check `cancelled`.
    """

    @property
    def channel(self) -> str:
        """The name of the channel of the conversation; ``app`` from `ask_channel`."""
        return self.address.channel if self.address is not None else Person.parse(self.person).channel

    @property
    def cancelled(self) -> bool:
        """True if the turn is to end."""
        return self.stopping.is_set()

    def clock(self) -> datetime:
        """Return the time in UTC, by the clock of the bot."""
        return self.now()

    def emit_artifact(self, url: str | None = None, **options: Any) -> Any:
        """Send a file to the person. The options are those of `gateway.emit_artifact`.

        Raises ToolError outside a run.
        """
        if self.emit is None:
            raise ToolError("ctx.emit_artifact was called outside a run: call it inside a tool that an agent runs")
        return self.emit(url, **options)
