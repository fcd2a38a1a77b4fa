"""Commits of turns: the writes that each end of a turn has in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from channels import Address, Json, Person
from gateway.engine.context import EngineContext
from gateway.engine.delivery.visible_log import person_line
from gateway.engine.telling import event_id_of
from gateway.engine.turns.batch import Batch
from gateway.engine.turns.notes import forget_folded, keep_folded
from gateway.engine.turns.running import RunningTurn
from gateway.memory import RESET, from_entries
from gateway.pending.actions import ConversationActions
from gateway.pending.index import Showing
from gateway.pending.lines import last_place, seal_lines
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key, Lease
from gateway.stored import keys
from gateway.stored.events import action_id_of
from gateway.stored.people import PeopleOf


def finish_turn(context: EngineContext, lease: Lease, batch: Batch) -> Transaction:
    """Return the writes of each end of a turn: its events are consumed, and the lease is given back."""
    transaction, conversation = release(context, lease), lease.lane
    transaction.consume = [(conversation, waiting.seq) for waiting in batch.taken]
    for message in batch.messages:
        person_line(transaction, context, conversation, message)
    forget_folded(transaction, context, lease, batch)
    _note_people(transaction, context, lease, batch)
    if batch.messages:
        transaction.deletes.append(keys.unreachable(conversation))
    return transaction


def _note_people(transaction: Transaction, context: EngineContext, lease: Lease, batch: Batch) -> None:
    """Note the people that wrote here for the first time."""
    if not context.has_prefetch(lease):
        return
    key = keys.key(context.store, lease.lane, keys.people)
    known = there = PeopleOf.from_json(lease.prefetched[key].value)
    for message in batch.messages:
        if message.person is not None and str(message.person) not in there.people:
            there = there.with_person(str(message.person), batch.at, group=message.address.group)
    if there is not known:
        transaction.puts[key.name] = Put(there.to_json(), context.retention.transcript_seconds)


def release(context: EngineContext, lease: Lease) -> Transaction:
    """Return the writes that give a lease back without a failure. The record of earlier failures is deleted."""
    deletes = [failures_key(context, lease).name] if lease.tries else []
    return Transaction(partition=lease.partition, lease=lease, finish="done", deletes=deletes)


def append_lines(transaction: Transaction, context: EngineContext, running: RunningTurn, lines: Sequence[Json]) -> None:
    """Append the lines of a turn to the transcript. Notes without other lines are kept for the next turn.

    A row of such turns would else fill the lines that a turn reads. Where several people may write, each line names the
    person of its turn. Forgetting a person finds them by it.
    """
    if all(isinstance(line, dict) and line.get("role") == "event" for line in lines):
        keep_folded(transaction, context, running.lease, from_entries(lines))
        return
    lease, named = running.lease, {"person": str(running.person)} if running.address.group or running.direct else {}
    told = [{**line, **named} if isinstance(line, dict) and line != RESET else line for line in lines]
    after = last_place(context.keyring, lease.lane, lease.lines)
    sealed = seal_lines(context.keyring, lease.lane, told, after=after, now=lease.prefetched.now)
    transaction.appends += [(keys.transcript(lease.lane), line) for line in sealed]


def note_acted(actions: ConversationActions, batch: Batch) -> None:
    """Note the time at which the person of this turn wrote last.

    A bare yes counts only if it is the first message or press after its question.
    """
    if batch.messages:
        actions.note_acted(batch.messages[0].person, max([batch.at, *batch.acted_beside(batch.written)]))


def note_streamed(actions: ConversationActions, since: datetime, until: datetime) -> None:
    """Note that a text came onto the screen between these times while it was written.

    A bare reply of that time, or one after it, may be meant for the text and decides no question above it.
    """
    actions.index = actions.index.showed(Showing(at=until, queued=since))


async def write_acted(transaction: Transaction, context: EngineContext, lease: Lease, batch: Batch) -> None:
    """Store that the person of this turn wrote, and that its text may have been seen, if a bare reply may have to know.

    The turn has no answer. Its attempts may have shown a text at any time since it began.
    """
    wrote = bool(batch.messages) and context.message_matters(lease, batch.messages[0].person)
    showed = context.may_stream(lease.lane) and context.reply_matters(lease)
    if wrote or showed:
        actions = await context.actions(lease.lane)
        note_acted(actions, batch)
        if showed:
            note_streamed(actions, batch.taken[0].stamp, actions.now)
        await actions.write(transaction)
        address = batch.messages[0].address if batch.messages else actions.index.address
        language, cause = context.language_of(actions), event_id_of(batch.began_by)
        transaction.parts += context.parts.render(lease.lane, address, actions.says, cause=cause, language=language)


async def turn_owner(context: EngineContext, conversation: str, batch: Batch) -> tuple[Address, Person]:
    """Return the person that a turn answers, and the address.

    It is the writer of its messages, else the person of the turn that planned it, else the requester of the action that
    its events are about. Without these it is an unknown person at the conversation's own address.
    """
    for message in batch.messages:
        if message.person is not None:
            return message.address, message.person
    if (planned := batch.follow_up) is not None:
        return planned.address, replace(Person.parse(planned.person), language=planned.language)
    for action_id in filter(None, (action_id_of(waiting.body) for waiting in batch.taken)):
        action = (await context.actions(conversation, action_id)).get(action_id)
        if action is not None and action.address is not None:
            person = Person.parse(action.requester)
            return action.address, replace(person, name=action.requester_name, language=action.language)
    address = Address.parse(conversation.partition("/")[2])
    return address, Person(channel=address.channel, account=address.account, user_id="-")


def failures_key(context: EngineContext, lease: Lease) -> Key:
    """Return the key of the record of the failed attempts at this lease's turn."""
    return keys.key(context.store, lease.lane, keys.failures)
