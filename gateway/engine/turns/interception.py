"""Interception: messages and edits of a turn, stopped by the bot's interceptors before the model."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from channels import Message, MessageEdited, Reply
from gateway.agent.interceptors import InterceptorFailed
from gateway.bot.turn import Outcome, Turn
from gateway.engine.telling import run_of
from gateway.engine.turns.batch import Batch
from gateway.engine.turns.feature import Ending, RunningTurn, TurnFeature
from gateway.memory import to_entries
from gateway.observe.events import InterceptorVetoed
from gateway.pending.actions import OutgoingReply
from gateway.tools import ToolContext

log = logging.getLogger("askfirst.turns")


class Interception(TurnFeature):
    """Takes vetoed messages and edits out of a turn. The author of a message gets the reason of the veto.

    A turn continued by another worker after the first step keeps the earlier vetoes: the model already has the other
    messages.
    """

    async def begin(self, turn: RunningTurn) -> None:
        """Take the notes of vetoed edits out of the batch. After a failed check the edit is taken out too.

        The model has the old text already, and an edit never gets an answer.
        """
        if not self.context.bot.interceptors.of_messages:
            return
        batch = turn.batch
        for place, edit in sorted(batch.edits.items(), reverse=True):
            if not await self._passes(batch, edit):
                del batch.notes[place]
        batch.edits.clear()

    async def before(self, turn: RunningTurn, asked: Turn) -> Outcome | None:
        """Take the vetoed messages out. Without other messages the bot gets no turn, unless the batch makes the model
        continue.

        Raises InterceptorFailed: the turn has then failed, and no message is lost.
        """
        journal, bot = turn.journal, self.context.bot
        if bot.interceptors.of_messages and not journal.begun and not bot.commands.are_built_in(asked):
            journal.vetoes = await self._vetoes(turn, asked)
        if vetoes := journal.vetoes:
            asked.messages = [message for place, message in enumerate(asked.messages) if place not in vetoes]
            if not asked.messages and not turn.batch.resumes:
                return Outcome(stop_reason="vetoed", transcript=to_entries(asked.notes))
        return None

    async def _vetoes(self, turn: RunningTurn, asked: Turn) -> Mapping[int, str]:
        """Return the indexes of the vetoed messages, and the answers to the authors, possibly empty."""
        vetoes: dict[int, str] = {}
        for place, message in enumerate(asked.messages):
            veto = await self.context.bot.interceptors.check_message(asked.context, message)
            if veto is not None:
                vetoes[place] = veto.reason
                await turn.events.tell(
                    InterceptorVetoed,
                    conversation=turn.conversation,
                    stage="message",
                    interceptor=veto.interceptor,
                    event_id=next(iter(message.event_ids), turn.cause),
                )
        return vetoes

    async def contribute(self, ending: Ending) -> None:
        if ending.outcome is not None:
            answers = filter(None, ending.turn.journal.vetoes.values())
            ending.says[:0] = [OutgoingReply(reply=Reply(text=answer)) for answer in answers]

    async def _passes(self, batch: Batch, edit: MessageEdited) -> bool:
        context, conversation = self.context, batch.taken[0].conversation
        tool_context = ToolContext(
            person=str(edit.person),
            address=edit.address,
            conversation=conversation,
            language=context.language(edit.person),
            deps=context.bot.deps,
            idempotency_key=f"{conversation}/{batch.taken[0].seq}",
            now=context.wall_clock,
            shared=context.store.shared,
        )
        message = Message(
            event_ids=edit.event_ids,
            address=edit.address,
            person=edit.person,
            sent_at=edit.sent_at,
            text=edit.text,
            message_id=edit.message_id,
        )
        try:
            veto = await context.bot.interceptors.check_message(tool_context, message)
        except InterceptorFailed as error:
            log.error("an edited message of %s is left out: %s", conversation, error)
            return False
        if veto is not None:
            await context.events.tell(
                InterceptorVetoed,
                run_of(batch.began_by),
                conversation=conversation,
                stage="message",
                interceptor=veto.interceptor,
                event_id=next(iter(edit.event_ids), ""),
            )
        return veto is None
