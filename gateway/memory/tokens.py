"""The count of tokens: the size of messages in a model's context.

Only a vendor can count the tokens of its models. The vendor's own count of the last call serves for the next calls, and
before the first call a token counts as four bytes of UTF-8 text. No table is fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from channels import Media
from gateway.providers.base import ModelMessage

_FEWEST_PER_BYTE, _MOST_PER_BYTE = 1 / 8, 1.0
"""The limits of a count, against wrong counts of a server."""
_COUNTED_FROM: Final = 4_000
"""The least request, in bytes, with a usable count: in a short request the vendor's own additions weigh too much."""
_IMAGE_SIZE, _LARGEST_PDF_SIZE = 6_400, 400_000
"""The size of a file in the window, in bytes of text: a large picture has about 1,600 tokens, a PDF some 2,000 a page
(https://platform.claude.com/docs/en/build-with-claude/pdf-support)."""


@dataclass(slots=True)
class TokenCount:
    """The tokens in a byte of text, by the last call's count."""

    per_byte: float = 1 / 4

    def learn(self, sent: int, tokens: int) -> None:
        """Take a vendor's count of the tokens of a request of so many bytes."""
        if sent >= _COUNTED_FROM and tokens > 0:
            self.per_byte = min(_MOST_PER_BYTE, max(_FEWEST_PER_BYTE, tokens / sent))

    def tokens(self, size: int) -> int:
        """Return the tokens of a text of so many bytes."""
        return int(size * self.per_byte)

    def size(self, tokens: float) -> int:
        """Return the bytes of a text of so many tokens."""
        return int(tokens / self.per_byte)


def size(messages: Sequence[ModelMessage]) -> int:
    """Return the size of these messages in bytes, calls of tools included."""
    return sum(map(message_size, messages))


def message_size(message: ModelMessage) -> int:
    """Return the size of one message in bytes, calls and files included."""
    calls = sum(len(call.name) + len(str(call.args)) for call in message.tool_calls)
    text = message.content
    text_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    files = sum(map(_file_size, message.files))
    return text_bytes + calls + files + (len(str(message.echo)) if message.echo else 0)


def _file_size(file: Media) -> int:
    """Return the size of a file in the window, in bytes of text."""
    if file.mime_type != "application/pdf":
        return _IMAGE_SIZE
    return min(_LARGEST_PDF_SIZE, max(_IMAGE_SIZE, file.size // 10))
