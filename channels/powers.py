"""The optional powers of a channel (`Can...`): each is a protocol, and the gateway checks a channel for each power."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Protocol, runtime_checkable

from channels.channel import Parsed, WebhookRequest, WebhookResponse
from channels.events import Address, Attachment, Event, Message, Person
from channels.replies import Part, Receipt


@runtime_checkable
class SharesWebhook(Protocol):
    """Power of a channel that shares a webhook URL with other channels."""

    webhooks: ClassVar[tuple[str, ...]]
    """The shared paths under ``/webhooks/``."""

    def takes(self, request: WebhookRequest) -> bool:
        """Return True if a request to a shared URL is for this channel. Raises no error and proves no origin."""
        ...


@runtime_checkable
class CanEdit(Protocol):
    async def edit(self, address: Address, message_id: str, part: Part) -> None: ...


@runtime_checkable
class CanType(Protocol):
    async def typing(self, address: Address) -> None:
        """Show the bot as writing for some seconds. Raises SendError and no other error."""
        ...


@runtime_checkable
class CanTypeUnder(Protocol):
    """Power of a channel to show the bot as at work under a message, also outside of a thread."""

    async def typing_under(self, address: Address, message_id: str, *, ends: bool = False) -> None:
        """Show the bot as at work on this message for some seconds, or end this display with `ends`.

        Raises SendError and no other error.
        """
        ...


class StreamHandle(Protocol):
    """A growing text in a chat, as a preview. The final text is sent by `finish`, or by `send`."""

    @property
    def interval_seconds(self) -> float:
        """The least time between two updates, below the platform's limits."""
        ...

    @property
    def message_ids(self) -> Sequence[str]:
        """The messages with the text, in order. Empty before the first update, and if no message stays."""
        ...

    async def update(self, text: str) -> None:
        """Show the text so far, as Markdown that may break off anywhere. Raises SendError."""
        ...

    async def finish(self, parts: Sequence[Part]) -> Sequence[Receipt]:
        """Put these parts in the place of the messages, and return their receipts. Raises SendError.

        A message without a part is taken away; an already missing message counts as taken away. There are no more parts
        than messages. The call is idempotent. Raises Undeliverable for a part of a missing message.
        """
        ...


@runtime_checkable
class CanStream(Protocol):
    """Power of a channel that shows an answer while the model writes. Used if `Capabilities.stream` is True."""

    async def stream(self, address: Address, *, message_ids: Sequence[str] = ()) -> StreamHandle:
        """Return a stream in new messages, or in the messages of an earlier stream. Calls no platform."""
        ...


@runtime_checkable
class CanFetch(Protocol):
    def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Yield the bytes of a file, up to the platform's size limit."""
        ...


@runtime_checkable
class CanAnswer(Protocol):
    async def answer(self, handle: str, text: str, *, private: bool) -> None:
        """Answer a press at once, best effort. Raises no error."""
        ...


@runtime_checkable
class CanVouch(Protocol):
    """Power of a channel to ask the platform about the origin of a request with a doubtful signature."""

    async def vouch(self, request: WebhookRequest, parsed: Parsed) -> Parsed:
        """Return the acceptable events of a doubted request: all events if the platform confirms the request.

        Without an answer of the platform, return the events stripped of their power to decide. Raises Forged when the
        platform did not send the request, and SendError when no event can be accepted without the platform's answer.
        """
        ...


@runtime_checkable
class CanAskAgain(Protocol):
    """Power of a channel that gets each message once: the platform does not repeat a request after an error."""

    def ask_again(self, text: str) -> WebhookResponse:
        """Return the HTTP response with this plain text for the writer of a message that was not stored."""
        ...


@runtime_checkable
class CanOpen(Protocol):
    async def open(self, person: Person) -> Address:
        """Return the address of a private conversation with a person. Raises Undeliverable."""
        ...


@runtime_checkable
class CanReroute(Protocol):
    def reroute(self, part: Part, address: Address, *, only_to: str = "", buttons: bool = False) -> Part | None:
        """Return the part for another address, with or without the buttons. Pure.

        `only_to` is the id of the only person to see the part in a group. None if the platform cannot send the part so.
        """
        ...


@runtime_checkable
class CanLookUp(Protocol):
    async def look_up(self, address: Address, part: Part, *, key: str, since: datetime) -> Receipt | None:
        """Return the newest receipt of a part that may have been sent with this `key` after `since`.

        On a platform that keeps no key, search for the part's content. None: the platform does not have the part.
        Raises SendError, also when the platform cannot tell.
        """
        ...


@runtime_checkable
class CanOrder(Protocol):
    """Power of a channel that knows the order of two messages. See `Capabilities.bare_yes`."""

    def follows(self, message: Message, receipt: Receipt) -> bool:
        """Return True if `message` comes after the bot's message with this receipt, in the platform's own order.

        Pure. False when the order is not known.
        """
        ...


@runtime_checkable
class CanPoll(Protocol):
    def poll(self) -> AsyncIterator[tuple[Event, ...]]:
        """Yield batches of events until cancelled. A request for the next batch acknowledges the last one as stored."""
        ...


@runtime_checkable
class CanShowCommands(Protocol):
    async def set_commands(self, commands: Mapping[str, Mapping[str, str]]) -> None:
        """Set the platform's menu: language -> command -> description. The language "" is for all other languages."""
        ...


@runtime_checkable
class CanRegister(Protocol):
    async def registered(self) -> str | None: ...
    async def register(self, url: str) -> None: ...
    async def unregister(self) -> None: ...
