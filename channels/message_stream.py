"""A growing text in ordinary messages, for platforms that can edit and delete sent messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from channels.channel import OptedOut, Undeliverable, Unreachable
from channels.events import Address
from channels.formatting import finished
from channels.replies import Part, Receipt, Reply

_MOST_MESSAGES: Final = 5
"""The most messages of a growing text. The rest of the text is shown with the answer."""


class _Changes(Protocol):
    def render(self, address: Address, reply: Reply) -> Sequence[Part]: ...
    async def send(self, address: Address, part: Part, *, key: str) -> Receipt: ...
    async def edit(self, address: Address, message_id: str, part: Part) -> None: ...
    async def delete(self, address: Address, message_id: str) -> None: ...


class MessageStream:
    """A StreamHandle that sends and edits messages. A text beyond the platform's limit continues in a new message."""

    def __init__(
        self, channel: _Changes, address: Address, *, interval_seconds: float, message_ids: Sequence[str] = ()
    ) -> None:
        self._channel, self._address = channel, address
        self.interval_seconds = interval_seconds
        self.message_ids = list(message_ids)
        self._shown: dict[str, Part] = {}

    async def update(self, text: str) -> None:
        """Show the text so far. Raises SendError."""
        channel, address = self._channel, self._address
        parts = channel.render(address, Reply(text=finished(text)))[:_MOST_MESSAGES]
        if not parts:
            return
        for number, part in enumerate(parts):
            if number == len(self.message_ids):
                receipt = await channel.send(address, part, key="")
                if receipt.message_id is None:
                    raise Undeliverable("no_message_id")
                self.message_ids.append(receipt.message_id)
            elif self._shown.get(self.message_ids[number]) != part:
                await channel.edit(address, self.message_ids[number], part)
            self._shown[self.message_ids[number]] = part
        while len(self.message_ids) > len(parts):
            await self._take_away(self.message_ids[-1])
            self.message_ids.pop()

    async def finish(self, parts: Sequence[Part]) -> Sequence[Receipt]:
        """Put these parts in the place of the messages. Raises SendError."""
        receipts = []
        for message_id, part in zip(self.message_ids, parts, strict=False):
            await self._channel.edit(self._address, message_id, part)
            receipts.append(Receipt(message_id=message_id))
        for message_id in self.message_ids[len(parts) :]:
            await self._take_away(message_id)
        return receipts

    async def _take_away(self, message_id: str) -> None:
        try:
            await self._channel.delete(self._address, message_id)
        except (OptedOut, Unreachable):
            raise
        except Undeliverable:
            pass  # it is gone already, or too old to be taken away
