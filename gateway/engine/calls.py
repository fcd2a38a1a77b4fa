"""Calls of the bot's own code, `ask_channel` and `decide`: serialised for each conversation.

With a shared store, any process may run the turn of a call. The final commit of the turn stores the result for the
caller. The bot's replies are read from the conversation's visible log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self
from weakref import WeakValueDictionary

from pydantic import TypeAdapter

from channels import AskfirstError
from channels.direct import DirectChannel
from gateway.artifacts import Artifact
from gateway.bot.turn import Outcome
from gateway.engine.context import EngineContext
from gateway.engine.turns.feature import Ending, TurnFeature
from gateway.observe.results import NO_TRACE, AgentResult, RunRecord, StopReason, StoredTrace
from gateway.observe.trace import AgentTrace
from gateway.providers.base import ModelMessage, ProviderError, ToolCall, Usage
from gateway.store.transaction import Put
from gateway.store.types import Key, LogEntry
from gateway.stored import keys
from gateway.tools.pending_action import PendingAction

_RESULT_SECONDS = 600.0
"""The time for which a turn's result is kept for the caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The result of a turn for the caller, without the replies."""

    stop_reason: StopReason
    asked: tuple[str, ...] = ()
    """Action ids."""
    run_id: str = ""
    """The id of the run, empty if the model did not run. The trace of the run is a separate record."""
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    tool_calls: tuple[ToolCall, ...] = ()
    messages: tuple[ModelMessage, ...] = ()

    @classmethod
    def of(cls, outcome: Outcome) -> Self:
        """Return the result of a turn with this outcome."""
        asked, loop = tuple(action.pending_action_id for action in outcome.asked), outcome.loop
        if loop is None:
            return cls(stop_reason=outcome.stop_reason, asked=asked)
        return cls(
            stop_reason=outcome.stop_reason,
            asked=asked,
            usage=loop.usage,
            iterations=loop.iterations,
            tool_calls=loop.tool_calls,
            messages=loop.messages,
            run_id=loop.record.run_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnError:
    """The error of a failed turn, for a caller in another process."""

    error: str
    """The name of the error's type."""
    provider: str | None = None
    code: str = ""
    retryable: bool = False

    @classmethod
    def by(cls, error: Exception) -> Self:
        """Return the stored form of an error, without the text: the text may contain a person's words."""
        name = type(error).__name__
        if isinstance(error, ProviderError):
            return cls(error=name, provider=error.provider, code=error.code, retryable=error.retryable)
        return cls(error=name)

    def as_error(self) -> AskfirstError:
        """Return the exception to raise in the caller."""
        if self.provider is not None:
            return ProviderError(self.provider, self.code, retryable=self.retryable)
        return AskfirstError(
            f"the turn failed in another process ({self.error}): its log says where, and `askfirst dead list` has "
            "the message"
        )


class Results(TurnFeature):
    """Stores the result or the error of a turn, for waiting calls."""

    async def contribute(self, ending: Ending) -> None:
        if ending.error is not None:
            result: TurnResult | TurnError = TurnError.by(ending.error)
        elif ending.outcome is not None:
            result = TurnResult.of(ending.outcome)
        else:
            return
        for message in ending.turn.batch.messages:
            if message.address.channel == DirectChannel.name and message.message_id is not None:
                name = _result_key(self.context, ending.turn.conversation, message.message_id).name
                ending.transaction.puts[name] = Put(_results().dump_python(result, mode="json"), _RESULT_SECONDS)


@dataclass(slots=True, kw_only=True)
class Call:
    """A call waiting for the work of a conversation. The result has the replies since the start of the call."""

    context: EngineContext
    conversation: str
    after: int
    """The last line of the conversation's visible log at the start of the call."""
    last_line: int
    """The last line of the visible log seen by the call."""
    turn_result: TurnResult | None = None
    record: RunRecord | None = None
    """The run record of a turn in this process. The trace of any other turn is read from the store."""
    error: Exception | None = None

    async def wait_for_line(self, seconds: float) -> bool:
        """Wait for the next line of the visible log, from any process. Return False after this time without a line."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), contextlib.aclosing(self._lines()) as lines:
                async for line in lines:
                    self.last_line = line.seq
                    return True
        return False

    def _lines(self) -> AsyncGenerator[LogEntry, None]:
        log = keys.key(self.context.store, self.conversation, keys.visible_log)
        return self.context.store.watch(log, after=self.last_line)

    async def read_posted_result(self, message_id: str) -> None:
        """Read the result or error of this message's turn, if stored by another process."""
        key = _result_key(self.context, self.conversation, message_id)
        record = (await self.context.store.get([key]))[key]
        if record.version:
            try:
                posted = _results().validate_python(record.value)
            except ValueError:
                self.error = AskfirstError("the turn has ended, but what another process says of it cannot be read")
                return
            if isinstance(posted, TurnResult):
                self.turn_result, self.error = posted, None
            else:
                self.turn_result, self.error = None, posted.as_error()

    async def result(self) -> AgentResult:
        """Return the result of the call. Raises the error of a failed turn."""
        if self.error is not None:
            raise self.error
        context, ended = self.context, self.turn_result or TurnResult(stop_reason="decided")
        log = keys.key(context.store, self.conversation, keys.visible_log)
        texts: list[str] = []
        artifacts: list[Artifact] = []
        for entry in await context.store.read(log, after=self.after):
            match entry.value:
                case {"from": "bot", "edits": None, "text": text, "media": list(media)}:
                    texts += [text] if isinstance(text, str) else []
                    artifacts += map(_artifact, media)
        return AgentResult(
            content="\n\n".join(filter(None, texts)),
            artifacts=tuple(artifacts),
            pending=await self._pending(ended.asked),
            stop_reason=ended.stop_reason,
            usage=ended.usage,
            iterations=ended.iterations,
            tool_calls=ended.tool_calls,
            messages=ended.messages,
            record=self.record or StoredTrace(await self._trace(ended.run_id)),
        )

    async def _trace(self, run_id: str) -> AgentTrace:
        """Return the stored trace of a run; an empty trace if none is kept or readable."""
        key = keys.key(self.context.store, self.conversation, keys.trace, run_id)
        record = (await self.context.store.get([key]))[key] if run_id else None
        if record is None or not isinstance(record.value, Mapping):
            return NO_TRACE
        try:
            return AgentTrace.from_dict(record.value)
        except ValueError:  # a later release wrote it
            return NO_TRACE

    async def _pending(self, asked: Sequence[str]) -> tuple[PendingAction, ...]:
        if not asked:
            return ()
        actions = await self.context.actions(self.conversation)
        return tuple(action for action in map(actions.get, asked) if action is not None)


class Calls:
    """The calls of this process. A turn in this process passes the result to the call directly."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._now: dict[str, Call] = {}

    def get(self, conversation: str) -> Call | None:
        """Return the current call of this conversation, or None."""
        return self._now.get(conversation)

    @contextlib.asynccontextmanager
    async def begin(self, conversation: str) -> AsyncIterator[Call]:
        """Begin a call on this conversation, after the end of all earlier calls."""
        lock = self._locks.setdefault(conversation, asyncio.Lock())
        async with lock:
            log = keys.key(self._context.store, conversation, keys.visible_log)
            last = await self._context.store.read(log, last=1)
            after = last[-1].seq if last else 0
            call = Call(context=self._context, conversation=conversation, after=after, last_line=after)
            self._now[conversation] = call
            try:
                yield call
            finally:
                del self._now[conversation]


def _result_key(context: EngineContext, conversation: str, message_id: str) -> Key:
    return keys.key(context.store, conversation, keys.turn_result, message_id)


def _artifact(stored: Any) -> Artifact:
    """Return the file in a line of the visible log."""
    return Artifact(
        sha256=stored["sha256"],
        mime_type=stored["mime_type"],
        filename=stored["filename"],
        size=stored["size"],
        role=stored["role"],
    )


@cache
def _results() -> TypeAdapter[Any]:
    return TypeAdapter(TurnResult | TurnError)
