"""The pictures and PDFs of a conversation: the newest are shown to the model, the others are named to it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from channels import Media
from gateway.artifacts.pictures import HEAD_BYTES, picture_type
from gateway.providers.base import ModelMessage

__all__ = ["SHOWN_TYPES", "InlineMedia", "ReadFile", "image_message", "is_shown", "read_contents"]

SHOWN_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"})
"""The types that both vendors take. https://platform.claude.com/docs/en/build-with-claude/vision and
https://platform.openai.com/docs/guides/images-vision."""
LARGEST_IMAGE: Final = 5_000_000
"""In bytes. Anthropic takes 5 MB for one picture, OpenAI more."""
LARGEST_PDF: Final = 15_000_000
_MOST_FILES: Final = 10
_MOST_BYTES: Final = 20_000_000
"""The bytes of all files of a call. In base64 they stay below Anthropic's 32 MB for a request."""
ReadFile: TypeAlias = Callable[[Media], Awaitable[bytes | None]]
"""Returns the bytes of a file; None if it is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineMedia(Media):
    """A file with its bytes, for a run outside of a chat."""

    content: bytes


def image_message(image: Path | bytes, prompt: str) -> ModelMessage:
    """Return a message with a picture or a PDF for `Agent.run`, which takes it in a list: ``run([message])``.

    Raises OSError for a file that cannot be read, and ValueError for one that no model takes.
    """
    content = image.read_bytes() if isinstance(image, Path) else image
    pdf = "application/pdf" if content.startswith(b"%PDF-") else ""
    mime_type = picture_type(content[:HEAD_BYTES]) or pdf
    media = InlineMedia(
        sha256=hashlib.sha256(content).hexdigest(),
        mime_type=mime_type,
        filename=image.name if isinstance(image, Path) else f"file.{mime_type.rpartition('/')[2]}",
        size=len(content),
        content=content,
    )
    if not is_shown(media):
        kind = mime_type or "another type"
        raise ValueError(
            f"a model takes PNG, JPEG, GIF and WebP pictures of at most {LARGEST_IMAGE // 10**6} MB, "
            f"and PDFs of at most {LARGEST_PDF // 10**6} MB; these {len(content)} bytes are {kind}"
        )
    return ModelMessage(role="user", content=prompt, files=(media,))


async def read_contents(messages: Sequence[ModelMessage], read: ReadFile | None) -> Mapping[str, bytes]:
    """Return the bytes of the newest files of these messages, by hash, as far as a call takes them."""
    contents: dict[str, bytes] = {}
    left = _MOST_BYTES
    for message in reversed(messages):
        for file in message.files:
            if len(contents) == _MOST_FILES or file.size > left or not is_shown(file):
                continue
            content = file.content if isinstance(file, InlineMedia) else await read(file) if read is not None else None
            if content is not None and file.sha256 not in contents:
                contents[file.sha256] = content
                left -= len(content)
    return contents


def is_shown(file: Media) -> bool:
    """Return True for a file of a type and a size that the models take."""
    most = LARGEST_PDF if file.mime_type == "application/pdf" else LARGEST_IMAGE
    return file.mime_type in SHOWN_TYPES and 0 < file.size <= most
