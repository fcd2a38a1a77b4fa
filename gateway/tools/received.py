"""Files of a person's message, as tools get them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from channels import Attachment, Media
from gateway.tools.errors import ToolFailed

__all__ = ["ReceivedAttachment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedAttachment(Attachment):
    """A file, location or contact in the message that the turn answers.

    `mime_type` is that of the file's own bytes where they tell it, and `size` its real size.
    """

    path: Path | None = None
    """The kept file. None: it has no bytes, or they could not be read."""
    media: Media | None = None
    """The same file by its hash."""
    fault: str = ""
    """Why the file could not be read."""
    transcript: str | None = None
    """The words of a voice message. None: it was not transcribed."""

    async def open(self) -> BytesIO:
        """Return the file, open for reading its bytes, which are in memory: at most 20 MB.

        Raises ToolFailed for a file that could not be read, or is gone.
        """
        if self.path is None:
            raise ToolFailed(f"the {self.kind} cannot be read: {self.fault or 'it has no bytes'}")
        try:
            return BytesIO(await asyncio.to_thread(self.path.read_bytes))
        except OSError:
            raise ToolFailed(f"the {self.kind} is gone") from None
