"""The events. A channel makes events from the requests of its platform."""

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
    """A person on a platform. Two Person values with equal written forms are the same person."""

    channel: str
    account: str
    """The operator's bot, team or number: the person's counterpart."""
    user_id: str
    name: str | None = None
    """The name chosen by the person."""
    handle: str | None = field(default=None, compare=False)
    """The platform's own unique name for the person, without a sign in front."""
    language: str | None = None
    """The platform's hint, a BCP 47 tag."""
    is_bot: bool = False
    """True for bots, channel posts and anonymous admins. These never decide an action."""
    is_guest: bool = field(default=False, compare=False)
    """True for a person of another workspace in a shared channel (Slack Connect). The platform does not always tell."""

    def __str__(self) -> str:
        """Return the written form, used everywhere and unique for each person: ``telegram:123:456``."""
        return f"{_escaped(self.channel, ':')}:{_escaped(self.account, ':')}:{self.user_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the written form. Raises ValueError when one of the three parts is missing."""
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
        """Read the written form. `group` is not a part of the written form and stays False.

        Raises ValueError when one of the three parts is missing.
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
    """The size in bytes as declared by the platform. None for an absent or impossible size."""

    def __post_init__(self) -> None:
        # JSON readers disagree on integers of more than 64 bits: the seal of an event could fail, or not match.
        if self.size is not None and not 0 <= self.size < _NO_SIZE:
            object.__setattr__(self, "size", None)


def kind_of(mime_type: str) -> Literal["image", "audio", "video", "document"]:
    """Return the kind of a file with this declared type."""
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
    """One thing reported by a platform."""

    event_ids: tuple[str, ...]
    """The platform's ids for deduplication: an event with a known id is a twin."""
    address: Address
    person: Person | None
    sent_at: datetime | None = None
    answer_to: str | None = None
    """The opaque handle for `CanAnswer.answer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Event):
    """A message written by a person."""

    text: str = ""
    message_id: str | None = None
    command: str | None = None
    """``start`` for ``/start`` and slash commands; ``text`` is then the rest of the message."""
    reply_to: str | None = None
    """The id of the replied-to message."""
    attachments: tuple[Attachment, ...] = ()
    album: str | None = None
    """The platform's id of the album. Each file of an album comes as a separate message."""
    mentions_bot: bool = False
    answers_bot: bool = False
    """True for a reply to a message of the bot, or in a thread begun by a message of the bot."""
    forwarded: bool = False
    """True for a message of other words than the person's own: its text never decides, and holds no command."""
    via_bot: bool = False
    transcribed: bool = False
    opts_in: bool = False
    """True when carriers take the message for the end of an opt-out, though the gateway first reads an answer."""
    spoiled_by: tuple[str, ...] = ()
    """Names of fields of the platform's message with other content than words typed here to the bot: a quote, a share,
    a caption, a text style like strikethrough. A message with a field of this kind never counts as an answer."""
    unknown_fields: tuple[str, ...] = ()
    """Names of fields of the platform's message unknown to this release. With an unknown field a bare reply does not
    count as an answer. A code still counts, and so does a reply to the question."""
    after: str | None = None
    """The platform's handle of the newest bot message on the writer's screen, if the platform sends this handle."""
    replayed: bool = False
    """True when the gateway replays the message out of a dead letter. No channel sets this."""
    before: tuple[str, ...] = ()
    """Earlier lines of the group, written by other people and not to the bot. Set by the gateway, by no channel."""
    shared: tuple[str, ...] = ()
    """Texts of other messages forwarded beside the person's own words, each with its writer if known."""
    votes_only: bool = False
    """True for a stranger, let in to answer a question put to the group. Set by the gateway, by no channel."""

    @property
    def written(self) -> str:
        """The text as the person wrote it, with the command."""
        return f"/{self.command} {self.text}".rstrip() if self.command else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ButtonPress(Event):
    """A press on a button of one of the bot's messages."""

    token: str
    message_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStopped(Event):
    """A press on the platform's own button to stop the answer being written. Open questions stay open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback(Event):
    """The opinion of a person about a message of the bot. None takes an earlier opinion back."""

    message_id: str
    value: Literal["up", "down"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEdited(Event):
    """A change of a message by its writer."""

    message_id: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction(Event):
    """An emoji, put on a message or taken away by a person."""

    message_id: str
    emoji: str
    added: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReport(Event):
    """A delivery report: the platform reports a message of the bot as sent, delivered, read or lost.

    A report without a message id, as from Telegram, is about the whole chat: now reachable or unreachable.
    """

    message_id: str | None = None
    status: Literal["sent", "delivered", "read", "failed"]
    code: str | None = None
    key: str | None = None
    """The `key` of the sent part, if the platform returns the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptOut(Event):
    """An opt-out: the person blocked the bot or wrote a carrier's stop word. `opted_in`: the opt-out has ended."""

    opted_in: bool = False
    told: bool = True
    """True when the platform itself confirms the opt-out or blocks messages: the gateway sends no confirmation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationMoved(Event):
    """A move of a conversation from `came_from` to `address` by the platform. The old message ids are void."""

    came_from: Address


_EVENTS = (
    Message,
    ButtonPress,
    AnswerStopped,
    Feedback,
    MessageEdited,
    Reaction,
    DeliveryReport,
    OptOut,
    ConversationMoved,
)
_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in _EVENTS}


def event_to_json(event: Event) -> dict[str, object]:
    """Return the stored form: the event's fields, and its class under ``kind``."""
    kind = type(event).__name__
    body: dict[str, object] = _adapter(kind).dump_python(event, mode="json", exclude_defaults=True)
    return {"kind": kind, **body}


def event_to_text(event: Event) -> str:
    """Return the stored form as JSON text. Raises ValueError for lone surrogates, impossible in UTF-8."""
    kind = type(event).__name__
    fields = _adapter(kind).serializer.to_json(event, exclude_defaults=True).decode()
    return f'{{"kind":"{kind}",{fields[1:]}'


def event_from_json(stored: dict[str, object]) -> Event:
    """Read an event from its stored form. Raises ValueError for any other form."""
    body = dict(stored)
    kind = body.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"not a stored event: kind {kind!r}")
    return _adapter(str(kind)).validate_python(body)


def _escaped(text: str, end: str) -> str:
    """Escape the character `end`, the end of this text's field.

    All other characters stay unchanged, because written forms are keys in the store.
    """
    if "%" in text:
        text = _READS_AS_ESCAPE.sub("%25", text)
    return text.replace(end, f"%{ord(end):02X}") if end in text else text


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text) if "%" in text else text


@cache
def _adapter(kind: str) -> TypeAdapter[Event]:
    """Build the adapter of an event class at first use: a build takes milliseconds."""
    return TypeAdapter(_KINDS[kind])
