"""Bare replies: messages of only a yes or a no, judged by the place in the conversation."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from channels import CanOrder, Message, Person, Receipt
from gateway.bot.turn import Outcome
from gateway.engine.context import EngineContext
from gateway.engine.delivery import reports
from gateway.engine.messages import is_typed, replies_by_thread
from gateway.engine.reply_limits import near_answers
from gateway.engine.retrying import attempts
from gateway.engine.turns.batch import Batch
from gateway.engine.turns.conclusion import TurnConcluder, new_ending
from gateway.engine.turns.feature import RunningTurn
from gateway.engine.turns.questions import note_acted
from gateway.memory import to_entries
from gateway.pending import deciding
from gateway.pending.actions import ConversationActions
from gateway.pending.bare_reply import BareReply
from gateway.pending.index import LATELY, Index, Showing
from gateway.pending.reading import Answer, is_near_answer, name_of, read_words, reads_as_answer
from gateway.pending.selecting import LEAST_ITEMS, Selection, read_selection
from gateway.pending.words import words_of
from gateway.store.types import Lease, QueuedPart
from gateway.stored.outbox import OutboxItem

_SEND_WAIT_SECONDS = 5.0
"""The longest wait for the receipt of a prompt still being sent."""
_LOOK_SECONDS = 0.05
"""The poll interval of this wait."""
_REPORTED_FOR = timedelta(seconds=3)
"""The time on the person's screen until a question counts as read."""


class BareReplyHandler:
    """Decides open actions by bare replies."""

    def __init__(self, context: EngineContext, concluder: TurnConcluder) -> None:
        self._context, self._concluder = context, concluder

    async def take(self, turn: RunningTurn) -> Outcome | None:
        """Take the batch of a turn as a bare reply, and commit the decision or the notice of an unclear answer.

        Returns None when the batch is an ordinary message. Raises Fenced, Conflict and StoreUnavailable.
        """
        lease, batch, message = turn.lease, turn.batch, turn.batch.messages[0]
        person = message.person
        if len(batch.messages) > 1 or message.command is not None or message.attachments or person is None:
            return None
        asked_in = self._context.language_asked(lease)
        language = self._context.language(person, asked_in)
        await self._context.load_languages(language, asked_in)
        name = name_of(person)
        answers = reads_as_answer(message.text, language, name)
        waiting = self._count_open(lease) if is_typed(message) else 0
        nearly = waiting > 0 and not answers and is_near_answer(message.text, language, name)
        if not answers and not nearly and (waiting < LEAST_ITEMS or message.address.group):
            return None

        def reads(verb: str | None, asked: str) -> Answer:
            return read_words(message.text, (language, asked), verb, name)

        def selects(items: int) -> Selection | None:
            return read_selection(message.text, items, words_of(language), name)

        await self._wait_for_prompts(lease.lane, batch.at)
        lately: bool | None = None
        for attempt in attempts():
            async with attempt:
                actions, taken = await self._judge(
                    lease.lane, batch, person, reads if answers else None, selects, language, nearly=nearly
                )
                if actions.near:
                    if lately is None:
                        lately = await self._was_answered_lately(lease.lane, person, actions.near)
                    if lately:  # no answer again, but the message is consumed: the model does not get it
                        actions = await self._without_answer(actions)
                if not taken:
                    return None
                if actions.index.open:  # without one, it was about an ended action, and so is the same word again
                    note_acted(actions, batch)
                ending = new_ending(self._context, turn, language)
                ending.lines, ending.actions = to_entries(batch.notes), actions
                await self._concluder.end(ending, "decided by word")
        return Outcome(stop_reason="decided")

    async def _judge(
        self,
        conversation: str,
        batch: Batch,
        person: Person,
        reads: deciding.Reads | None,
        selects: Callable[[int], Selection | None],
        language: str,
        *,
        nearly: bool,
    ) -> tuple[ConversationActions, bool]:
        """Return the actions, changed by the message, and True if the message was an answer to an action, or nearly.

        `reads` is None for a message with neither a yes nor a no.
        """
        message = batch.messages[0]
        actions = await self._context.actions(conversation, find=partial(_to_read, at=batch.at))
        if message.address.group and nearly:
            return actions, deciding.almost(actions, person, actions.index.last_said(batch.at), language)
        if message.address.group:
            return actions, reads is not None and deciding.in_group(actions, person, language)
        bare_reply = await self._bare_reply(actions, batch, message)
        if len(actions.open) > 1 and deciding.select(actions, selects, person, bare_reply, language):
            return actions, True
        if nearly:
            return actions, deciding.almost(actions, person, bare_reply.shown, language)
        return actions, reads is not None and deciding.word(actions, reads, person, bare_reply, language)

    def _count_open(self, lease: Lease) -> int:
        """Return the number of open actions in the lease's index; 0 without a readable index."""
        read = self._context.prefetched_index(lease)
        return len(read.index.open) if read is not None else 0

    async def _was_answered_lately(self, conversation: str, person: Person, about: str) -> bool:
        """Count a notice of an unclear answer about these actions. Return True above the rate limit of the person."""
        name = hashlib.sha256(f"{conversation} {person} {about}".encode()).hexdigest()
        return bool(await self._context.store.acquire([near_answers(f"near/{name}")]))

    async def _without_answer(self, actions: ConversationActions) -> ConversationActions:
        """Return the actions as stored, changed only by the doubts from the message."""
        doubts = [entry.action_id for entry in actions.index.open if entry.doubted == actions.now]
        stored = await self._context.actions(actions.conversation)
        stored.index = stored.index.doubted(doubts, stored.now)
        return stored

    async def _bare_reply(self, actions: ConversationActions, batch: Batch, message: Message) -> BareReply:
        conversation, index = actions.conversation, actions.index
        queued = [OutboxItem.from_json(part.body) for part in await self._queued_before(conversation, batch.at)]
        shown = () if queued else index.last_said(batch.at, partial(self._follows, message))
        plain = is_typed(message) and not message.unknown_fields and self._is_timely(batch)
        acted = [index.acted[str(message.person)]] if str(message.person) in index.acted else []
        return BareReply(
            at=batch.at,
            fresh=plain and (message.reply_to is None or replies_by_thread(message)) and not batch.edited,
            shown=shown,
            written=await self._written(conversation, message, batch.at, shown),
            acted=max([*acted, *batch.acted_beside(batch.written)], default=None),
            beneath=message.reply_to if replies_by_thread(message) else None,
            sending=next((item.listed for item in queued if item.listed), ()),
        )

    async def _queued_before(self, conversation: str, at: datetime) -> list[QueuedPart]:
        """Return the parts without a receipt, possibly on the person's screen at this time."""
        return [part for part in await self._context.store.outbox(conversation) if _may_be_seen(part, at)]

    def _follows(self, message: Message, showing: Showing) -> bool:
        """Return True if the platform's own order places a message after the bot's message."""
        channel = self._context.channels.get(message.address.channel)
        if channel is None or channel.capabilities.bare_yes != "ordered" or showing.message_id is None:
            return False
        receipt = Receipt(message_id=showing.message_id, sent_at=showing.sent_at)
        return isinstance(channel, CanOrder) and channel.follows(message, receipt)

    def _is_timely(self, batch: Batch) -> bool:
        return batch.written is not None and self._context.may_decide(batch.written)

    async def _written(
        self, conversation: str, message: Message, at: datetime, shown: Sequence[Showing]
    ) -> Literal["after", "unknown", "before"]:
        """Return the order of a message and the bot's last messages, by the platform.

        In a platform's own order, a message after the bot's last message is after all of them. A report covers a single
        message.
        """
        channel = self._context.channels.get(message.address.channel)
        if channel is None or not shown or any(each.message_id is None for each in shown):
            return "unknown"
        match channel.capabilities.bare_yes:
            case "ordered" if isinstance(channel, CanOrder):
                return "after" if self._follows(message, shown[-1]) else "before"
            case "reported":
                for message_id in [each.message_id for each in shown]:
                    arrived = await reports.arrived_at(self._context, conversation, message_id or "")
                    if arrived is None or at - arrived < _REPORTED_FOR:
                        return "unknown"
                return "after"
        return "unknown"

    async def _wait_for_prompts(self, conversation: str, at: datetime) -> None:
        """Wait until no prompt queued by this time is being sent, for some seconds at most."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _SEND_WAIT_SECONDS
        while any(OutboxItem.from_json(part.body).shows for part in await self._queued_before(conversation, at)):
            if loop.time() >= until:
                return
            await asyncio.sleep(_LOOK_SECONDS)


def _to_read(index: Index, at: datetime) -> list[str]:
    """Return the actions of the bot's last message; without open actions, the last recently settled action."""
    if index.open:
        last = index.said[-1] if index.said else None
        return sorted({*last.shows, *last.listed}) if last is not None else []
    return [entry.action_id for entry in index.settled if entry.at >= at - LATELY][:1]


def _may_be_seen(part: QueuedPart, at: datetime) -> bool:
    """Return True if a queued part may have been on the person's screen at this time."""
    return OutboxItem.from_json(part.body).edits is None and part.stamp is not None and part.stamp <= at
