"""What of a conversation a model is asked with: as much of its end as fits, by an estimate.

How much a model takes is counted in tokens, which only its vendor counts. A token is about four bytes of UTF-8 text,
more for plain English and fewer for tables and numbers, so the estimate leaves room. A model that takes less says so;
then the window of its agent becomes smaller for as long as the process lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.providers.base import ModelMessage

__all__ = ["LEAST_BYTES", "MOST_BYTES", "Window", "fitted", "size"]

MOST_BYTES = 200_000
"""About 50,000 tokens."""
LEAST_BYTES = 24_000
"""About 6,000 tokens: what a small local model takes beside its tools and its answer."""
_LARGEST_SHARE = 4
"""No single message takes more than this part of the window."""
_LEAST_OF_A_MESSAGE = 400


@dataclass(slots=True)
class Window:
    """How many bytes of a conversation the model of an agent is asked with."""

    most: int = MOST_BYTES

    def was_too_large(self, messages: Sequence[ModelMessage]) -> None:
        """Take less from now on than these messages, which the model did not take."""
        self.most = max(LEAST_BYTES, min(self.most, size(messages) // 2))


def size(messages: Sequence[ModelMessage]) -> int:
    """Return the bytes that the texts of these messages take, calls of tools included."""
    return sum(map(_size, messages))


def fitted(messages: Sequence[ModelMessage], most: int) -> Sequence[ModelMessage]:
    """Return the end of a conversation that fits into `most` bytes, beginning with a person's message or a note.

    The last message of a person and what follows it is always there; what is too long in it is cut, with a note that
    says so. No result of a tool is left without its call.
    """
    if size(messages) <= most:
        return messages
    last = max((n for n, message in enumerate(messages) if message.role == "user"), default=0)
    kept = [_cut(message, most // _LARGEST_SHARE) for message in messages]
    sizes = [_size(message) for message in kept]
    first, total = 0, sum(sizes)
    while total > most and first < last:
        total -= sizes[first]
        first += 1
        while first < last and kept[first].role not in ("user", "event"):
            total -= sizes[first]
            first += 1
    kept = kept[first:]
    share = most // _LARGEST_SHARE
    while size(kept) > most and share > _LEAST_OF_A_MESSAGE:
        share //= 2
        kept = [_cut(message, share) for message in kept]
    return kept


def _size(message: ModelMessage) -> int:
    calls = sum(len(call.name) + len(str(call.args)) for call in message.tool_calls)
    text = message.content
    told = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return told + calls + (len(str(message.echo)) if message.echo else 0)


def _cut(message: ModelMessage, most: int) -> ModelMessage:
    data = message.content.encode("utf-8", "replace")
    if len(data) <= most:
        return message
    begin = data[:most].decode("utf-8", "ignore")
    left_out = len(message.content) - len(begin)
    return replace(
        message, content=f"{begin}\n[{left_out} characters left out here: too long for the model]", echo=None
    )
