"""A message that is nothing but a yes or a no, read in its place in the conversation."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from channels import CanOrder, Message, Person, Receipt
from gateway.engine import event_log
from gateway.engine.context import EngineContext, in_thread, typed
from gateway.engine.delivery import reports
from gateway.engine.reply_limits import near_answers
from gateway.engine.retrying import attempts
from gateway.engine.turns.batch import Batch
from gateway.engine.turns.failures import append_transcript, finish_turn, note_acted
from gateway.pending import deciding
from gateway.pending.actions import ConversationActions
from gateway.pending.bare_reply import BareReply
from gateway.pending.index import LATELY, Index, Showing
from gateway.pending.reading import Answer, read_words, reads_as_answer
from gateway.store.base import Lease, QueuedPart
from gateway.turn import Outcome

__all__ = ["BareReplyHandler"]

_SEND_WAIT_SECONDS = 10.0
_LOOK_SECONDS = 0.05
_REPORTED_FOR = timedelta(seconds=3)
"""A question that was on the screen for less than this was not read before the word was written."""


class BareReplyHandler:
    """Takes a message of nothing but a yes or a no for an open action."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def take(self, lease: Lease, batch: Batch) -> Outcome | None:
        """Decide what the message answers. None when it is an ordinary word here."""
        message = batch.messages[0]
        person = message.person
        if len(batch.messages) > 1 or message.command is not None or message.attachments or person is None:
            return None
        asked_in = self._context.language_asked(lease) or "en"
        language = self._context.language(person, asked_in)
        await self._context.read_words(language, asked_in)
        if not reads_as_answer(message.text, language):
            return None

        def reads(verb: str | None, asked: str) -> Answer:
            return read_words(message.text, (language, asked), verb)

        await self._sends_ended(lease.lane)
        lately: bool | None = None
        for attempt in attempts():
            async with attempt:
                actions, taken = await self._judged(lease.lane, batch, person, reads, language)
                if actions.near:
                    if lately is None:
                        lately = await self._was_told_lately(lease.lane, person, actions.near)
                    if lately:  # it is read all the same: it reaches no model
                        actions = await self._context.actions(lease.lane)
                if not taken:
                    return None
                if actions.index.open:  # else it was about what has ended, and so is the same word once more
                    note_acted(actions, batch)
                await self._context.keep_files(actions)
                transaction = finish_turn(self._context, lease, batch)
                append_transcript(transaction, self._context, lease.lane, batch.notes)
                actions.write(transaction)
                cause = event_log.event_of(batch.taken[-1])
                transaction.parts += self._context.parts.render(
                    lease.lane, message.address, actions.says, cause=cause, language=language
                )
                await self._context.commit(transaction)
                event_log.committed(lease.lane, batch.taken, transaction, "decided by word")
        return Outcome(stop_reason="decided")

    async def _judged(
        self, conversation: str, batch: Batch, person: Person, reads: deciding.Reads, language: str
    ) -> tuple[ConversationActions, bool]:
        """Return the actions with what the message has done to them, and whether it was an answer at all."""
        message = batch.messages[0]
        actions = await self._context.actions(conversation, find=partial(_meant, at=batch.at))
        if message.address.group:
            return actions, deciding.in_group(actions, person, language)
        said = await self._said(actions, batch, message)
        return actions, deciding.word(actions, reads, person, said, language)

    async def _was_told_lately(self, conversation: str, person: Person, about: str) -> bool:
        """Return True when this person was told often enough just now that their answer about this is not clear."""
        name = hashlib.sha256(f"{conversation} {person} {about}".encode()).hexdigest()
        return bool(await self._context.store.acquire([near_answers(f"near/{name}")]))

    async def _said(self, actions: ConversationActions, batch: Batch, message: Message) -> BareReply:
        conversation, index = actions.conversation, actions.index
        on_the_way = any(_may_be_seen(part, batch.at) for part in await self._context.store.outbox(conversation))
        last = None if on_the_way else index.last_said(batch.at)
        plain = typed(message) and not message.unknown_fields and self._came_now(batch)
        acted = [index.acted[str(message.person)]] if str(message.person) in index.acted else []
        return BareReply(
            at=batch.at,
            fresh=plain and (message.reply_to is None or in_thread(message)) and not batch.edited,
            last=last,
            written=await self._written(conversation, message, batch.at, last),
            acted=max([*acted, *batch.heard_beside(batch.written)], default=None),
            beneath=message.reply_to if in_thread(message) else None,
        )

    def _came_now(self, batch: Batch) -> bool:
        return batch.written is not None and self._context.may_decide(batch.written)

    async def _written(
        self, conversation: str, message: Message, at: datetime, last: Showing | None
    ) -> Literal["after", "unknown", "before"]:
        """Return whether a message was written after this one of ours, as its platform tells."""
        channel = self._context.channels.get(message.address.channel)
        if channel is None or last is None or last.message_id is None:
            return "unknown"
        match channel.capabilities.bare_yes:
            case "ordered" if isinstance(channel, CanOrder):
                receipt = Receipt(message_id=last.message_id, sent_at=last.sent_at)
                return "after" if channel.follows(message, receipt) else "before"
            case "reported":
                seen = await reports.arrived_at(self._context, conversation, last.message_id)
                return "after" if seen is not None and at - seen >= _REPORTED_FOR else "unknown"
        return "unknown"

    async def _sends_ended(self, conversation: str) -> None:
        """While a prompt is on its way, a bare word waits to be judged until it has arrived or failed."""
        for _ in range(int(_SEND_WAIT_SECONDS / _LOOK_SECONDS)):
            if not any(part.body["shows"] for part in await self._context.store.outbox(conversation)):
                return
            await asyncio.sleep(_LOOK_SECONDS)


def _meant(index: Index, at: datetime) -> list[str]:
    """Return the settled action that a bare word may come too late for, when none is open."""
    return [] if index.open else [entry.action_id for entry in index.settled if entry.at >= at - LATELY][:1]


def _may_be_seen(part: QueuedPart, at: datetime) -> bool:
    return part.body.get("edits") is None and part.stamp is not None and part.stamp <= at
