"""The JSON that the page sends: a message or a press."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

__all__ = ["MAX_MESSAGE", "Press", "SentMessage", "payload_from"]

MAX_MESSAGE = 16_000
"""The longest message of a person, in characters."""

_Id: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{8,64}$")]
"""An id that the page makes once for each message or press, and repeats on a retry."""
_MessageId: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
"""The id of a message of the bot in the visible log."""


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    client_id: _Id


class SentMessage(_Sent):
    text: Annotated[str, Field(min_length=1, max_length=MAX_MESSAGE)]
    after: _MessageId | None = None
    """The bot's newest message on the page when the person first pressed send. Retries keep it."""


class Press(_Sent):
    token: Annotated[str, Field(min_length=1, max_length=200)]
    message_id: _MessageId


_PAYLOAD: TypeAdapter[SentMessage | Press] = TypeAdapter(SentMessage | Press)


def payload_from(body: bytes) -> SentMessage | Press:
    """Read the body of one request. Raises ValidationError for any other JSON and for bytes that are not JSON."""
    return _PAYLOAD.validate_json(body)
