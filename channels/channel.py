"""The channel contract: the protocol, its values and its errors. `channels.powers` has the optional powers.

AskfirstError
├── MissingSetting          a setting of a channel is missing or unsafe
├── Forged                  the request does not come from the platform
├── Stale                   the proof of the request is too old, or from the future
├── Malformed               authentic, but not in the platform's encoding
├── PollingRefused          the platform does not let this process poll
└── SendError
    ├── RateLimited         too many calls: retry after retry_after_seconds
    ├── Unavailable         certainly not accepted: connection refused, an answered 5xx, an expired or revoked token
    ├── Undeliverable       permanent: blocked, no such chat
    │   ├── OptedOut        the person has opted out
    │   ├── Unreachable     the whole place is closed: the bot is blocked or was removed
    │   └── PlaceRefused    not here, but perhaps elsewhere: no rights, or a closed thread
    └── Ambiguous           no answer after the body went out: the platform may have accepted the part
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self, TypeAlias

from channels.errors import AskfirstError
from channels.events import Address, Event
from channels.replies import Part, Receipt, Reply

if TYPE_CHECKING:
    import aiohttp


Way: TypeAlias = Literal["webhook", "polling"]
"""The way in which a platform's messages come in."""


class MissingSetting(AskfirstError):
    """A necessary setting of a channel is absent or unsafe.

    `setting` names the variable. `mend` is the instruction for the operator.
    """

    def __init__(self, setting: str, mend: str) -> None:
        super().__init__(f"{setting}: {mend}")
        self.setting, self.mend = setting, mend


class Forged(AskfirstError):
    """The request has no valid proof that it comes from the platform."""


class NotOurs(Forged):
    """The request is about an unconfigured account or number. The text names the setting and the mend."""


class Stale(AskfirstError):
    """The request's proof is too old, or from the future."""


class Malformed(AskfirstError):
    """The request is authentic, but its body is not in the platform's encoding."""


class PollingRefused(AskfirstError):
    """The platform does not let this process poll.

    The platform serves another receiver, or refuses the token. The message gives the mend.
    """


class SendError(AskfirstError):
    """The platform did not accept a part. `code` is the platform's own code and holds no text of a person."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


_LONGEST_WAIT_SECONDS = 86_400.0


class RateLimited(SendError):
    """The platform's rate limit was reached: retry after `retry_after_seconds`, a day at most."""

    def __init__(self, code: str, *, retry_after_seconds: float) -> None:
        super().__init__(code)
        asked = retry_after_seconds
        self.retry_after_seconds = float(asked) if 0 <= asked <= _LONGEST_WAIT_SECONDS else _LONGEST_WAIT_SECONDS


class Unavailable(SendError):
    """The platform certainly did not accept the part, for a reason outside of the part.

    The connection was refused, a 5xx was answered, a 4xx came from another server than the platform, or the platform no
    longer accepts the token. `mend` names the first setting for the operator to mend. None: the failure may be
    temporary.
    """

    def __init__(self, code: str, *, mend: MissingSetting | None = None) -> None:
        super().__init__(code)
        self.mend = mend


class Undeliverable(SendError):
    """The platform will never accept this part: the bot is blocked, the chat does not exist, the person opted out."""


class OptedOut(Undeliverable):
    """The person has opted out of the bot's messages, with the platform or the carrier."""


class Unreachable(Undeliverable):
    """The place accepts no message until an event comes from there.

    The bot is blocked or was removed, or the chat does not exist.
    """


class PlaceRefused(Undeliverable):
    """The place does not take this part from the bot, for lack of rights. Another place may take the part.

    `thread`: only the thread refuses. The thread is closed, locked or deleted, and the place around may take the part.
    """

    def __init__(self, code: str, *, thread: bool = False) -> None:
        super().__init__(code)
        self.thread = thread


class Ambiguous(SendError):
    """No answer came after the body went out: the platform may have accepted the part."""


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """An HTTP request as the platform made it."""

    method: str
    url: str
    """The called URL: the public URL, path and query."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """The answer to an HTTP request."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The events of a request, and the response to the platform once all events are stored."""

    events: tuple[Event, ...]
    response: WebhookResponse
    not_understood: bool = False
    """True when the request is authentic, but of an unknown shape. The gateway counts the shape and answers 200."""
    payload: bytes = b""
    """The body of a request with `not_understood`. The gateway fills in this field."""
    doubt: str = ""
    """The reason to ask the platform about this request's origin, without a value of the request. See `CanVouch`."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The sending rates of a platform. None: no known limit."""

    account_per_second: float | None = None
    place_per_second: float | None = None
    group_per_minute: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The abilities and limits of a channel's platform."""

    max_text: int
    """The longest message in characters, counted as the platform counts (UTF-16 units on Telegram)."""
    max_caption: int = 0
    buttons: int = 0
    """The most buttons under one message. 0: people answer prompts in words."""
    button_label: int = 0
    """The longest label of a button, in characters."""
    media: Mapping[str, int] = field(default_factory=dict)
    """Kind of media (image, audio, video, document) -> the largest size in bytes."""
    text_files: bool = True
    """True when a text file can be shown, as a file or a link. False: a question with a text file is not asked here."""
    pace: Pace = Pace()
    visible: bool = False
    """True when a part is delivered by a line in the visible log, for the channel's page to read."""
    redelivers: bool = False
    """True when the platform repeats a request answered with an error. New messages may then be refused under load."""
    opt_out: bool = False
    """True when a person can opt out and still write. The person gets no message until the next opt-in."""
    reports: bool = False
    """True when the platform sends delivery reports of accepted messages."""
    local_times: bool = False
    """True when the channel shows the times of an exact reply, written by `channels.formatting.time_link`, in the time
    zone of the reader."""
    accents: bool = True
    """False when accents cost extra: the gateway's own texts are then sent without the accents missing in GSM 03.38."""
    keep_seconds: float = 7 * 86400.0
    """How long the ids of events are kept for deduplication. Longer where an old request stays authentic."""
    bare_yes: Literal["ordered", "reported", "never"] = "never"
    """The proof of the order: first the question, then a bare yes.

    ``ordered``: the platform's own order of messages, read by `CanOrder`. ``reported``: the platform's report of the
    delivery or the reading of the question. ``never``: no proof; only a button, a code or a reply to the question
    counts.
    """
    numbers: bool = True
    """True when the reader of a numbered list can answer by numbers. Numbers count under the rule of `bare_yes`."""
    edit: bool = False
    stream: bool = False
    typing: bool = False


class Channel(Protocol):
    """The adapter of one platform."""

    name: ClassVar[str]
    capabilities: Capabilities

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, way: Way) -> Self:
        """Make the channel from its settings. Raises MissingSetting."""
        ...

    async def start(self, http: aiohttp.ClientSession) -> None:
        """Ask the platform for the bot's own id, and keep the session for sending. Called again after a failure.

        Raises MissingSetting for a setting refused by the platform, else SendError.
        """
        ...

    async def close(self) -> None: ...

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        """Check that the platform sent the request. Raises Forged or Stale and no other error, for any bytes."""
        ...

    def parse(self, request: WebhookRequest) -> Parsed:
        """Return the events of a request. Pure. Raises Malformed for a body not in the platform's encoding."""
        ...

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        """Return the calls of the platform for a reply, in order. Pure."""
        ...

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        """Make one call of the platform. Raises SendError, always Unavailable before `start` has reached the platform.

        `key` is the part's id, the same on every retry. The part's media is an `OpenMedia` here.
        """
        ...


def is_one_message(channel: Channel, address: Address, reply: Reply) -> bool:
    """Return True if the platform shows a reply without files, with all buttons, in a single message. Pure."""
    if len(reply.buttons) > channel.capabilities.buttons:
        return False
    # Rendering is exact, but most questions are far shorter than any limit.
    return len(reply.text) * _MOST_UNITS <= channel.capabilities.max_text or len(channel.render(address, reply)) == 1


_MOST_UNITS = 4
"""The most units of a platform for a character of Markdown, including all added markup."""
