"""The optional powers of a channel (`Can...`): each is a protocol of its own, and the gateway looks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Protocol, runtime_checkable

from channels.channel import Parsed, WebhookRequest, WebhookResponse
from channels.events import Address, Attachment, Event, Message, Person
from channels.replies import Part, Receipt


@runtime_checkable
class SharesWebhook(Protocol):
    """Power of a channel that shares its webhook URL with other channels."""

    webhooks: ClassVar[tuple[str, ...]]
    """The paths under ``/webhooks/`` that it shares."""

    def takes(self, request: WebhookRequest) -> bool:
        """True if a request to a shared URL is for this channel. It raises no error and proves no origin."""
        ...


@runtime_checkable
class CanEdit(Protocol):
    async def edit(self, address: Address, message_id: str, part: Part) -> None: ...


@runtime_checkable
class CanType(Protocol):
    async def typing(self, address: Address) -> None:
        """Show for some seconds that an answer is being written. Raises SendError and no other error."""
        ...


@runtime_checkable
class CanTypeUnder(Protocol):
    """Power of a channel that shows the bot as at work under a message, also outside of a thread."""

    async def typing_under(self, address: Address, message_id: str, *, ends: bool = False) -> None:
        """Show for some seconds that the bot works on this message, or take that away when it `ends`.

        Raises SendError and no other error.
        """
        ...


class StreamHandle(Protocol):
    """A text that grows in a chat. It is a preview: what the person is to keep is sent by `finish`, or by `send`."""

    @property
    def interval_seconds(self) -> float:
        """The least time between two updates, below the platform's limits."""
        ...

    @property
    def message_ids(self) -> Sequence[str]:
        """The messages that show the text, in order. Empty before the first update, and where none stays."""
        ...

    async def update(self, text: str) -> None:
        """Show the text so far, as Markdown that may break off anywhere. Raises SendError."""
        ...

    async def finish(self, parts: Sequence[Part]) -> Sequence[Receipt]:
        """Put these parts in the place of the messages, and return their receipts. Raises SendError.

        A message without a part is taken away; one that is gone already counts as taken away. There are no more parts
        than messages. A repetition changes nothing. Raises Undeliverable for a part whose message is gone.
        """
        ...


@runtime_checkable
class CanStream(Protocol):
    """Power of a channel that shows an answer while it is written. It is used where `Capabilities.stream` is True."""

    async def stream(self, address: Address, *, message_ids: Sequence[str] = ()) -> StreamHandle:
        """Return a stream in new messages, or in those that an earlier stream began. It calls no platform."""
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
    """Power of a channel that can ask its platform whether it sent a request with a doubtful signature."""

    async def vouch(self, request: WebhookRequest, parsed: Parsed) -> Parsed:
        """Return the events of a doubted request that may be accepted: all, when the platform says that it sent it.

        Without an answer of the platform, return the events stripped of their power to decide. Raises Forged when the
        platform did not send the request, and SendError when no event can be accepted without the platform's answer.
        """
        ...


@runtime_checkable
class CanAskAgain(Protocol):
    """Power of a channel that gets each message once: its platform does not repeat a request answered with an error."""

    def ask_again(self, text: str) -> WebhookResponse:
        """Return the HTTP response that shows this plain text to the writer of a message that was not stored."""
        ...


@runtime_checkable
class CanOpen(Protocol):
    async def open(self, person: Person) -> Address:
        """Return the address of a private conversation with a person. Raises Undeliverable."""
        ...


@runtime_checkable
class CanLookUp(Protocol):
    async def look_up(self, address: Address, part: Part, *, key: str, since: datetime) -> Receipt | None:
        """Return the newest receipt of a part that may have been sent with this `key` after `since`.

        On a platform that keeps no key the part's content is searched for. None: the platform does not have it.
        Raises SendError, also when the platform cannot tell.
        """
        ...


@runtime_checkable
class CanOrder(Protocol):
    """Power of a channel that knows the order of two messages. See `Capabilities.bare_yes`."""

    def follows(self, message: Message, receipt: Receipt) -> bool:
        """True if the platform's own order puts `message` after the bot's message with this receipt.

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
