"""The transcript as the memories of its conversation read it: the last lines, with their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.engine.context import EngineContext
from gateway.memory import RESET, from_entries, lines_read
from gateway.memory.extraction import with_words
from gateway.providers.base import ModelMessage
from gateway.store.form import check_form
from gateway.stored import keys

__all__ = ["NumberedMessages", "read_messages"]

_MOST_LINES: Final = 400
"""The last lines of a transcript that are read beside its window. A memory that is further behind leaves the earlier
ones out."""
_MOST_UNREAD: Final = 40
"""The most messages of one extraction, so that the transcript of a bot that had no memory before is not read whole."""


@dataclass(frozen=True, slots=True)
class NumberedMessages:
    """The last messages of a transcript since its last reset, each with the number of its line."""

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
        """Return what was said after the line of this number, and before it up to a window of this size."""
        new = len(with_words(self.after(after)))
        return with_words(self.messages)[-max(min(new, _MOST_UNREAD), window) :] if new else []


async def read_messages(context: EngineContext, conversation: str) -> NumberedMessages:
    """Return the last messages of a conversation. Raises NewerForm, StoreError, and ValueError for a line that cannot
    be read."""
    log = keys.key(context.store, conversation, keys.transcript)
    entries = await context.store.read(log, last=lines_read(context.bot.agent.memory) + _MOST_LINES)
    for entry in entries:
        check_form(entry.value)
    resets = [place for place, entry in enumerate(entries) if entry.value == RESET]
    entries = entries[resets[-1] + 1 :] if resets else entries
    return NumberedMessages([entry.seq for entry in entries], from_entries([entry.value for entry in entries]))
