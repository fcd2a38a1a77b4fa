"""The input of a turn: person, language, and the bot's `Turn`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Final

from channels import Address, Json, Person
from gateway.bot.turn import Turn
from gateway.engine.context import EngineContext
from gateway.engine.reach import find_ballots
from gateway.engine.reply_limits import questions
from gateway.engine.strangers import Strangers
from gateway.engine.telling import event_id_of, run_of
from gateway.engine.turns.batch import Batch
from gateway.engine.turns.feature import RunningTurn
from gateway.engine.turns.interrupts import SignalInbox
from gateway.engine.turns.language import detect_language, prepare_for
from gateway.engine.waiting import questions_elsewhere
from gateway.observe.teller import RunTeller, begin_run
from gateway.pending.actions import ConversationActions
from gateway.pending.index import Index
from gateway.providers.base import ModelMessage
from gateway.store.types import Lease, Snapshot
from gateway.stored.events import action_id_of
from gateway.tools import ToolContext
from gateway.wording import FALLBACK

_TEXTS_LOOKED_AT = 8
"""The number of a person's earlier messages used for detecting the language."""
_EVER: Final = datetime.min.replace(tzinfo=UTC)


async def open_turn(
    context: EngineContext, lease: Lease, batch: Batch, signals: SignalInbox, prefetched: Snapshot | None
) -> RunningTurn:
    """Return an attempt at the turn of this batch. Raises StoreError."""
    address, person = await _addressee(context, lease.lane, batch)
    events = _teller(context, batch, address, person)
    return RunningTurn(
        lease=lease,
        batch=batch,
        signals=signals,
        address=address,
        person=person,
        events=events,
        prefetched=prefetched,
    )


async def _addressee(context: EngineContext, conversation: str, batch: Batch) -> tuple[Address, Person]:
    """Return the person answered by a turn, and the address.

    In order: the author of the messages; for a planned turn, the person of the planning turn; else the requester of the
    action behind the events. Without these: an unknown person at the conversation's own address.
    """
    for message in batch.messages:
        if message.person is not None:
            return message.address, message.person
    if (planned := batch.follow_up) is not None:
        return planned.address, replace(Person.parse(planned.person), language=planned.language)
    of_actions = () if batch.is_fold else (action_id_of(waiting.body) for waiting in batch.taken)
    for action_id in filter(None, of_actions):
        action = (await context.actions(conversation, action_id)).get(action_id)
        if action is not None and action.address is not None:
            person = Person.parse(action.requester)
            return action.address, replace(person, name=action.requester_name, language=action.language)
    address = Address.parse(conversation.partition("/")[2])
    return address, Person(channel=address.channel, account=address.account, user_id="-")


def _teller(context: EngineContext, batch: Batch, address: Address, person: Person) -> RunTeller:
    """Return the teller of a turn, with a trace. A turn taken over by another process keeps the run id."""
    config, cause = context.bot.agent.config, event_id_of(batch.began_by)
    metadata: dict[str, Json] = {
        "bot": context.bot.name,
        "channel": address.channel,
        "event": cause,
        "person": context.keyring.pseudonym(str(person)),
    }
    return begin_run(
        context.events,
        run_of(batch.began_by),
        clock=context.wall_clock,
        parent_run_id=config.parent_run_id,
        metadata={**(config.trace_metadata or {}), **metadata},
    )


def turn_input(
    context: EngineContext,
    turn: RunningTurn,
    strangers: Strangers,
    *,
    language: str,
    history: Sequence[ModelMessage],
    actions: ConversationActions,
) -> Turn:
    """Return the input of the bot. `actions`: the result of the first call of `Turn.actions`."""
    batch, person, conversation = turn.batch, turn.person, turn.conversation
    just_read = [actions]

    async def read_actions() -> ConversationActions:
        return just_read.pop() if just_read else await context.actions(conversation)

    return Turn(
        conversation=conversation,
        address=turn.address,
        person=person,
        language=language,
        messages=batch.messages,
        notes=batch.notes,
        history=history,
        started=batch.at if batch.messages else actions.index.acted.get(str(person), _EVER),
        context=tool_context(context, turn, language),
        journal=turn.journal,
        keep=partial(context.files.keep, person=str(person)),
        actions=read_actions,
        settled=partial(context.actions, conversation, find=_ended),
        elsewhere=partial(questions_elsewhere, context, turn.address, person),
        admit=partial(strangers.admit, by=person) if strangers.may_admit(person) else None,
        events=turn.events,
        expenses=turn.expenses,
        find_ballots=partial(find_ballots, context),
        may_ask=partial(_may_ask, context, str(person)),
        read_file=context.files.read,
    )


async def _may_ask(context: EngineContext, person: str, count: int) -> bool:
    """Return True if a person may be asked `count` questions now, and count the questions."""
    return not await context.store.acquire([questions(person, count)])


def _ended(index: Index) -> list[str]:
    return [entry.action_id for entry in index.settled]


async def turn_language(context: EngineContext, turn: RunningTurn, history: Sequence[ModelMessage]) -> str:
    """Return the language of the turn: as named, else detected in the person's messages, else of the last question.

    The newest text with a sure result decides. Short texts are skipped.
    """
    named = context.named_language(turn.person)
    if named is not None:
        return named
    written = (message.text for message in reversed(turn.batch.messages) if message.command is None)
    before = (each.content for each in reversed(history) if each.role == "user")
    texts = [*written, *islice(before, _TEXTS_LOOKED_AT)]
    await prepare_for(texts)
    return detect_language(texts) or context.language_asked(turn.lease) or FALLBACK


def tool_context(context: EngineContext, turn: RunningTurn, language: str) -> ToolContext:
    """Return the context for the tools called by the turn."""
    return ToolContext(
        person=str(turn.person),
        address=None if turn.direct else turn.address,
        conversation=turn.conversation,
        language=language,
        deps=context.bot.deps,
        idempotency_key=f"{turn.conversation}/{turn.batch.taken[0].seq}",
        now=context.wall_clock,
        shared=context.store.shared,
        hold=context.hold,
        stopping=turn.signals.stopping,
        depth=turn.batch.follow_up.depth if turn.batch.follow_up is not None else 0,
    )
