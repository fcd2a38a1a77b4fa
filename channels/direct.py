"""The channel of the bot's own code: `ask_channel` and `decide`. It has no platform and delivers to the visible log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Self

from channels.channel import Capabilities, Forged, Parsed, Way, WebhookRequest, WebhookResponse
from channels.events import Address, Message, Person
from channels.replies import Part, Receipt, Reply

if TYPE_CHECKING:
    import aiohttp

_OWN = "user:"
"""The prefix of a person's own place."""
_MARK = "%"
"""The prefix of a shared place with a name that begins with either of these two prefixes."""


def own_place(person: Person) -> Address:
    """Return the address of a person's own conversation, never shared with another person."""
    return _address(person.account, f"{_OWN}{person.user_id}")


def shared_place(account: str, name: str) -> Address:
    """Return the address of the conversation with this name, shared by all users. Never a person's own address."""
    return _address(account, f"{_MARK}{name}" if name.startswith((_OWN, _MARK)) else name)


def is_private(address: Address) -> bool:
    """Return True for the address of a conversation with a single reader."""
    return not address.group and (address.channel != DirectChannel.name or address.place.startswith(_OWN))


def _address(account: str, place: str) -> Address:
    """Split a place at its first slash into place and thread.

    Place and thread are then written without an escape. The store keys conversations by the written form.
    """
    before, _, after = place.partition("/")
    place, thread = (before, after) if before and after else (place, None)
    return Address(channel=DirectChannel.name, account=account, place=place, thread=thread)


class DirectChannel:
    """The channel of the bot's own code. A delivered part is a line in the visible log, for the caller to read."""

    name: ClassVar[str] = "app"
    capabilities = Capabilities(
        max_text=1_000_000,
        buttons=100,
        button_label=1_000_000,
        media=dict.fromkeys(("image", "audio", "video", "document"), 1024**3),
        visible=True,
        bare_yes="ordered",
        numbers=False,  # the caller of a function may show its results in any order
    )

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, way: Way) -> Self:
        return cls()

    async def start(self, http: aiohttp.ClientSession) -> None:
        """No-op: there is no platform to connect to."""

    async def close(self) -> None:
        """No-op: no resource is open."""

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        """Raise Forged: no event comes in over HTTP."""
        raise Forged("this channel has no webhook")

    def parse(self, request: WebhookRequest) -> Parsed:
        return Parsed(events=(), response=WebhookResponse(status=404))

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        """Return the lines of a reply. Pure.

        A question comes after its files, so the last receipt belongs to the question.
        """
        text = reply.text.encode("utf-8", "replace").decode()  # a lone surrogate cannot be sent anywhere
        words = Part(call="show", arguments={"text": text}, buttons=reply.buttons)
        files = [Part(call="show", arguments={"text": ""}, media=media) for media in reply.media]
        if reply.buttons:
            return [*files, words]
        return [words, *files] if reply.text else files

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        return Receipt(message_id=key)

    def follows(self, message: Message, receipt: Receipt) -> bool:
        """Return True for the receipt of the newest bot message that the caller could have read."""
        return message.after is not None and message.after == receipt.message_id
