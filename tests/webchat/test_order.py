"""What the page names as seen is what delivery has the receipt of."""

from __future__ import annotations

import asyncio
from typing import Any

from channels import Address, Message, Part, Receipt, Reply
from channels.webchat import WebChatChannel
from gateway import Agent, ChannelAgent
from gateway.assembly import in_memory
from gateway.stored import keys

SESSION = Address(channel="webchat", account="local", place="s" * 22)


class Page(WebChatChannel):
    """Keeps the receipts that it gives."""

    def __init__(self) -> None:
        super().__init__(keys=[b"k" * 32], hosts=["localhost"])
        self.receipts: list[Receipt] = []

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        self.receipts.append(await super().send(address, part, key=key))
        return self.receipts[-1]


async def test_the_log_has_the_ids_of_the_receipts() -> None:
    page = Page()
    async with in_memory(ChannelAgent(Agent([])), {"webchat": page}) as engine:
        engine.start()
        for text in ("one", "two"):
            await engine.runtime.notify(SESSION, Reply(text=text))
            while not await engine.idle():
                await asyncio.sleep(0.001)
        shared = engine.context
        log = await shared.store.read(keys.key(shared.store, shared.conversation(SESSION), keys.visible_log))
        await engine.stop()
    seen: list[Any] = [entry.value for entry in log]
    assert [(entry["text"], entry["message_id"]) for entry in seen] == [
        (text, receipt.message_id) for text, receipt in zip(("one", "two"), page.receipts, strict=True)
    ]
    yes = Message(event_ids=("1",), address=SESSION, person=None, text="yes", after=seen[0]["message_id"])
    assert [page.follows(yes, receipt) for receipt in page.receipts] == [True, False]
