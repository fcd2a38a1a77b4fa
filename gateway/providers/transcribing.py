"""The transcription of voice messages: its protocol and its error."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from channels import AskfirstError

__all__ = ["Transcriber", "TranscriptionFailed"]


class TranscriptionFailed(AskfirstError):
    """A voice message could not be transcribed. `code` holds no text of a person and no secret."""

    def __init__(self, code: str) -> None:
        super().__init__(f"not transcribed: {code}")
        self.code = code


@runtime_checkable
class Transcriber(Protocol):
    """A protocol for what writes down voice messages."""

    async def transcribe(self, content: bytes, *, filename: str, mime_type: str, language: str | None) -> str:
        """Return the words of a recording, an empty text if there are none. Raises TranscriptionFailed.

        `language`: the BCP 47 tag of the person's language, if the platform names it.
        """
        ...
