"""The channel of the bot's own code: `ask_channel` and `decide`. It has no platform; its log is what it delivers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Self

from channels.channel import Capabilities, Forged, Parsed, Way, WebhookRequest, WebhookResponse
from channels.events import Address, Message, Person
from channels.replies import Part, Receipt, Reply

if TYPE_CHECKING:
    import aiohttp

__all__ = ["DirectChannel", "own_place", "shared_place"]

_OWN = "user:"
"""A person's own place begins with it."""
_MARK = "%"
"""Stands in front of a shared place that begins with either of these."""


def own_place(person: Person) -> Address:
    """The conversation that this person has with nobody else."""
    return _address(person.account, f"{_OWN}{person.user_id}")


def shared_place(account: str, name: str) -> Address:
    """The conversation of everybody who gives it this name: never a person's own, whatever the name is."""
    return _address(account, f"{_MARK}{name}" if name.startswith((_OWN, _MARK)) else name)


def _address(account: str, place: str) -> Address:
    """A slash parts place and thread: both halves are then written as they are, and a store keeps its conversations by
    what is written."""
    before, _, after = place.partition("/")
    place, thread = (before, after) if before and after else (place, None)
    return Address(channel=DirectChannel.name, account=account, place=place, thread=thread)


class DirectChannel:
    """Delivered means written to the conversation's visible log, which the caller reads."""

    name: ClassVar[str] = "app"
    capabilities = Capabilities(
        max_text=1_000_000,
        buttons=100,
        button_label=1_000_000,
        media=dict.fromkeys(("image", "audio", "video", "document"), 1024**3),
        visible=True,
        bare_yes="ordered",
    )

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, way: Way) -> Self:
        return cls()

    async def start(self, http: aiohttp.ClientSession) -> None:
        """Nothing is needed."""

    async def close(self) -> None:
        """Nothing is held."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        """Nothing comes in over HTTP. Raises Forged."""
        raise Forged("this channel has no webhook")

    def parse(self, request: WebhookRequest) -> Parsed:
        return Parsed(events=(), response=WebhookResponse(status=404))

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        """Pure. A question comes after its files, so that the last part's receipt is the question's."""
        text = reply.text.encode("utf-8", "replace").decode()  # a lone surrogate cannot be sent anywhere
        words = Part(call="show", arguments={"text": text}, buttons=reply.buttons)
        files = [Part(call="show", arguments={"text": ""}, media=media) for media in reply.media]
        if reply.buttons:
            return [*files, words]
        return [words, *files] if reply.text else files

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        return Receipt(message_id=key)

    def follows(self, message: Message, receipt: Receipt) -> bool:
        """Return whether ours was the newest message of the bot that the caller could have read."""
        return message.after is not None and message.after == receipt.message_id
