"""The window: the end of a conversation that fits into the model's context, by an estimate.

The limit of a model is counted in tokens, which only its vendor can count. A token is about four bytes of UTF-8 text,
more in plain English and fewer in tables and numbers, so the estimate leaves room. When a model refuses a request as
too long, the window of its agent shrinks until the process ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.providers.base import ModelMessage

__all__ = ["LEAST_BYTES", "MOST_BYTES", "Window", "fitted", "size"]

MOST_BYTES = 200_000
"""The largest window, in bytes: about 50,000 tokens."""
LEAST_BYTES = 24_000
"""The smallest window, in bytes: about 6,000 tokens, as a small local model takes beside its tools and its answer."""
_LARGEST_SHARE = 4
"""One message takes at most this fraction of the window: 1/4."""
_LEAST_OF_A_MESSAGE = 400


@dataclass(slots=True)
class Window:
    """The size of the window of one agent, in bytes."""

    most: int = MOST_BYTES

    def was_too_large(self, messages: Sequence[ModelMessage]) -> None:
        """Shrink the window to half of these messages, which the model refused as too long."""
        self.most = max(LEAST_BYTES, min(self.most, size(messages) // 2))


def size(messages: Sequence[ModelMessage]) -> int:
    """Return the size of these messages in bytes, calls of tools included."""
    return sum(map(_size, messages))


def fitted(messages: Sequence[ModelMessage], most: int) -> Sequence[ModelMessage]:
    """Return the end of a conversation that fits into `most` bytes.

    It begins with a person's message or a note. The last message of a person and all messages after it are always
    included. Texts that are too long are cut, with a note that says so. No result of a tool stands without its call.
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
    text_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return text_bytes + calls + (len(str(message.echo)) if message.echo else 0)


def _cut(message: ModelMessage, most: int) -> ModelMessage:
    data = message.content.encode("utf-8", "replace")
    if len(data) <= most:
        return message
    begin = data[:most].decode("utf-8", "ignore")
    left_out = len(message.content) - len(begin)
    return replace(
        message, content=f"{begin}\n[{left_out} characters left out here: too long for the model]", echo=None
    )
