"""What comes in: the events a channel makes of what its platform sends."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Literal, Self

from pydantic import TypeAdapter

__all__ = [
    "Address",
    "Attachment",
    "ButtonPress",
    "ConversationMoved",
    "DeliveryReport",
    "Event",
    "Message",
    "MessageEdited",
    "OptOut",
    "Person",
    "Reaction",
    "event_from_json",
    "event_to_json",
    "event_to_text",
]


_READS_AS_ESCAPE = re.compile("%(?=25|2F|3A)", re.IGNORECASE)
_ESCAPE = re.compile("%(25|2F|3A)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody on a platform. Two are the same person when their written forms are equal."""

    channel: str
    account: str
    """Which bot, team or number of ours they talk to."""
    user_id: str
    name: str | None = None
    language: str | None = None
    """BCP 47, the platform's hint."""
    is_bot: bool = False
    """Bots, channel posts, anonymous admins: they never decide anything."""

    def __str__(self) -> str:
        """The written form used everywhere: ``telegram:123:456``. No two people share one."""
        return f"{_escaped(self.channel, ':')}:{_escaped(self.account, ':')}:{self.user_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the written form. Raises ValueError when it has not the three parts."""
        channel, _, rest = text.partition(":")
        account, _, user_id = rest.partition(":")
        if not (channel and account and user_id):
            raise ValueError(f"not a person: {text!r} (write channel:account:user, for example telegram:123:456)")
        return cls(channel=_unescaped(channel), account=_unescaped(account), user_id=user_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A place to send to: one conversation of one platform."""

    channel: str
    account: str
    place: str
    """Chat, channel, phone number or session."""
    thread: str | None = None
    group: bool = False

    def __str__(self) -> str:
        """The written form: ``telegram:123:456``, ``slack:T1:C2/1712.0001``. No two places share one."""
        thread = f"/{self.thread}" if self.thread is not None else ""
        place = _escaped(self.place, "/")
        return f"{_escaped(self.channel, ':')}:{_escaped(self.account, ':')}:{place}{thread}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the written form; whether it is a group is not in it.

        Raises ValueError when it has not the three parts.
        """
        channel, _, rest = text.partition(":")
        account, _, place = rest.partition(":")
        place, slash, thread = place.partition("/")
        if not (channel and account and place) or (slash and not thread):
            raise ValueError(f"not an address: {text!r} (write channel:account:place, for example telegram:123:456)")
        return cls(
            channel=_unescaped(channel), account=_unescaped(account), place=_unescaped(place), thread=thread or None
        )


_NO_SIZE = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file or the like in a person's message."""

    kind: Literal["image", "audio", "voice", "video", "document", "location", "contact", "sticker"]
    ref: str
    """The platform's handle, for CanFetch."""
    mime_type: str | None = None
    filename: str | None = None
    size: int | None = None
    """Bytes, as the platform says; None too for a number that no file has."""

    def __post_init__(self) -> None:
        # Readers of JSON differ over integers of more than 64 bits: an event's seal would not hold, or not be made.
        if self.size is not None and not 0 <= self.size < _NO_SIZE:
            object.__setattr__(self, "size", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing a platform told us."""

    event_ids: tuple[str, ...]
    """The platform's ids; any of them seen before makes the event a twin."""
    address: Address
    person: Person | None
    sent_at: datetime | None = None
    answer_to: str | None = None
    """Opaque handle for CanAnswer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Event):
    """A person wrote something."""

    text: str = ""
    message_id: str | None = None
    command: str | None = None
    """``start`` for ``/start`` and slash commands; ``text`` is then what follows it."""
    reply_to: str | None = None
    """The id of the message this one answers."""
    attachments: tuple[Attachment, ...] = ()
    mentions_bot: bool = False
    answers_bot: bool = False
    """It replies to a message of the bot, or stands in a thread that began with one."""
    forwarded: bool = False
    via_bot: bool = False
    transcribed: bool = False
    opts_in: bool = False
    """Carriers take it for the end of an opt-out too, though first of all it is an answer."""
    spoiled_by: tuple[str, ...] = ()
    """Names of fields of the platform's message that make it something else than words typed here to the bot: a quote,
    a share, a caption, a text style such as strikethrough. Such a message never counts as an answer."""
    unknown_fields: tuple[str, ...] = ()
    """Names of fields of the platform's message that this release does not know. A bare yes or no beside them does not
    count as an answer; a code does, and so does a reply to the question."""
    after: str | None = None
    """The platform's handle of the last message of the bot that the writer had before their eyes, where it tells."""
    replayed: bool = False
    """The gateway replays the message out of a dead letter. No channel sets this."""
    before: tuple[str, ...] = ()
    """Lines that others wrote in the group before it, not to the bot. The gateway sets this, no channel does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ButtonPress(Event):
    """A person pressed a button of a message of ours."""

    token: str
    message_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEdited(Event):
    """A person changed what they had written."""

    message_id: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction(Event):
    """A person put an emoji on a message, or took it away."""

    message_id: str
    emoji: str
    added: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReport(Event):
    """The platform says what became of a message of ours.

    On Telegram and the like a report without a message id says that the whole chat is (or is again) reachable.
    """

    message_id: str | None = None
    status: Literal["sent", "delivered", "read", "failed"]
    code: str | None = None
    key: str | None = None
    """The `key` with which the message was sent, where the platform says it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptOut(Event):
    """A person blocked the bot or wrote a carrier's stop word (or took it back)."""

    opted_in: bool = False
    told: bool = True
    """The platform itself answers them, or lets nothing through: we say nothing about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationMoved(Event):
    """The platform has given a conversation another address, `address`; no message has the id it had."""

    came_from: Address


_KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (Message, ButtonPress, MessageEdited, Reaction, DeliveryReport, OptOut, ConversationMoved)
}


def event_to_json(event: Event) -> dict[str, object]:
    """The stored form: the event's fields, and its class under ``kind``."""
    kind = type(event).__name__
    body: dict[str, object] = _adapter(kind).dump_python(event, mode="json", exclude_defaults=True)
    return {"kind": kind, **body}


def event_to_text(event: Event) -> str:
    """The stored form as JSON text, in one go. Raises ValueError for what UTF-8 has no bytes for: lone surrogates."""
    kind = type(event).__name__
    fields = _adapter(kind).serializer.to_json(event, exclude_defaults=True).decode()
    return f'{{"kind":"{kind}",{fields[1:]}'


def event_from_json(stored: dict[str, object]) -> Event:
    """The event of its stored form. Raises ValueError when it is not one of ours."""
    body = dict(stored)
    kind = body.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"not a stored event: kind {kind!r}")
    return _adapter(str(kind)).validate_python(body)


def _escaped(text: str, end: str) -> str:
    """The text without the character that ends its field. What it does not need to escape stays as it is: written
    forms are keys in the store."""
    if "%" in text:
        text = _READS_AS_ESCAPE.sub("%25", text)
    return text.replace(end, f"%{ord(end):02X}") if end in text else text


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text) if "%" in text else text


@cache
def _adapter(kind: str) -> TypeAdapter[Event]:
    """Built when first used: building one costs milliseconds."""
    return TypeAdapter(_KINDS[kind])
