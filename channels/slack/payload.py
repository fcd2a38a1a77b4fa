"""The fields of Slack's payloads that we read, as its documentation has them.

Events: https://docs.slack.dev/apis/events-api and https://docs.slack.dev/reference/events/message; presses:
https://docs.slack.dev/reference/interaction-payloads/block_actions-payload; commands:
https://docs.slack.dev/interactivity/implementing-slash-commands. Validated strictly: what has another type than
documented is not understood. Slack writes null for much that is absent.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from channels.halves import validated

__all__ = [
    "BlockActions",
    "Command",
    "Event",
    "EventCallback",
    "File",
    "Inner",
    "Payload",
    "Verification",
    "payload_from",
]


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Verification(_Fields):
    """Slack asks whether we are there."""

    type: Literal["url_verification"]
    challenge: str


class Authorization(_Fields):
    """One of the installations that an event is for."""

    enterprise_id: str | None = None
    team_id: str | None = None
    user_id: str | None = None
    is_bot: bool = False
    is_enterprise_install: bool = False


class File(_Fields):
    id: str
    name: str | None = None
    mimetype: str | None = None
    size: int | None = None
    mode: str | None = None
    subtype: str | None = None
    url_private: str | None = None
    url_private_download: str | None = None


class Inner(_Fields):
    """A message as it was, or as it is after an edit."""

    user: str | None = None
    bot_id: str | None = None
    subtype: str | None = None
    text: str | None = None
    ts: str = Field(min_length=1)
    thread_ts: str | None = None


class Item(_Fields):
    """What a reaction is on."""

    type: str
    channel: str | None = None
    ts: str | None = None


class Event(_Fields):
    type: str
    subtype: str | None = None
    channel: str | None = None
    channel_type: str | None = None
    user: str | None = None
    bot_id: str | None = None
    text: str | None = None
    ts: str | None = None
    event_ts: str | None = None
    thread_ts: str | None = None
    parent_user_id: str | None = None
    files: list[File] | None = None
    message: Inner | None = None
    previous_message: Inner | None = None
    item: Item | None = None
    reaction: str | None = None


class EventCallback(_Fields):
    type: Literal["event_callback"]
    team_id: str | None = None
    event_id: str = Field(min_length=1)
    event: Event
    authorizations: list[Authorization] | None = None


class _Id(_Fields):
    id: str = Field(min_length=1)


class User(_Id):
    username: str | None = None
    name: str | None = None
    team_id: str | None = None


class Container(_Fields):
    message_ts: str | None = None
    channel_id: str | None = None
    thread_ts: str | None = None


class Pressed(_Fields):
    thread_ts: str | None = None


class Action(_Fields):
    type: str
    action_id: str = ""
    action_ts: str = ""
    value: str | None = None


class BlockActions(_Fields):
    type: Literal["block_actions"]
    team: _Id | None = None
    enterprise: _Id | None = None
    is_enterprise_install: bool = False
    user: User
    channel: _Id | None = None
    container: Container
    message: Pressed | None = None
    actions: list[Action]
    response_url: str | None = None


Payload: TypeAlias = EventCallback | BlockActions | Verification
"""What comes as JSON."""
_PAYLOAD: TypeAdapter[Payload] = TypeAdapter(Annotated[Payload, Field(discriminator="type")])


def payload_from(body: bytes) -> Payload:
    """Raises ValidationError."""
    return validated(_PAYLOAD, body)


class Command(_Fields):
    command: str = Field(pattern=r"^/.*[^-]$")
    text: str = ""
    team_id: str | None = None
    enterprise_id: str | None = None
    is_enterprise_install: str = "false"
    channel_id: str = Field(min_length=1)
    user_id: str = Field(min_length=1)
    user_name: str | None = None
    trigger_id: str = Field(min_length=1)
    response_url: str | None = None
