"""The filling of the memories of a conversation, by small calls to models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.agent import Expenses
from gateway.agent.memory import tell_learned
from gateway.engine.context import EngineContext
from gateway.engine.memory.records import SUMMARY, KeptMemory, epoch_of, memory_key, renew_epoch, turn_memories
from gateway.memory import RESET, Extraction, extract, lines_read, readable_end, summarize
from gateway.memory.extraction import with_words
from gateway.observe.events import MemorySummarize
from gateway.observe.teller import RunTeller
from gateway.pending.lines import read_entries
from gateway.providers import Completes
from gateway.providers.aside import Aside
from gateway.providers.base import ModelMessage, ProviderError
from gateway.store.transaction import Put
from gateway.stored import keys


class MemoryFiller:
    """Fills the memories of a conversation with the unread messages."""

    def __init__(self, context: EngineContext, conversation: str, events: RunTeller, expenses: Expenses) -> None:
        self._context, self._conversation, self._events, self._expenses = context, conversation, events, expenses
        self._agent = context.bot.agent

    async def fill(self) -> tuple[Mapping[str, Put], ProviderError | None]:
        """Return the updated records of memories by name, and the last failure of a memory or None."""
        context, conversation = self._context, self._conversation
        memory_keys = {name: memory_key(context, conversation, name) for name in turn_memories(self._agent)}
        epoch_key = keys.key(context.store, conversation, keys.memory_epoch)
        # The epoch is read before the transcript: lines from before a reset never get the epoch after it.
        found = await context.store.get([epoch_key, *memory_keys.values()])
        messages = await read_messages(context, conversation)
        puts: dict[str, Put] = {}
        failure: ProviderError | None = None
        for name, key in memory_keys.items():
            try:
                kept = context.unsealed(key, found[key], conversation)
                filled = await self._filled(name, KeptMemory.of(kept, epoch_of(found, epoch_key)), messages)
            except ProviderError as error:
                failure = error
                continue
            if filled is not None:
                stored = context.sealed(key.name, filled.to_json())
                puts[key.name] = Put(stored, context.rules.retention.transcript_seconds)
        if puts:
            await renew_epoch(context, epoch_key, found[epoch_key])
        return puts, failure

    async def _filled(self, name: str, kept: KeptMemory, messages: NumberedMessages) -> KeptMemory | None:
        """Return the memory after reading all messages; None without unread messages. Raises ProviderError."""
        if name == SUMMARY:
            return await self._summary(kept, messages)
        memory = next(each for each in self._agent.extractions if each.extracts == name)
        return await self._extracted(memory, kept, messages)

    async def _extracted(self, memory: Extraction, kept: KeptMemory, messages: NumberedMessages) -> KeptMemory | None:
        unread = messages.unread(kept.through, memory.relevance_window)
        if not unread:
            return None
        aside = await self._calls(memory.provider, memory.model)
        now, turn = await self._context.store.now(), kept.turns + 1
        learned = await extract(memory, aside, kept.value, unread, at=now, turn=turn)
        tell_learned(self._events, memory, learned, turn)
        return kept.read_to(messages.last, learned.value)

    async def _summary(self, kept: KeptMemory, messages: NumberedMessages) -> KeptMemory | None:
        """Return the summary with the messages that have left the window; None without new messages outside the
        window."""
        memory = self._agent.memory
        if memory is None:
            return None
        outside = len(memory.trim(messages.messages, self._agent.token_count).dropped)
        gone = messages.after(kept.through, outside)
        if not gone:
            return None
        aside = await self._calls(memory.summarize_provider, memory.summarize_model)
        earlier = kept.value if isinstance(kept.value, str) else ""
        text = await summarize(aside, gone, earlier=earlier, max_tokens=memory.summarize_max_tokens)
        self._events.tell_now(MemorySummarize, summary=text, messages_summarized=len(gone))
        return kept.read_to(messages.numbers[outside - 1], text)

    async def _calls(self, provider: str | Completes | None, model: str | None) -> Aside:
        config, expenses = self._agent.config, self._expenses
        return await self._agent.sides.calls(provider, model, config, expenses.add, expenses.reserved)


_MOST_LINES: Final = 400
"""The number of last transcript lines read beside the window. A memory further behind skips earlier lines."""
_MOST_UNREAD: Final = 40
"""The most new messages of an extraction. A memory added to an old bot does not read whole transcripts."""


@dataclass(frozen=True, slots=True)
class NumberedMessages:
    """The last messages of a transcript since the last reset, each with a line number."""

    numbers: Sequence[int]
    messages: Sequence[ModelMessage]

    @property
    def last(self) -> int:
        """The number of the last line; 0 without any."""
        return self.numbers[-1] if self.numbers else 0

    def after(self, number: int, before: int | None = None) -> list[ModelMessage]:
        """Return the messages after the line of this number, up to the index `before`."""
        pairs = list(zip(self.numbers, self.messages, strict=True))[:before]
        return [message for line, message in pairs if line > number]

    def unread(self, after: int, window: int) -> list[ModelMessage]:
        """Return the new messages with words after line `after`, and earlier messages up to a window of this size."""
        new = len(with_words(self.after(after)))
        return with_words(self.messages)[-max(min(new, _MOST_UNREAD), window) :] if new else []


async def read_messages(context: EngineContext, conversation: str) -> NumberedMessages:
    """Return the last messages of a conversation. Raises StoreError."""
    log = keys.key(context.store, conversation, keys.transcript)
    stored = await context.store.read(log, last=lines_read(context.bot.agent.memory) + _MOST_LINES)
    read = read_entries(context.keyring, conversation, stored)
    if read.left_out:
        context.forgeries.tell(log.name, conversation)
    entries = read.entries
    resets = [place for place, entry in enumerate(entries) if entry.value == RESET]
    entries = entries[resets[-1] + 1 :] if resets else entries
    messages = readable_end([entry.value for entry in entries])
    return NumberedMessages([entry.seq for entry in entries[len(entries) - len(messages) :]], messages)
