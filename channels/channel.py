"""The contract of a channel, the powers it may have beyond it, and its errors.

AskfirstError
├── MissingSetting          a channel's settings are there by half
├── Forged                  the request is not the platform's
├── Stale                   it was, but too long ago
├── Malformed               authentic, but not the platform's encoding at all
└── SendError
    ├── RateLimited         try again after retry_after_seconds
    ├── Unavailable         surely not taken: connection refused, an answered 5xx, a token that is no longer good
    ├── Undeliverable       permanent: blocked, no such chat
    │   ├── OptedOut        the person wants to hear nothing
    │   └── Unreachable     nothing gets through there any more: the bot is blocked or was removed
    └── Ambiguous           no answer after the body went out: it may have been taken
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self, TypeAlias, runtime_checkable

from channels.events import Address, Attachment, Event, Message, Person
from channels.replies import Part, Receipt, Reply

if TYPE_CHECKING:
    import aiohttp

__all__ = [
    "Ambiguous",
    "AskfirstError",
    "CanAnswer",
    "CanAskAgain",
    "CanEdit",
    "CanFetch",
    "CanLookUp",
    "CanOpen",
    "CanOrder",
    "CanPoll",
    "CanRegister",
    "CanShowCommands",
    "CanStream",
    "CanType",
    "CanVouch",
    "Capabilities",
    "Channel",
    "Forged",
    "Malformed",
    "MissingSetting",
    "NotOurs",
    "OptedOut",
    "Pace",
    "Parsed",
    "RateLimited",
    "SendError",
    "SharesWebhook",
    "Stale",
    "StreamHandle",
    "Unavailable",
    "Undeliverable",
    "Unreachable",
    "Way",
    "WebhookRequest",
    "WebhookResponse",
]


Way: TypeAlias = Literal["webhook", "polling"]
"""How a platform's messages come in."""


class AskfirstError(Exception):
    """The root of every error of ours."""


class MissingSetting(AskfirstError):
    """A setting that a channel needs is absent or unsafe.

    `setting` names the variable and `mend` says what to do about it.
    """

    def __init__(self, setting: str, mend: str) -> None:
        super().__init__(f"{setting}: {mend}")
        self.setting, self.mend = setting, mend


class Forged(AskfirstError):
    """The request does not prove that it comes from the platform."""


class NotOurs(Forged):
    """The request is about an account or a number that is not ours. The text names the setting and the mend."""


class Stale(AskfirstError):
    """The request's proof is too old, or from the future."""


class Malformed(AskfirstError):
    """An authentic request whose body is not in the platform's encoding at all."""


class SendError(AskfirstError):
    """A platform did not take a part. `code` is the platform's, without any text of a person."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class RateLimited(SendError):
    """Too many calls: try again later."""

    def __init__(self, code: str, *, retry_after_seconds: float) -> None:
        super().__init__(code)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(SendError):
    """Surely not taken, and no fault of the part's: the connection was refused, a 5xx was answered, or a 4xx that is
    not the platform's own, or the platform takes our token no longer.

    `mend` names the setting that the operator has to mend before anything is taken again; None: it may pass by itself.
    """

    def __init__(self, code: str, *, mend: MissingSetting | None = None) -> None:
        super().__init__(code)
        self.mend = mend


class Undeliverable(SendError):
    """The platform itself says that it will never take this part: the bot is blocked, there is no such chat, the person
    opted out."""


class OptedOut(Undeliverable):
    """The person has told the platform or the carrier that they want to hear nothing more from us."""


class Unreachable(Undeliverable):
    """Nothing gets through to this place until something comes from it: the bot is blocked or was removed, or there is
    no such chat."""


class Ambiguous(SendError):
    """No answer came after the body went out: it may have been taken."""


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """One HTTP request as the platform made it."""

    method: str
    url: str
    """As the platform called it: the public URL, path and query."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """The answer to one HTTP request."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a request held, and what the platform expects to hear once it is stored."""

    events: tuple[Event, ...]
    response: WebhookResponse
    not_understood: bool = False
    """Authentic, but of a shape we do not know: its shape is counted, and it is answered 200."""
    payload: bytes = b""
    """What was not understood, as it came; filled in by whoever received it."""
    doubt: str = ""
    """Why its channel's platform has to be asked whether it sent this, in words without a value; see `CanVouch`."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a platform lets us send; None: no limit known."""

    account_per_second: float | None = None
    place_per_second: float | None = None
    group_per_minute: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a channel's platform can show and how much of it."""

    max_text: int
    """Characters of one message, counted as the platform counts (UTF-16 units on Telegram)."""
    max_caption: int = 0
    buttons: int = 0
    """Buttons under one message; 0: prompts are answered in words."""
    button_label: int = 0
    """Characters of a button's label."""
    media: Mapping[str, int] = field(default_factory=dict)
    """Kind of media -> the largest size in bytes: image, audio, video, document."""
    text_files: bool = True
    """A file of plain text can be shown, as a file or as a link to it. False: what needs one is not asked here."""
    pace: Pace = Pace()
    visible: bool = False
    """Delivered means written to the conversation's visible log, which the channel's page reads."""
    redelivers: bool = False
    """What is answered with an error comes again, so a new message may be refused when too much waits."""
    opt_out: bool = False
    """Who wants to hear nothing more can still write: until they take it back, nothing may be sent."""
    reports: bool = False
    """The platform says later what became of a message that it took."""
    accents: bool = True
    """Letters with accents cost nothing. False: our own words go without those that GSM 03.38 lacks."""
    keep_seconds: float = 7 * 86400.0
    """How long an event's ids are remembered: longer where an old request still proves itself."""
    bare_yes: Literal["ordered", "reported", "never"] = "never"
    """What shows that a bare yes was written after the question.

    ``ordered``: the platform's own order of messages, which `CanOrder` reads. ``reported``: the platform's report that
    the question was delivered or read. ``never``: nothing does; a button, a code or a reply to the question is needed.
    """
    edit: bool = False
    stream: bool = False
    typing: bool = False


@runtime_checkable
class SharesWebhook(Protocol):
    """A channel whose platform calls one URL for several channels."""

    webhooks: ClassVar[tuple[str, ...]]
    """What comes after ``/webhooks/`` in the URLs that it shares."""

    def takes(self, request: WebhookRequest) -> bool:
        """Whether a request to one of them is for this channel. Total over any bytes; nothing is proven yet."""
        ...


class Channel(Protocol):
    """A platform we speak."""

    name: ClassVar[str]
    capabilities: Capabilities

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, way: Way) -> Self:
        """Make the channel of its settings. Raises MissingSetting."""
        ...

    async def start(self, http: aiohttp.ClientSession) -> None:
        """Learn the bot's own id; keep the session for sending. Called again after it failed.

        Raises MissingSetting for what the platform says is wrong, else SendError.
        """
        ...

    async def close(self) -> None: ...

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        """Raises Forged or Stale and nothing else, whatever the bytes."""
        ...

    def parse(self, request: WebhookRequest) -> Parsed:
        """Pure. Raises Malformed for what is not the platform's encoding."""
        ...

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        """Pure: the platform calls that say this reply, in order."""
        ...

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        """Make one call. Raises SendError, which is Unavailable until `start` has reached the platform.

        `key` is the part's own id, the same on every retry. A part's media is an OpenMedia here.
        """
        ...


@runtime_checkable
class CanEdit(Protocol):
    async def edit(self, address: Address, message_id: str, part: Part) -> None: ...


@runtime_checkable
class CanType(Protocol):
    async def typing(self, address: Address) -> None:
        """Show for some seconds that an answer is being written. Raises nothing but SendError."""
        ...


class StreamHandle(Protocol):
    async def update(self, text: str) -> None: ...
    async def finish(self, parts: Sequence[Part]) -> Sequence[Receipt]: ...


@runtime_checkable
class CanStream(Protocol):
    async def stream(self, address: Address) -> StreamHandle: ...


@runtime_checkable
class CanFetch(Protocol):
    def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """The file's bytes, bounded by the platform's own limit."""
        ...


@runtime_checkable
class CanAnswer(Protocol):
    async def answer(self, handle: str, text: str, *, private: bool) -> None:
        """Answer a press at once, best effort: it raises nothing."""
        ...


@runtime_checkable
class CanVouch(Protocol):
    """A platform whose signature does not prove every form that carries it, and that can be asked what it sent."""

    async def vouch(self, request: WebhookRequest, parsed: Parsed) -> Parsed:
        """Return what of a doubted request may be taken: all of it, if the platform says that it sent this.

        Without an answer, what can be taken without deciding anything. Raises Forged when the platform did not send it,
        and SendError when nothing can be taken without its answer.
        """
        ...


@runtime_checkable
class CanAskAgain(Protocol):
    """A platform that delivers once: an error would bring back what was not stored no more than a success."""

    def ask_again(self, text: str) -> WebhookResponse:
        """The answer to a message that was not stored, with which its person is told this plain text."""
        ...


@runtime_checkable
class CanOpen(Protocol):
    async def open(self, person: Person) -> Address:
        """The address of a private conversation with this person. Raises Undeliverable."""
        ...


@runtime_checkable
class CanLookUp(Protocol):
    async def look_up(self, address: Address, part: Part, *, key: str, since: datetime) -> Receipt | None:
        """The receipt of a part that may have been sent with this `key` after `since`, the last of all that were.

        A platform that keeps no key is searched for the part itself. None: it is not there. Raises SendError, also when
        nobody can tell.
        """
        ...


@runtime_checkable
class CanOrder(Protocol):
    """A platform that says which of two messages was written first; see `Capabilities.bare_yes`."""

    def follows(self, message: Message, receipt: Receipt) -> bool:
        """Return whether the platform's own order says that `message` was written after ours, the one of this receipt.

        Pure. False when it cannot tell.
        """
        ...


@runtime_checkable
class CanPoll(Protocol):
    def poll(self) -> AsyncIterator[tuple[Event, ...]]:
        """Fetch events until cancelled. Asking for the next ones says that the last ones are stored."""
        ...


@runtime_checkable
class CanShowCommands(Protocol):
    async def set_commands(self, commands: Mapping[str, Mapping[str, str]]) -> None:
        """The platform's menu: language -> command -> description; the language "" is everybody else's."""
        ...


@runtime_checkable
class CanRegister(Protocol):
    async def registered(self) -> str | None: ...
    async def register(self, url: str) -> None: ...
    async def unregister(self) -> None: ...
