"""What the author of a channel tells the contract: how its platform speaks, and a double of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias

from channels import Address, Attachment, Channel, Message, Parsed, Receipt, WebhookRequest

__all__ = [
    "RETRY_AFTER_SECONDS",
    "Arrived",
    "ArrivedFile",
    "ChannelCase",
    "Delivery",
    "Fault",
    "MessageField",
    "Platform",
    "Webhook",
]

RETRY_AFTER_SECONDS = 17
"""The wait that a `limited` answer asks for."""

Fault: TypeAlias = Literal["limited", "refused", "unauthorized", "page", "broken", "cut", "silent", "away"]
"""What becomes of the next message that the channel sends.

``limited``: answered that there are too many; try again after RETRY_AFTER_SECONDS.
``refused``: answered that it will never be taken; the person has blocked the bot, say.
``unauthorized``: answered that our token (or key, or password) is not good any more.
``page``: answered by something between us and the platform, a firewall say: 403, and a page in HTML.
``broken``: answered with a server error, a 5xx.
``cut``: read whole, and then the connection ends without an answer.
``silent``: read whole, and not answered while the channel waits. Give the channel a short time limit for it.
``away``: nobody listens any more; connections are refused from now on.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A request as the platform documents it, and what it must become."""

    name: str
    request: WebhookRequest
    """Without the platform's proof."""
    parsed: Parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageField:
    """A field that the platform documents of a person's message."""

    name: str
    value: Any
    """One that the field may have."""
    spoils: bool
    """Whether a message with it is something else than words typed here to the bot: a quote, a share, a caption."""


class _Brief:
    """Shown by its name: all that is in it would fill the screen of whoever looks for what failed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How Hypothesis shows it."""
        printer.text(repr(self))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Webhook(_Brief):
    """How the platform calls us."""

    deliveries: Sequence[Delivery]
    """At least one of each kind that the channel reads."""
    says: Callable[[str], WebhookRequest]
    """A person writes this text: one more message with each call, encoded as the platform does, without its proof.

    It is also asked for texts that no person can write: NUL, lone surrogates.
    """
    presses: Callable[[str], WebhookRequest] | None = None
    """A person presses a button with this token; None where the platform shows no buttons."""
    fields: Sequence[MessageField] = ()
    """Every field that the platform documents of a message, and each text style; needed where a bare yes counts."""
    holding: Callable[[Mapping[str, Any]], WebhookRequest] | None = None
    """A person writes "yes", as with `says`, in a message that has these fields too; given together with `fields`."""
    prove: Callable[[WebhookRequest, datetime, int], WebhookRequest]
    """The request as it is sent at that moment, with the platform's proof. The number is 1 for the first attempt.

    Make the proof as the platform does, best with its own library.
    """
    proof: Sequence[str]
    """The headers that hold the proof, in lower case: without any one of them a request is forged."""
    covers_body: bool
    """Whether the proof is of this one body."""
    window_seconds: tuple[float, float] | None = None
    """How long after its moment a proof holds, and how long before it; None: the platform's proof has no time in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivedFile:
    """A file as the platform got it."""

    content: bytes
    mime_type: str | None
    """None where the platform goes by the name or the bytes."""
    filename: str | None
    """None where the platform shows no name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A message as the person sees it."""

    message_id: str | None
    """None where the platform does not tell it."""
    text: str
    """The words, and the addresses of links. The platform's marks may be in it, its escapes not."""
    buttons: tuple[tuple[str, str], ...] = ()
    """Label and token of each."""
    file: ArrivedFile | None = None


class Platform(Protocol):
    """A double of the platform: a real server with the platform's limits and errors."""

    @property
    def calls(self) -> int:
        """How many calls it got so far, of any kind."""
        ...

    def arrived(self) -> Sequence[Arrived]:
        """The bot's messages in the chat as they look now, oldest first."""
        ...

    async def fail(self, fault: Fault) -> None:
        """What becomes of the next message."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChannelCase(_Brief):
    """A channel, and all that the contract must know to try it."""

    channel: type[Channel]
    settings: Mapping[str, str]
    """What makes the channel, so that it calls the double. Those whose `Setting` is secret are looked for in logs."""
    address: Address
    """A chat with a person, in which the bot may write."""
    webhook: Webhook | None
    """None for a channel that nobody calls: it polls, or it is the bot's own."""
    platform: Platform | None
    """None for a channel whose messages are read from the visible log (`Capabilities.visible`)."""
    recognises_keys: bool = False
    """Whether a part that is sent again under its key is shown once."""
    keeps: Callable[[bytes], Attachment] | None = None
    """For CanFetch: a person sends a file with these bytes."""
    handle: Callable[[], str] | None = None
    """For CanAnswer: a person presses a button; the event's `answer_to`."""
    answered: Callable[[Receipt, bool], Message] | None = None
    """For CanOrder: a person's "yes" as `parse` gives it, written before our message of this receipt (False) or after
    it (True)."""
    writes: Callable[[str], Awaitable[None]] | None = None
    """For CanPoll: a person writes, and the message waits to be polled."""
