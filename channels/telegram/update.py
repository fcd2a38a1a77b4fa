"""The fields of an Update that we read, as https://core.telegram.org/bots/api#update documents them.

Validated strictly, straight from the bytes: what has another type than documented is not understood.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Callback",
    "Chat",
    "Contact",
    "Entity",
    "File",
    "Location",
    "MemberChange",
    "Message",
    "Photo",
    "Update",
    "User",
]


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class User(_Fields):
    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    language_code: str | None = None


class Chat(_Fields):
    id: int
    type: Literal["private", "group", "supergroup", "channel"]
    title: str | None = None


class Entity(_Fields):
    type: str
    offset: int = Field(ge=0)
    """In UTF-16 units, like the length."""
    length: int = Field(ge=0)
    user: User | None = None


class File(_Fields):
    file_id: str
    file_size: int | None = None
    mime_type: str | None = None
    file_name: str | None = None


class Photo(File):
    """One of the sizes of a photo."""

    width: int
    height: int


class Location(_Fields):
    latitude: float
    longitude: float


class Contact(_Fields):
    phone_number: str
    first_name: str = ""
    last_name: str = ""


class Answered(_Fields):
    """The message that a message replies to."""

    message_id: int
    sender: User | None = Field(None, alias="from")


class Message(_Fields):
    """Also an InaccessibleMessage, which has no more than a chat, an id and the date 0."""

    model_config = ConfigDict(extra="allow")

    message_id: int
    date: int = 0
    edit_date: int | None = None
    chat: Chat
    sender: User | None = Field(None, alias="from")
    sender_chat: Chat | None = None
    message_thread_id: int | None = None
    is_topic_message: bool = False
    via_bot: User | None = None
    reply_to_message: Answered | None = None
    text: str | None = None
    entities: tuple[Entity, ...] = ()
    caption: str | None = None
    caption_entities: tuple[Entity, ...] = ()
    photo: tuple[Photo, ...] = ()
    audio: File | None = None
    voice: File | None = None
    video: File | None = None
    video_note: File | None = None
    animation: File | None = None
    document: File | None = None
    sticker: File | None = None
    location: Location | None = None
    contact: Contact | None = None
    migrate_to_chat_id: int | None = None
    migrate_from_chat_id: int | None = None

    def has_any(self, names: frozenset[str]) -> bool:
        """Whether the platform sent one of these fields, known to us or not."""
        return not names.isdisjoint(self.model_fields_set)


class Callback(_Fields):
    id: str
    sender: User = Field(alias="from")
    message: Message | None = None
    data: str | None = None


class Member(_Fields):
    status: str
    is_member: bool = True
    """Of a restricted member only: still in the chat."""
    can_send_messages: bool = True


class MemberChange(_Fields):
    chat: Chat
    sender: User = Field(alias="from")
    date: int = 0
    new_chat_member: Member


class Update(_Fields):
    update_id: int
    message: Message | None = None
    edited_message: Message | None = None
    channel_post: Message | None = None
    edited_channel_post: Message | None = None
    callback_query: Callback | None = None
    my_chat_member: MemberChange | None = None
