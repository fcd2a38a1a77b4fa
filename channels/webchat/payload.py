"""The requests of the page: a message, a press, a stop or a thumb as JSON, and the query of a piece of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

MAX_MESSAGE = 16_000
"""The longest message of a person, in characters."""
MAX_FILES = 10
"""The most files of one message."""
MAX_FILE_BYTES = 20_000_000
"""The largest file of a person."""

_Id: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{8,64}$")]
"""An id, made once by the page for each message or press and repeated on a retry."""
_MessageId: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
"""The id of a message of the bot in the visible log."""


_ChatId: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{22}$")]
"""The id of a chat beside the first one, made once by the page: 128 random bits, as base64url."""


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    client_id: _Id
    chat: _ChatId | None = None
    """The chat of the person. None: the first one."""


class SentFile(BaseModel):
    """A file uploaded before its message. Only the token is proof: the other fields are claims of the page."""

    model_config = ConfigDict(extra="forbid", strict=True)

    token: Annotated[str, Field(max_length=2000, pattern=r"^[A-Za-z0-9_-]+$")]
    filename: Annotated[str, Field(min_length=1, max_length=255)]
    mime_type: Annotated[
        str, Field(max_length=200, pattern=r"^[A-Za-z0-9_.+-]+/[A-Za-z0-9_.+-]+(; ?charset=[a-z0-9-]+)?$")
    ]
    size: Annotated[int, Field(ge=1, le=MAX_FILE_BYTES)]


class SentMessage(_Sent):
    text: Annotated[str, Field(max_length=MAX_MESSAGE)]
    files: Annotated[list[SentFile], Field(max_length=MAX_FILES)] = []
    after: _MessageId | None = None
    """The bot's newest message on the page when the person first pressed send. Kept on retries."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.text and not self.files:
            raise ValueError("a message without words and files")
        return self


class Press(_Sent):
    token: Annotated[str, Field(min_length=1, max_length=200)]
    message_id: _MessageId


class Stop(_Sent):
    """A press on the button to stop the answer being written."""

    stop: Literal[True]


class Rated(_Sent):
    """A thumb up or down for a message of the bot, or null: it was taken back."""

    message_id: _MessageId
    feedback: Literal["up", "down"] | None


class Piece(BaseModel):
    """The place of a request's body in a file during the upload."""

    model_config = ConfigDict(extra="forbid", strict=True)

    upload: _Id
    """An id, made once by the page for each file."""
    at: Annotated[int, Field(ge=0, lt=MAX_FILE_BYTES)]
    """The offset of the piece in bytes."""
    size: Annotated[int, Field(ge=1)]
    """The size of the whole file in bytes."""
    name: Annotated[str, Field(min_length=1, max_length=255)]


_CHAT: TypeAdapter[str] = TypeAdapter(_ChatId)
_Payload: TypeAlias = SentMessage | Press | Stop | Rated
_PAYLOAD: TypeAdapter[_Payload] = TypeAdapter(_Payload)


def payload_from(body: bytes) -> _Payload:
    """Read the body of a request. Raises ValidationError for any other JSON and for bytes that are not JSON."""
    return _PAYLOAD.validate_json(body)


def piece_from(query: Mapping[str, str]) -> Piece:
    """Read the query of a piece of a file. Raises ValidationError for any other query."""
    return Piece.model_validate_strings(dict(query))


def chat_from(query: Mapping[str, str]) -> str | None:
    """Read the chat of a stream's query. None: the first one. Raises ValidationError for any other id."""
    return _CHAT.validate_python(query["chat"]) if "chat" in query else None
