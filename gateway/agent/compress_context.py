"""The compression of the older messages of a call, by a small call to the model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.agent.spec import AgentSpec
from gateway.agent.window import fitted
from gateway.memory.context import quoted
from gateway.memory.summary import summarize
from gateway.memory.tokens import size
from gateway.memory.window import may_begin
from gateway.observe.events import PromptCompressed, RunUsage
from gateway.observe.teller import RunTeller
from gateway.providers.aside import Aside
from gateway.providers.base import NO_USAGE, ModelMessage, ProviderError, Request, Usage
from gateway.tools.stopping import Stopping

__all__ = ["ContextCompressor"]

log = logging.getLogger(__name__)

_MOST_TOKENS: Final = 500
_LENGTH: Final = "at most 10 sentences"


@dataclass(slots=True, kw_only=True)
class ContextCompressor:
    """A compressor of the conversation of one run. Its later calls have the same messages and more behind them."""

    spec: AgentSpec
    events: RunTeller
    stopping: Stopping
    book: Callable[[Usage], None]
    compressed: int = 0
    """The number of messages that `summary` stands for."""
    summary: str = ""
    has_failed: bool = False

    async def compress(self, request: Request, messages: Sequence[ModelMessage], since: int) -> Sequence[ModelMessage]:
        """Return these messages with one note in place of the older ones, if they fill too much of the context.

        Messages that would be left out because they do not fit are summed up too.

        The question at the index `since` and the turns before it, as many as the config says, stay as they are. When
        the small call fails, the messages are returned as they are. Raises Stopped.
        """
        config, window = self.spec.config, self.spec.window
        view = self._view(messages)
        before = window.tokens_of(request, view)
        most = config.compress_context_threshold * window.most_tokens(request.model)
        if self.has_failed or (before <= most and size(view) <= window.room(request)):
            return view
        end = _first_of_turns(messages, since, config.compress_context_keep_turns)
        if end <= self.compressed:
            return view
        older = messages[self.compressed : end]
        if not await self._summarize(request, older):
            return view
        self.compressed = end
        view = self._view(messages)
        after = window.tokens_of(request, view)
        await self.events.tell(
            PromptCompressed, before_tokens=before, after_tokens=after, messages_compressed=len(older)
        )
        return view

    def _view(self, messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        if not self.compressed:
            return messages
        return [_note(self.summary), *messages[self.compressed :]]

    async def _summarize(self, request: Request, older: Sequence[ModelMessage]) -> bool:
        """Take older messages into the summary. Return False if it fails: it is not tried again. Raises Stopped."""
        config, room, used = self.spec.config, self.spec.window.room(request), NO_USAGE

        def book(usage: Usage) -> None:
            nonlocal used
            used += usage
            self.book(usage)

        aside = Aside(
            provider=await self.spec.sides.get(None),
            model=request.model,
            timeout_seconds=config.request_timeout_seconds,
            book=book,
        )
        work = summarize(
            aside,
            fitted(older, room),
            earlier=self.summary,
            max_tokens=_MOST_TOKENS,
            length=_LENGTH,
            most_characters=room,
        )
        try:
            self.summary = await self.stopping.unless_set(work)
        except ProviderError as error:
            self.has_failed = True
            log.warning("the older messages of a call could not be compressed: %s", error)
        if used.total_tokens:
            await self.events.tell(RunUsage, usage=used)
        return not self.has_failed


def _note(summary: str) -> ModelMessage:
    return ModelMessage(role="event", content=f"[Compressed context] {quoted(summary)}")


def _first_of_turns(messages: Sequence[ModelMessage], since: int, turns: int) -> int:
    """Return the index at which the last turns up to the question at `since` begin; 0 if there are not as many.

    A turn begins with a person's message, or with a note before it, behind a message of the bot's.
    """
    whole, told = may_begin(messages), ("user", "event")
    starts = [
        index
        for index in range(min(since + 1, len(messages)))
        if messages[index].role in told and whole[index] and (index == 0 or messages[index - 1].role not in told)
    ]
    return starts[-turns] if len(starts) >= turns else 0
