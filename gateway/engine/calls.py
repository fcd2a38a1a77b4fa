"""Calls of the bot's own code, `ask_channel` and `decide`: one at a time a conversation, and what each gives back.

Where several processes share a store, any of them may run the turn that a call waits for. It leaves word of it with the
commit that ends the turn; what was said the call reads from the conversation's visible log, as ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self, cast
from weakref import WeakValueDictionary

from pydantic import TypeAdapter

from channels import AskfirstError
from channels.direct import DirectChannel
from gateway.agent import AgentResult, StopReason
from gateway.artifacts import Artifact
from gateway.engine.context import EngineContext
from gateway.engine.turns.batch import Batch
from gateway.providers.base import ModelMessage, ProviderError, ToolCall, Usage
from gateway.store.base import Entry, Key, Put, Transaction
from gateway.tools.pending_action import PendingAction
from gateway.turn import Outcome

__all__ = ["Call", "Calls", "TurnResult", "post_result"]


_WORD_KEPT_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """What a turn that came to its end tells its caller, besides what it says."""

    stop_reason: StopReason
    asked: tuple[str, ...] = ()
    """Action ids."""
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    tool_calls: tuple[ToolCall, ...] = ()
    messages: tuple[ModelMessage, ...] = ()

    @classmethod
    def of(cls, outcome: Outcome) -> Self:
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
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnError:
    """An error that ended a turn, for a caller in another process."""

    error: str
    """Its type."""
    provider: str | None = None
    code: str = ""
    retryable: bool = False

    @classmethod
    def by(cls, error: Exception) -> Self:
        name = type(error).__name__
        if isinstance(error, ProviderError):
            return cls(error=name, provider=error.provider, code=error.code, retryable=error.retryable)
        return cls(error=name)

    def as_error(self) -> AskfirstError:
        if self.provider is not None:
            return ProviderError(self.provider, self.code, retryable=self.retryable)
        return AskfirstError(
            f"the turn failed in another process ({self.error}): its log says where, and `askfirst dead list` has "
            "the message"
        )


def post_result(
    transaction: Transaction, context: EngineContext, conversation: str, batch: Batch, end: Outcome | Exception
) -> None:
    """Tell whoever calls for this turn how it ends, wherever they are: in the commit that ends it."""
    word = TurnError.by(end) if isinstance(end, Exception) else TurnResult.of(end)
    for message in batch.messages:
        if message.address.channel == DirectChannel.name and message.message_id is not None:
            name = _word_key(context, conversation, message.message_id).name
            transaction.puts[name] = Put(_words().dump_python(word, mode="json"), _WORD_KEPT_SECONDS)


@dataclass(slots=True, kw_only=True)
class Call:
    """Somebody waits for what a conversation comes to. The result is what it was shown since the call began."""

    context: EngineContext
    conversation: str
    after: int
    """Where its visible log ended then."""
    heard: int
    """The last line there that was heard of."""
    told: TurnResult | None = None
    error: Exception | None = None

    async def hear(self, seconds: float) -> bool:
        """Wait until something is said in the conversation, by whichever process; False: nothing was for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), contextlib.aclosing(self._lines()) as lines:
                async for line in lines:
                    self.heard = line.seq
                    return True
        return False

    def _lines(self) -> AsyncGenerator[Entry, None]:
        log = self.context.key(self.conversation, "visible")
        return cast("AsyncGenerator[Entry, None]", self.context.store.watch(log, after=self.heard))

    async def ask_around(self, message_id: str) -> None:
        """Take the word that another process left about the turn of this message."""
        key = _word_key(self.context, self.conversation, message_id)
        found = (await self.context.store.get([key]))[key]
        if found.version:
            try:
                word = _words().validate_python(found.value)
            except ValueError:
                self.error = AskfirstError("the turn has ended, but what another process says of it cannot be read")
                return
            self.told, self.error = (word, None) if isinstance(word, TurnResult) else (None, word.as_error())

    async def result(self) -> AgentResult:
        """Raises what ended the turn."""
        if self.error is not None:
            raise self.error
        context, told = self.context, self.told or TurnResult(stop_reason="decided")
        entries = await context.store.read(context.key(self.conversation, "visible"), after=self.after)
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
        return AgentResult(
            content="\n\n".join(line["text"] for line in said if line["text"]),
            artifacts=artifacts,
            pending=await self._pending(told.asked),
            stop_reason=told.stop_reason,
            usage=told.usage,
            iterations=told.iterations,
            tool_calls=told.tool_calls,
            messages=told.messages,
        )

    async def _pending(self, asked: Sequence[str]) -> tuple[PendingAction, ...]:
        if not asked:
            return ()
        actions = await self.context.actions(self.conversation)
        return tuple(action for action in map(actions.get, asked) if action is not None)


class Calls:
    """The calls of this process. Who runs a turn here, the call or the engine's loops, tells the call how it ended."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
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
            last = await self._context.store.read(self._context.key(conversation, "visible"), last=1)
            after = last[-1].seq if last else 0
            call = Call(context=self._context, conversation=conversation, after=after, heard=after)
            self._now[conversation] = call
            try:
                yield call
            finally:
                del self._now[conversation]


def _word_key(context: EngineContext, conversation: str, message_id: str) -> Key:
    return context.key(conversation, f"word/{message_id}")


@cache
def _words() -> TypeAdapter[Any]:
    return TypeAdapter(TurnResult | TurnError)
