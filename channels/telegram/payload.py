"""The fields of an Update read by the gateway, as documented in https://core.telegram.org/bots/api#update.

Updates are validated strictly, straight from the bytes: a field of another type than documented makes an update not
understood. Updates are dictionaries: building objects of thirty fields took longer than the rest of parsing.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Literal, Required

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict  # pydantic reads the standard library's from Python 3.12 on

from channels.surrogates import validated


class User(TypedDict, total=False):
    id: Required[int]
    is_bot: bool
    first_name: str
    last_name: str
    username: str | None
    language_code: str | None


class Chat(TypedDict, total=False):
    id: Required[int]
    type: Required[Literal["private", "group", "supergroup", "channel"]]
    title: str | None


class Entity(TypedDict, total=False):
    type: Required[str]
    offset: Required[Annotated[int, Field(ge=0)]]
    """In UTF-16 units, as is the length."""
    length: Required[Annotated[int, Field(ge=0)]]
    user: User | None


class File(TypedDict, total=False):
    file_id: Required[str]
    file_size: int | None
    mime_type: str | None
    file_name: str | None


class Photo(File):
    """A size of a photo."""

    width: int
    height: int


class Location(TypedDict):
    latitude: float
    longitude: float


class Contact(TypedDict, total=False):
    phone_number: Required[str]
    first_name: str
    last_name: str


class Answered(TypedDict, total=False):
    """The replied-to message of a message."""

    message_id: Required[int]
    sender: Annotated[User | None, Field(alias="from")]


@with_config(ConfigDict(extra="allow"))
class Message(TypedDict, total=False):
    """A Message, or an InaccessibleMessage with only a chat, an id and the date 0.

    Keeps every field sent by the platform, known to this release or not.
    """

    message_id: Required[int]
    date: int
    edit_date: int | None
    chat: Required[Chat]
    sender: Annotated[User | None, Field(alias="from")]
    sender_chat: Chat | None
    message_thread_id: int | None
    is_topic_message: bool
    via_bot: User | None
    reply_to_message: Answered | None
    text: str | None
    entities: list[Entity]
    caption: str | None
    caption_entities: list[Entity]
    media_group_id: str | None
    photo: list[Photo]
    audio: File | None
    voice: File | None
    video: File | None
    video_note: File | None
    animation: File | None
    document: File | None
    sticker: File | None
    location: Location | None
    contact: Contact | None
    migrate_to_chat_id: int | None
    migrate_from_chat_id: int | None


class Callback(TypedDict, total=False):
    id: Required[str]
    sender: Required[Annotated[User, Field(alias="from")]]
    message: Message | None
    data: str | None


class Member(TypedDict, total=False):
    status: Required[str]
    is_member: bool
    """True for a restricted member still in the chat. Other members lack the field."""
    can_send_messages: bool


class MemberChange(TypedDict, total=False):
    chat: Required[Chat]
    sender: Required[Annotated[User, Field(alias="from")]]
    date: int
    new_chat_member: Required[Member]


class Update(TypedDict, total=False):
    update_id: Required[int]
    message: Message | None
    edited_message: Message | None
    channel_post: Message | None
    edited_channel_post: Message | None
    callback_query: Callback | None
    my_chat_member: MemberChange | None


_UPDATE: TypeAdapter[Update] = TypeAdapter(Update)


def update_from(body: bytes) -> Update:
    """Read an Update from the body of a request. Raises ValidationError."""
    return validated(_UPDATE, body)


_MESSAGE_ID = re.compile(r"\d{1,18}", re.ASCII)


def moment(seconds: object) -> datetime | None:
    """Return the datetime of a Unix time. None for 0, the sign of an unknown date, and for a time out of range."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds and isinstance(seconds, int) else None
    except (ValueError, OverflowError, OSError):
        return None


def position(message_id: str | None) -> int | None:
    """Return the number of a message, ascending within a chat, or None for an id other than a number."""
    return int(message_id) if message_id is not None and _MESSAGE_ID.fullmatch(message_id) else None
