"""The fields of Slack's payloads read by the gateway, as documented by Slack.

Events: https://docs.slack.dev/apis/events-api and https://docs.slack.dev/reference/events/message; presses:
https://docs.slack.dev/reference/interaction-payloads/block_actions-payload; commands:
https://docs.slack.dev/interactivity/implementing-slash-commands. Payloads are validated strictly: a field of another
type than documented makes a payload not understood. Slack writes null for many absent fields. Payloads are
dictionaries, because building objects took half of the time of parsing a message.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, Required, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict  # pydantic reads the standard library's from Python 3.12 on

from channels.surrogates import validated

_NonEmpty: TypeAlias = Annotated[str, Field(min_length=1)]


class Verification(TypedDict):
    """A URL verification: Slack checks that the endpoint answers with the challenge."""

    type: Literal["url_verification"]
    challenge: str


class Authorization(TypedDict, total=False):
    """An installation addressed by an event."""

    enterprise_id: str | None
    team_id: str | None
    user_id: str | None
    is_bot: bool
    is_enterprise_install: bool


class File(TypedDict, total=False):
    id: Required[str]
    name: str | None
    mimetype: str | None
    size: int | None
    mode: str | None
    subtype: str | None
    url_private: str | None
    url_private_download: str | None


class Inner(TypedDict, total=False):
    """A message before or after an edit."""

    user: str | None
    bot_id: str | None
    subtype: str | None
    text: str | None
    ts: Required[_NonEmpty]
    thread_ts: str | None


class Item(TypedDict, total=False):
    """The object of a reaction."""

    type: Required[str]
    channel: str | None
    ts: str | None


@with_config(ConfigDict(extra="allow"))
class Event(TypedDict, total=False):
    """An event. Keeps every field sent by Slack, known to this release or not."""

    type: Required[str]
    subtype: str | None
    channel: str | None
    channel_type: str | None
    user: str | None
    user_team: str | None
    """The author's own workspace, in a channel shared by several."""
    bot_id: str | None
    text: str | None
    ts: str | None
    event_ts: str | None
    thread_ts: str | None
    parent_user_id: str | None
    files: list[File] | None
    blocks: Any
    """Blocks of any shape. Only the types and styles are read."""
    attachments: Any
    """Attachments of any shape. Only the texts of forwarded messages are read."""
    message: Inner | None
    previous_message: Inner | None
    item: Item | None
    reaction: str | None


class EventCallback(TypedDict, total=False):
    type: Required[Literal["event_callback"]]
    team_id: str | None
    context_team_id: str | None
    """The workspace of the installation. In a channel shared with another company, `team_id` may be the other's."""
    event_id: Required[_NonEmpty]
    event: Required[Event]
    authorizations: list[Authorization] | None


class _Id(TypedDict):
    id: _NonEmpty


class User(_Id, total=False):
    username: str | None
    name: str | None
    team_id: str | None


class Container(TypedDict, total=False):
    message_ts: str | None
    channel_id: str | None
    thread_ts: str | None


class Pressed(TypedDict, total=False):
    thread_ts: str | None


class Action(TypedDict, total=False):
    type: Required[str]
    action_id: str
    action_ts: str
    value: str | None


class BlockActions(TypedDict, total=False):
    type: Required[Literal["block_actions"]]
    team: _Id | None
    enterprise: _Id | None
    is_enterprise_install: bool
    user: Required[User]
    channel: _Id | None
    container: Required[Container]
    message: Pressed | None
    actions: Required[list[Action]]
    response_url: str | None


Payload: TypeAlias = EventCallback | BlockActions | Verification
"""The payloads in JSON."""
_PAYLOAD: TypeAdapter[Payload] = TypeAdapter(Annotated[Payload, Field(discriminator="type")])


def payload_from(body: bytes) -> Payload:
    """Read a payload from JSON. Raises ValidationError."""
    return validated(_PAYLOAD, body)


class Command(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

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


_TS = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))?", re.ASCII)
_EPOCH = datetime.fromtimestamp(0, UTC)


def moment(ts: str) -> datetime | None:
    """Return the datetime of a stamp. None for a text other than a stamp and for a time out of range."""
    found = _TS.fullmatch(ts)
    if found is None:
        return None
    try:
        return _EPOCH + timedelta(seconds=int(found[1]), microseconds=int((found[2] or "")[:6].ljust(6, "0")))
    except OverflowError:
        return None


def position(ts: str | None) -> Decimal | None:
    """Return the stamp as a number that orders the messages of a channel. None for a text other than a stamp."""
    return Decimal(ts) if ts is not None and _TS.fullmatch(ts) else None
