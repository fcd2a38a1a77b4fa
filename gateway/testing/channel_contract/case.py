"""The case of a channel: the requests of the platform, and a double of the platform."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias

from channels import Address, Attachment, Channel, Message, Parsed, Receipt, WebhookRequest

RETRY_AFTER_SECONDS = 17
"""The wait in seconds requested by a `limited` answer."""

Fault: TypeAlias = Literal["limited", "refused", "unauthorized", "page", "broken", "cut", "silent", "away"]
"""The answer of the platform's double to the channel's next message.

``limited``: too many requests; try again after RETRY_AFTER_SECONDS. ``refused``: a permanent refusal, for example
because the person has blocked the bot. ``unauthorized``: the token, key or password of the bot is no longer valid.
``page``: a 403 with an HTML page, from a firewall between the bot and the platform. ``broken``: a server error, a 5xx.
``cut``: the request is read whole, and then the connection is closed without an answer. ``silent``: the request is read
whole, and not answered while the channel waits. Give the channel a short timeout. ``away``: the double no longer
listens; connections are refused from now on.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A request as documented by the platform, and the expected result of `parse`."""

    name: str
    request: WebhookRequest
    """The request without the platform's proof."""
    parsed: Parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageField:
    """A documented field of a person's message."""

    name: str
    value: Any
    """A possible value of the field."""
    spoils: bool
    """True if a message with the field is not only words typed here to the bot: a quote, a share, a caption."""


class _ShownByName:
    """An object with a short repr: the full contents would fill the screen when a test fails."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the short repr; Hypothesis calls this."""
        printer.text(repr(self))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Webhook(_ShownByName):
    """The webhook requests of the platform."""

    deliveries: Sequence[Delivery]
    """At least one delivery of each kind read by the channel."""
    says: Callable[[str], WebhookRequest]
    """Return the request for a person's message with this text, encoded as on the platform, without the proof.

    Each call is another message. The text may hold characters impossible for a person to type: NUL, lone surrogates.
    """
    presses: Callable[[str], WebhookRequest] | None = None
    """Return the request for a press of a button with this token; None if the platform shows no buttons."""
    fields: Sequence[MessageField] = ()
    """Every documented field of a message, and each text style. Needed if the channel takes bare replies."""
    holding: Callable[[Mapping[str, Any]], WebhookRequest] | None = None
    """Return the request for a "yes", as with `says`, in a message with these fields. Required together with
    `fields`."""
    prove: Callable[[WebhookRequest, datetime, int], WebhookRequest]
    """Return the request as sent at this moment, with the platform's proof. The number counts attempts from 1.

    Make the proof as the platform does, if possible with the platform's own library.
    """
    proof: Sequence[str]
    """The headers of the proof, in lower case. A request with any of these headers missing is forged."""
    covers_body: bool
    """True if the proof covers the body."""
    window_seconds: tuple[float, float] | None = None
    """The validity of a proof: the seconds after the proof's moment, and the seconds before. None: a proof without
    time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivedFile:
    """A file as received by the platform."""

    content: bytes
    mime_type: str | None
    """None if the platform finds the type by the name or the bytes."""
    filename: str | None
    """None if the platform shows no name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A message as seen by the person."""

    message_id: str | None
    """None if the platform does not report the id."""
    text: str
    """The words, and the URLs of links. The text may hold the platform's markup, but no escapes."""
    buttons: tuple[tuple[str, str], ...] = ()
    """The label and the token of each button."""
    file: ArrivedFile | None = None


class Platform(Protocol):
    """A double of the platform: a real server with the platform's limits and errors."""

    @property
    def calls(self) -> int:
        """The number of calls so far, of any kind."""
        ...

    def arrived(self) -> Sequence[Arrived]:
        """Return the bot's messages in the chat in the present state, oldest first."""
        ...

    async def fail(self, fault: Fault) -> None:
        """Answer the next message with this fault."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChannelCase(_ShownByName):
    """A channel, and everything required by the contract's tests."""

    channel: type[Channel]
    settings: Mapping[str, str]
    """The settings of a channel connected to the double. The contract searches the logs for the secret settings."""
    address: Address
    """A chat with a person who can receive the bot's messages."""
    webhook: Webhook | None
    """None for a channel without webhook: a polling channel, or the bot's own page."""
    platform: Platform | None
    """None for a channel with messages read from the visible log (`Capabilities.visible`)."""
    recognises_keys: bool = False
    """True if a part sent again under the same key is shown once."""
    keeps: Callable[[bytes], Attachment] | None = None
    """For CanFetch: return the attachment of a person's file with these bytes."""
    handle: Callable[[], str] | None = None
    """For CanAnswer: return the `answer_to` of a new press of a button."""
    answered: Callable[[Receipt, bool], Message] | None = None
    """For CanOrder: return a person's "yes" as returned by `parse`, written before the bot's message of this receipt
    (False) or after the message (True)."""
    writes: Callable[[str], Awaitable[None]] | None = None
    """For CanPoll: let a person write this text. The message then waits to be polled."""
