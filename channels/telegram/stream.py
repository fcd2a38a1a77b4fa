"""A growing text as a draft: a preview in a private chat, which is no message and fades by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from channels.channel import Undeliverable
from channels.events import Address
from channels.formatting import finished
from channels.replies import Json, Part, Receipt, Reply
from channels.telegram.render import render

__all__ = ["DraftStream"]


class DraftStream:
    """A StreamHandle over ``sendMessageDraft``: https://core.telegram.org/bots/api#sendmessagedraft.

    A draft is shown for 30 seconds after its last change. The answer is a message of its own and replaces it.
    """

    interval_seconds = 1.0
    message_ids: Sequence[str] = ()

    def __init__(self, call: Callable[[dict[str, Json]], Awaitable[None]], address: Address, draft_id: int) -> None:
        self._call, self._address, self._draft_id = call, address, draft_id

    async def update(self, text: str) -> None:
        """Show the text so far; of one that is too long for a message, the end. Raises SendError."""
        parts = render(self._address, Reply(text=finished(text)))
        if parts:
            arguments = {name: value for name, value in parts[-1].arguments.items() if name != "link_preview_options"}
            await self._call({**arguments, "draft_id": self._draft_id})

    async def finish(self, parts: Sequence[Part]) -> Sequence[Receipt]:
        """Raises Undeliverable for any part, since no message shows the text."""
        if parts:
            raise Undeliverable("no_message")
        return ()
