"""Interception: the messages and edits of a turn that the bot's interceptors stop before the model gets them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from channels import Message, MessageEdited
from gateway.agent.interceptors import InterceptorFailed
from gateway.engine.context import EngineContext
from gateway.engine.telling import run_of
from gateway.engine.turns.batch import Batch
from gateway.engine.turns.running import RunningTurn
from gateway.observe.events import InterceptorVetoed
from gateway.tools import ToolContext
from gateway.turn import Turn

log = logging.getLogger("askfirst.turns")


async def vetoes_of(context: EngineContext, running: RunningTurn, turn: Turn) -> Mapping[int, str]:
    """Return the vetoed messages of a turn: their place in it, and the answer to their person, which may be empty.

    A turn that another worker continues after its first step keeps the vetoes of that worker, since the model has the
    other messages already. Raises InterceptorFailed: the turn has then failed, and no message is lost.
    """
    journal, bot = running.journal, context.bot
    if journal.begun or not bot.interceptors.of_messages or bot.commands.are_built_in(turn):
        return journal.vetoes
    vetoes: dict[int, str] = {}
    for place, message in enumerate(turn.messages):
        veto = await bot.interceptors.check_message(turn.context, message)
        if veto is not None:
            vetoes[place] = veto.reason
            await running.events.tell(
                InterceptorVetoed,
                conversation=turn.conversation,
                stage="message",
                interceptor=veto.interceptor,
                event_id=next(iter(message.event_ids), running.cause),
            )
    journal.vetoes = vetoes
    return vetoes


async def drop_vetoed_edits(context: EngineContext, batch: Batch) -> None:
    """Take the notes of vetoed edits out of a batch. An edit that could not be checked is taken out too.

    The model has the old text already, and an edit never gets an answer.
    """
    if not context.bot.interceptors.of_messages:
        return
    for place, edit in sorted(batch.edits.items(), reverse=True):
        if not await _passes(context, batch, edit):
            del batch.notes[place]
    batch.edits.clear()


async def _passes(context: EngineContext, batch: Batch, edit: MessageEdited) -> bool:
    conversation = batch.taken[0].conversation
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
