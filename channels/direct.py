"""The channel of the bot's own code: `ask_channel` and `decide`. It has no platform; its log is what it delivers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Self

from channels.channel import Capabilities, Forged, Parsed, Way, WebhookRequest, WebhookResponse
from channels.events import Address
from channels.replies import Part, Receipt, Reply

if TYPE_CHECKING:
    import aiohttp

__all__ = ["DirectChannel"]


class DirectChannel:
    """Delivered means written to the conversation's visible log, which the caller reads."""

    name: ClassVar[str] = "app"
    capabilities = Capabilities(
        max_text=1_000_000,
        buttons=100,
        button_label=1_000_000,
        media=dict.fromkeys(("image", "audio", "video", "document"), 1024**3),
        visible=True,
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
