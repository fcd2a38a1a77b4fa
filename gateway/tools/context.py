"""The context of a tool call: the person, the conversation, and the resources of the bot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from channels import Address, Attachment, Media, Person
from gateway.tools.errors import ToolError, ToolFailed
from gateway.tools.locks import Hold
from gateway.tools.pending_action import PendingAction
from gateway.tools.stopping import Stopping


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedAttachment(Attachment):
    """A file, location or contact in the message answered by the turn.

    `mime_type` is the type of the file's own bytes where recognizable, and `size` the real size.
    """

    path: Path | None = None
    """The kept file. None: there are no bytes, or the bytes could not be read."""
    media: Media | None = None
    """The same file by hash."""
    fault: str = ""
    """Why the file could not be read."""
    transcript: str | None = None
    """The words of a voice message. None: not transcribed."""

    async def open(self) -> BytesIO:
        """Return the file's bytes, open for reading in memory: at most 20 MB.

        Raises ToolFailed for an unreadable or missing file.
        """
        if self.path is None:
            raise ToolFailed(f"the {self.kind} cannot be read: {self.fault or 'it has no bytes'}")
        try:
            return BytesIO(await asyncio.to_thread(self.path.read_bytes))
        except OSError:
            raise ToolFailed(f"the {self.kind} is gone") from None


def _utc_now() -> datetime:
    return datetime.now(UTC)


MOST_FOLLOW_UPS_DEEP: Final = 3
"""The greatest depth of follow-ups of follow-ups."""
_LONGEST_FOLLOW_UP: Final = 4000
MOST_PROGRESS: Final = 300
"""The most characters of a call's progress."""
_LATEST_SECONDS: Final = 30 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTurn:
    """A further turn, planned by a tool."""

    text: str
    after_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """The context of a call of a tool.

    The context is passed to each parameter annotated with this class. The model never sees these parameters.
    """

    person: str
    """The person of the turn, like ``telegram:123:456``; ``app:-:ana`` from `ask_channel`."""
    address: Address | None = None
    """The address of the conversation; None from `ask_channel`."""
    conversation: str = ""
    language: str = "en"
    """The language of the conversation, a BCP 47 tag."""
    deps: Any = None
    """The value yielded by the bot's lifespan in this process."""
    idempotency_key: str = ""
    """The id of the effect, equal in every attempt: the action's id, or the turn and the call."""
    action: PendingAction | None = None
    """The confirmed action in execution; None for a call by the model itself."""
    now: Callable[[], datetime] = _utc_now
    shared: bool = field(default=False, repr=False)
    """True if other processes work on the same store. A stashed call then has to be executable there too."""
    emit: Callable[..., Any] | None = field(default=None, repr=False)
    """The function behind `emit_artifact`; None if no run collects artifacts."""
    attachments: tuple[ReceivedAttachment, ...] = ()
    """The files of the answered messages, in order; each has ``await open()``."""
    depth: int = 0
    """Number of turns of the bot to itself that led to this turn; 0 in the turn of a person."""
    plan: Callable[[PlannedTurn], None] | None = field(default=None, repr=False)
    """The function behind `follow_up`; None where no turn can be planned."""
    note: Callable[[str, str, bool], None] | None = field(default=None, repr=False)
    """The function behind the built-in tool ``remember``, with content, category and persistent. None where no facts
    about the person are kept."""
    withdraw: Callable[[str], bool] | None = field(default=None, repr=False)
    """The function behind the built-in tool ``withdraw_question``; None where the person has no open question."""
    raw_results: Callable[[str], Awaitable[Sequence[str]]] | None = field(default=None, repr=False)
    """The function behind the built-in tool ``full_result``: the results of a tool before shortening."""
    on_progress: Callable[[str], None] | None = field(default=None, repr=False)
    """The function behind `progress`; None where no progress is shown."""
    hold: Hold | None = field(default=None, repr=False)
    """Holds the lock of a tool among the processes of a store; None where this process is alone."""
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

    async def progress(self, text: str) -> None:
        """Show the person the progress of the call, for example ``3 of 10``, where the channel can.

        The first 300 characters replace the text before, at most every 2 seconds. The text is not kept. Raises
        TypeError for a value other than a text.
        """
        if not isinstance(text, str):
            raise TypeError(f"the progress should be a text, not {type(text).__name__}")
        if self.on_progress is not None:
            self.on_progress(text.strip()[:MOST_PROGRESS])

    def follow_up(self, text: str, *, after_seconds: float = 0.0) -> None:
        """Plan a further turn of this conversation: the model then reads `text` as a note of its own.

        The turn is planned with the end of this turn, or not at all. The new turn is the same person's, and comes after
        the messages waiting then. Raises ToolError outside the turn of a chat, at a depth of `MOST_FOLLOW_UPS_DEEP`,
        and for the sixth follow-up of a call; ValueError for a wrong value.
        """
        if self.plan is None:
            raise ToolError("ctx.follow_up needs the turn of a chat: in a confirmed action use Confirm(after='resume')")
        if self.depth >= MOST_FOLLOW_UPS_DEEP:
            raise ToolError(f"a follow-up of a follow-up is at most {MOST_FOLLOW_UPS_DEEP} deep")
        if not isinstance(text, str) or not 0 < len(text.strip()) <= _LONGEST_FOLLOW_UP:
            raise ValueError(f"the text of a follow-up has 1 to {_LONGEST_FOLLOW_UP} characters")
        if isinstance(after_seconds, bool) or not 0 <= after_seconds <= _LATEST_SECONDS:
            raise ValueError("after_seconds is from 0 to 30 days")
        self.plan(PlannedTurn(text=text, after_seconds=float(after_seconds)))

    def emit_artifact(self, url: str | None = None, **options: Any) -> Any:
        """Send a file to the person. The options are those of `gateway.emit_artifact`.

        Raises ToolError outside a run.
        """
        if self.emit is None:
            raise ToolError("ctx.emit_artifact was called outside a run: call it inside a tool that an agent runs")
        return self.emit(url, **options)
