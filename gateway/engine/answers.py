"""A message that is nothing but a yes or a no, read in its place in the conversation."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import cast

from channels import Message
from gateway.channel_agent import Outcome
from gateway.engine import receipts, trail
from gateway.engine.batch import Batch
from gateway.engine.ending import ended, heard_key, noted
from gateway.engine.outgoing import queue
from gateway.engine.shared import Shared, in_thread, typed
from gateway.pending.bare import BareWord
from gateway.pending.reading import ReplyParser
from gateway.store.base import Conflict, Lease

__all__ = ["Answers"]

_SEND_WAIT_SECONDS = 10.0
_LOOK_SECONDS = 0.05


class Answers:
    """Takes such a message for an open action."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._parser = ReplyParser()

    async def take(self, lease: Lease, batch: Batch) -> Outcome | None:
        """None when it is an ordinary word here."""
        message = batch.messages[0]
        person = message.person
        if len(batch.messages) > 1 or message.command is not None or message.attachments or person is None:
            return None
        language = self._shared.language(person)
        intent = self._parser.classify(message.text, language)
        if intent == "unclear":
            return None
        await self._sends_ended(lease.lane)
        while True:
            desk = await self._shared.desk(lease.lane, language)
            if message.address.group:
                if not desk.open:
                    return None
            elif not desk.word(intent, person, await self._said(lease.lane, batch, message)):
                return None
            transaction = ended(self._shared, lease, batch)
            noted(self._shared, transaction, lease.lane, batch.notes)
            desk.write(transaction)
            cause = trail.event_of(batch.taken[-1])
            transaction.parts += queue(
                self._shared.channels, lease.lane, message.address, desk.says, cause=cause, language=language
            )
            try:
                await self._shared.commit(transaction)
            except Conflict:
                continue
            trail.committed(lease.lane, batch.taken, transaction.parts, "decided")
            return Outcome(stop_reason="decided")

    async def _said(self, conversation: str, batch: Batch, message: Message) -> BareWord:
        outbox = await self._shared.store.outbox(conversation)  # first: what leaves it meanwhile has its receipt then
        shown = receipts.key(self._shared, conversation)
        last = heard_key(self._shared, conversation, message.person)
        snapshot = await self._shared.store.get([shown, last])
        written = cast("str | None", snapshot[last].value)
        heard_at = [datetime.fromisoformat(written)] if written else []
        return BareWord(
            at=batch.at,
            fresh=typed(message) and (message.reply_to is None or in_thread(message)) and not batch.edited,
            last_shown=receipts.last_shown(snapshot[shown].value, batch.at, outbox=outbox),
            heard=max([*heard_at, *batch.heard_beside(batch.written)], default=None),
            beneath=message.reply_to if in_thread(message) else None,
        )

    async def _sends_ended(self, conversation: str) -> None:
        """While a prompt is on its way, a bare word waits to be judged until it has arrived or failed."""
        for _ in range(int(_SEND_WAIT_SECONDS / _LOOK_SECONDS)):
            if not any(part.body["shows"] for part in await self._shared.store.outbox(conversation)):
                return
            await asyncio.sleep(_LOOK_SECONDS)
