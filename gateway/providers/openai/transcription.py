"""A Transcriber over ``/audio/transcriptions``, of OpenAI and of compatible servers.

https://platform.openai.com/docs/api-reference/audio/createTranscription
"""

from __future__ import annotations

from typing import Final

import openai

from gateway.providers.base import TranscriptionFailed
from gateway.providers.vendor import Connections

_LARGEST: Final = 25_000_000
"""In bytes: https://platform.openai.com/docs/guides/speech-to-text."""
_SECONDS: Final = 25.0
_ENDINGS: Final = {
    "audio/ogg": "ogg",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/mp4": "m4a",
    "audio/m4a": "m4a",
    "audio/x-m4a": "m4a",
    "video/mp4": "mp4",
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/vnd.wave": "wav",
    "audio/webm": "webm",
    "video/webm": "webm",
    "audio/flac": "flac",
    "audio/x-flac": "flac",
}
"""The vendor reads the format from the name, and takes these: see the module's address.

A clip of Slack or of a browser may be sound alone in a container for video.
"""


class OpenAITranscriber:
    """A Transcriber with one retry after a retryable error."""

    def __init__(self, url: str, model: str, api_key: str | None = None) -> None:
        """`url`: the server with its path, such as ``https://api.openai.com/v1``. A local server may need no key."""
        self._model = model

        def connect() -> openai.AsyncOpenAI:
            return openai.AsyncOpenAI(api_key=api_key or "none", base_url=url, max_retries=1, timeout=_SECONDS)

        self._connections = Connections(connect)

    async def transcribe(self, content: bytes, *, filename: str, mime_type: str, language: str | None) -> str:
        """Return the words of a recording. Raises TranscriptionFailed."""
        if len(content) > _LARGEST:
            raise TranscriptionFailed("it is larger than 25 MB")
        client = await self._connections.client()
        bare = mime_type.partition(";")[0].strip().lower()
        name = f"{filename.rpartition('.')[0] or filename}.{_ENDINGS.get(bare, 'ogg')}"
        # The API takes two letters: https://platform.openai.com/docs/api-reference/audio/createTranscription.
        tongue = (language or "").partition("-")[0].lower()
        try:
            written = await client.audio.transcriptions.create(
                file=(name, content, bare),
                model=self._model,
                language=tongue if len(tongue) == 2 else openai.omit,
                response_format="json",
            )
        except openai.APITimeoutError:
            raise TranscriptionFailed("no answer in time") from None
        except openai.APIStatusError as error:
            raise TranscriptionFailed(f"the server answered {error.status_code}") from None
        except (openai.OpenAIError, ValueError) as error:
            raise TranscriptionFailed(type(error).__name__) from None
        text = getattr(written, "text", None)
        if not isinstance(text, str):
            raise TranscriptionFailed("the server answered in another shape")
        return text.strip()

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()
