"""The events: a channel makes them from the requests of its platform."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Literal, Self

from pydantic import TypeAdapter

_READS_AS_ESCAPE = re.compile("%(?=25|2F|3A)", re.IGNORECASE)
_ESCAPE = re.compile("%(25|2F|3A)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person on a platform. Two are the same person when their written forms are equal."""

    channel: str
    account: str
    """The bot, team or number of the operator that they talk to."""
    user_id: str
    name: str | None = None
    """The name that they gave themselves."""
    handle: str | None = field(default=None, compare=False)
    """The platform's own unique name for them, without a sign in front."""
    language: str | None = None
    """The platform's hint, a BCP 47 tag."""
    is_bot: bool = False
    """True for bots, channel posts and anonymous admins, which never decide an action."""

    def __str__(self) -> str:
        """Return the written form, used everywhere: ``telegram:123:456``. It is unique for each person."""
        return f"{_escaped(self.channel, ':')}:{_escaped(self.account, ':')}:{self.user_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the written form. Raises ValueError when one of its three parts is missing."""
        channel, _, rest = text.partition(":")
        account, _, user_id = rest.partition(":")
        if not (channel and account and user_id):
            raise ValueError(f"not a person: {text!r} (write channel:account:user, for example telegram:123:456)")
        return cls(channel=_unescaped(channel), account=_unescaped(account), user_id=user_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address to send to: one conversation of one platform."""

    channel: str
    account: str
    place: str
    """The chat, channel, phone number or session."""
    thread: str | None = None
    group: bool = False

    def __str__(self) -> str:
        """Return the written form, unique for each thread: ``telegram:123:456``, ``slack:T1:C2/1712.0001``."""
        thread = f"/{self.thread}" if self.thread is not None else ""
        place = _escaped(self.place, "/")
        return f"{_escaped(self.channel, ':')}:{_escaped(self.account, ':')}:{place}{thread}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the written form, which does not say whether the address is a group.

        Raises ValueError when one of its three parts is missing.
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
    """A file, location or contact in a person's message."""

    kind: Literal["image", "audio", "voice", "video", "document", "location", "contact", "sticker"]
    ref: str
    """The platform's handle, for `CanFetch.fetch`."""
    mime_type: str | None = None
    filename: str | None = None
    size: int | None = None
    """The size in bytes that the platform names. None when it names none, or an impossible one."""

    def __post_init__(self) -> None:
        # JSON readers disagree on integers of more than 64 bits: the seal of an event could fail, or not match.
        if self.size is not None and not 0 <= self.size < _NO_SIZE:
            object.__setattr__(self, "size", None)


def kind_of(mime_type: str) -> Literal["image", "audio", "video", "document"]:
    """Return the kind of a file that is declared with this type."""
    match mime_type.partition("/")[0]:
        case "image":
            return "image"
        case "audio":
            return "audio"
        case "video":
            return "video"
        case _:
            return "document"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that a platform reports."""

    event_ids: tuple[str, ...]
    """The platform's ids for deduplication: an event with an id that was seen before is a twin."""
    address: Address
    person: Person | None
    sent_at: datetime | None = None
    answer_to: str | None = None
    """The opaque handle for `CanAnswer.answer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Event):
    """A message that a person wrote."""

    text: str = ""
    message_id: str | None = None
    command: str | None = None
    """``start`` for ``/start`` and slash commands; ``text`` is then the rest of the message."""
    reply_to: str | None = None
    """The id of the message that this one replies to."""
    attachments: tuple[Attachment, ...] = ()
    album: str | None = None
    """The platform's id of the album, of which each file comes as a message of its own."""
    mentions_bot: bool = False
    answers_bot: bool = False
    """True when it replies to a message of the bot, or is in a thread that began with one."""
    forwarded: bool = False
    via_bot: bool = False
    transcribed: bool = False
    opts_in: bool = False
    """True when carriers take it for the end of an opt-out, though the gateway reads it as an answer first."""
    spoiled_by: tuple[str, ...] = ()
    """Names of fields of the platform's message that show other content than words typed here to the bot: a quote, a
    share, a caption, a text style like strikethrough. A message with one never counts as an answer."""
    unknown_fields: tuple[str, ...] = ()
    """Names of fields of the platform's message that this release does not know. With one of them a bare reply does not
    count as an answer. A code still does, and so does a reply to the question."""
    after: str | None = None
    """The platform's handle of the newest bot message on the writer's screen, where the platform tells it."""
    replayed: bool = False
    """True when the gateway replays the message out of a dead letter. No channel sets this."""
    before: tuple[str, ...] = ()
    """Earlier lines of the group that other people wrote, not to the bot. The gateway sets this, no channel does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ButtonPress(Event):
    """A press on a button of one of the bot's messages."""

    token: str
    message_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEdited(Event):
    """A change of a message by its writer."""

    message_id: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction(Event):
    """An emoji that a person put on a message or took away."""

    message_id: str
    emoji: str
    added: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReport(Event):
    """A delivery report: the platform says whether a message of the bot was sent, delivered, read or lost.

    A report without a message id, as Telegram's are, is about the whole chat: it became reachable or unreachable.
    """

    message_id: str | None = None
    status: Literal["sent", "delivered", "read", "failed"]
    code: str | None = None
    key: str | None = None
    """The `key` of the sent part, where the platform returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptOut(Event):
    """An opt-out: the person blocked the bot or wrote a carrier's stop word. With `opted_in` they took it back."""

    opted_in: bool = False
    told: bool = True
    """True when the platform confirms it to the person, or blocks messages: the gateway then sends no confirmation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationMoved(Event):
    """A move of a conversation from `came_from` to `address` by the platform. Its old message ids are void."""

    came_from: Address


_KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (Message, ButtonPress, MessageEdited, Reaction, DeliveryReport, OptOut, ConversationMoved)
}


def event_to_json(event: Event) -> dict[str, object]:
    """Return the stored form: the event's fields, and its class under ``kind``."""
    kind = type(event).__name__
    body: dict[str, object] = _adapter(kind).dump_python(event, mode="json", exclude_defaults=True)
    return {"kind": kind, **body}


def event_to_text(event: Event) -> str:
    """Return the stored form as JSON text. Raises ValueError for lone surrogates, which UTF-8 cannot encode."""
    kind = type(event).__name__
    fields = _adapter(kind).serializer.to_json(event, exclude_defaults=True).decode()
    return f'{{"kind":"{kind}",{fields[1:]}'


def event_from_json(stored: dict[str, object]) -> Event:
    """Read an event from its stored form. Raises ValueError when it is not one."""
    body = dict(stored)
    kind = body.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"not a stored event: kind {kind!r}")
    return _adapter(str(kind)).validate_python(body)


def _escaped(text: str, end: str) -> str:
    """Escape the character `end`, which ends the field of this text.

    All other characters stay as they are, because written forms are keys in the store.
    """
    if "%" in text:
        text = _READS_AS_ESCAPE.sub("%25", text)
    return text.replace(end, f"%{ord(end):02X}") if end in text else text


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text) if "%" in text else text


@cache
def _adapter(kind: str) -> TypeAdapter[Event]:
    """Build the adapter of an event class at its first use: building one takes milliseconds."""
    return TypeAdapter(_KINDS[kind])
