"""An outbox under a lease. A part leaves the outbox with a receipt, dropped, or as a dead letter.

The commit taking out the last part also releases the lane.

Dead letters are parts that reach no person: kept for an operator, while the actions of the parts end as never asked.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from channels import OptedOut, Person, Receipt, Unreachable
from gateway.access.suppression import opt_out, unreachable
from gateway.engine.context import EngineContext
from gateway.engine.delivery import attempt_state, reports
from gateway.engine.delivery.attempt_state import AttemptRecord
from gateway.engine.delivery.outgoing import OutgoingPart
from gateway.engine.delivery.rerouting import OtherPlace, keep_outcome, move_question, moved_part
from gateway.engine.delivery.visible_log import bot_line
from gateway.engine.retrying import attempts
from gateway.engine.telling import cause_of_part, tell_failed
from gateway.observe.events import ArtifactDelivered, MessageSent
from gateway.pending.deciding import withdraw
from gateway.pending.index import Showing
from gateway.pending.prompting import note_arrived
from gateway.pending.settling import close_undelivered, end_tampered
from gateway.store.transaction import Transaction
from gateway.store.types import Dead, Lease, QueuedPart
from gateway.stored import keys
from gateway.stored.outbox import OutboxItem

log = logging.getLogger("askfirst.delivery")


_MOST_DEAD = 500
"""The most dead letters of a commit."""


class Outbox:
    """The outbox of a conversation, under a lease."""

    def __init__(self, context: EngineContext, lease: Lease) -> None:
        self._context, self._lease = context, lease
        self.given_back = False
        """The lane was released before the last part: the worker stops."""
        self.gone: set[str] = set()
        """The ids of later parts taken out together with an earlier part."""

    def died(self, queued: QueuedPart) -> bool:
        """Return True if the previous worker may have died during a call of this part."""
        return self._lease.died and queued is self._lease.parts[0]

    async def arrived(self, out: OutgoingPart, receipt: Receipt) -> None:
        """Take out a part with a receipt, and start the time to answer the questions in it.

        If the platform has already reported the message as lost, the part becomes a dead letter instead. The commit
        waits for an unavailable store, and is not made twice after a lost answer.
        """
        context, queued, item = self._context, out.queued, out.item
        capabilities = out.channel.capabilities
        matters = bool(item.shows) or context.reply_matters(self._lease)
        for attempt in attempts(patient=True):
            async with attempt:
                if attempt.outcome_unknown and await self._has_left(queued):
                    break  # the commit was made, and only its answer was lost
                transaction = self._taking_out(queued)
                if capabilities.reports and receipt.message_id is not None:
                    failed = await reports.record_receipt(transaction, context, queued, receipt.message_id)
                    if failed is not None:
                        await self.give_up(out.record, failed)
                        return
                if item.edits is None and not out.part.droppable and matters:
                    await self._note_arrival(transaction, out, receipt)
                if capabilities.visible and not item.takes_away:
                    _, run_id = cause_of_part(queued, item)
                    line = bot_line(
                        queued.conversation, out.part, receipt.message_id, item.edits, item.shows, run_id=run_id
                    )
                    transaction.appends.append(line)
                await context.commit(transaction)
        if not item.takes_away:
            await self._tell_sent(out, receipt)

    async def _tell_sent(self, out: OutgoingPart, receipt: Receipt) -> None:
        events, queued = self._context.events, out.queued
        cause, run_id = cause_of_part(queued, out.item)
        await events.tell(
            MessageSent,
            run_id,
            address=out.address,
            message_id=receipt.message_id,
            conversation=queued.conversation,
            part_id=queued.part_id,
            call=out.part.call,
            cause=cause,
            duration_ms=out.durations_ms[-1] if out.durations_ms else None,
        )
        if out.part.media is not None:
            await events.tell(ArtifactDelivered, run_id, address=out.address, sha256=out.part.media.sha256)

    async def _has_left(self, queued: QueuedPart) -> bool:
        waiting = await self._context.store.outbox(queued.conversation)
        return all(queued.part_id != each.part_id for each in waiting)

    async def _note_arrival(self, transaction: Transaction, out: OutgoingPart, receipt: Receipt) -> None:
        context, queued, item = self._context, out.queued, out.item
        actions = await context.actions(queued.conversation, *item.shows)
        showing = Showing(
            at=actions.now,
            queued=queued.stamp or actions.now,
            shows=frozenset(item.shows),
            tells=frozenset(item.tells),
            alone=item.alone,
            listed=item.listed,
            intent=item.intent,
            message_id=receipt.message_id,
            sent_at=receipt.sent_at,
        )
        note_arrived(actions, showing)
        await actions.write(transaction)
        cause, language = str(item.cause), context.language_of(actions)
        transaction.parts += context.parts.render(
            queued.conversation,
            out.address,
            actions.says,
            cause=cause,
            language=language,
            reader=actions.reader(None),
        )

    async def drop(self, queued: QueuedPart) -> None:
        """Take out an unsent part, without a dead letter."""
        await self._context.commit(self._taking_out(queued))

    async def move(self, out: OutgoingPart, place: OtherPlace, why: str) -> None:
        """Take out a part refused by its place, and hand the part, or its question, over to another place.

        The waiting parts of the same question are taken out too.
        """
        queued, asks = out.queued, frozenset(out.item.asks)
        beside = [each for each in self._later(queued) if not asks.isdisjoint(OutboxItem.from_json(each.body).asks)]
        self.gone.update(each.part_id for each in beside)
        for attempt in attempts():
            async with attempt:
                transaction = self._taking_out(queued)
                transaction.sent += [each.part_id for each in beside]
                if asks:
                    await move_question(transaction, self._context, out, place)
                elif (moved := await moved_part(self._context, out, place)) is not None:
                    transaction.hand_over.append(moved)
                for each in (queued, *beside):
                    reports.forget(transaction, self._context, each)
                    attempt_state.forget(transaction, self._context, each)
                await self._context.commit(transaction)
        log.info("%s takes no message (%s): tried elsewhere", queued.conversation, why)

    async def give_up(self, record: AttemptRecord, reason: str, *, forged: bool = False, nowhere: bool = False) -> None:
        """Take out a part as a dead letter. The later parts stay. `nowhere`: no place takes the part."""
        queued = record.queued
        edit = OutboxItem.from_json(queued.body).edits is not None
        for attempt in attempts():
            async with attempt:
                transaction = self._taking_out(queued)
                perhaps_seen = not edit and await record.state() != "none"
                await dead_letter(
                    transaction,
                    self._context,
                    [queued],
                    reason,
                    perhaps_seen=perhaps_seen,
                    forged=forged,
                    nowhere=nowhere,
                )
                await self._context.commit(transaction)
        tell_failed(self._context.events, queued, reason)
        self._context.sound_undelivered([queued])

    async def suppress(self, refusal: OptedOut | Unreachable) -> None:
        """Make dead letters of up to `_MOST_DEAD` parts, suppress the conversation, and release the lane."""
        context, lease, reason = self._context, self._lease, f"not deliverable: {refusal.code}"
        for attempt in attempts():
            async with attempt:
                parts = (await context.store.outbox(lease.lane))[:_MOST_DEAD]
                transaction = Transaction(partition=lease.partition, lease=lease, finish="done")
                transaction.sent = [queued.part_id for queued in parts]
                await dead_letter(transaction, context, parts, reason, refusal=refusal)
                await context.commit(transaction)
                for queued in parts:
                    tell_failed(context.events, queued, reason, suppressed=True)
                context.sound_undelivered(parts)
        self.given_back = True

    async def give_back(self, how: Literal["done", "failed"], *, wait_seconds: float = 0.0) -> None:
        """Release the lane with the remaining parts, to be tried again after this wait."""
        due = await self._context.store.now() + timedelta(seconds=wait_seconds)
        await self._context.commit(Transaction(partition=self._lease.partition, lease=self._lease, finish=how, due=due))
        self.given_back = True

    def _taking_out(self, queued: QueuedPart) -> Transaction:
        lease = self._lease
        last = all(each.part_id in self.gone for each in self._later(queued))
        return Transaction(
            partition=lease.partition, lease=lease, sent=[queued.part_id], finish="done" if last else None
        )

    def _later(self, queued: QueuedPart) -> Sequence[QueuedPart]:
        """Return the parts of the lease behind a part; all for a note that is not of the lease itself."""
        parts = self._lease.parts
        number = next((number for number, each in enumerate(parts, start=1) if each is queued), 0)
        return parts[number:]


async def dead_letter(
    transaction: Transaction,
    context: EngineContext,
    parts: Sequence[QueuedPart],
    reason: str,
    *,
    refusal: OptedOut | Unreachable | None = None,
    perhaps_seen: bool = False,
    forged: bool = False,
    nowhere: bool = False,
) -> None:
    """Make these parts of a conversation dead letters in the transaction, and end the actions of the parts.

    `refusal`: the platform lets no message through to the conversation. The conversation goes on the suppression list,
    and the actions of an opted-out person are withdrawn. `perhaps_seen`: the part may have arrived all the same.
    `forged`: the part has no valid seal, so the actions end as tampered. `nowhere`: no place takes the part, so the
    requester reads about the ends of actions with their next message.
    """
    conversation, nowhere = parts[0].conversation, nowhere or isinstance(refusal, Unreachable)
    for queued in parts:
        if refusal is None or _is_missed(queued):
            transaction.dead.append(Dead(dead_id=queued.part_id, conversation=conversation, reason=reason, part=queued))
        reports.forget(transaction, context, queued)
        attempt_state.forget(transaction, context, queued)
        if nowhere:
            await keep_outcome(transaction, context, queued)
    asks = [action_id for queued in parts for action_id in OutboxItem.from_json(queued.body).asks]
    if not asks and refusal is None and not perhaps_seen:
        return
    actions = await context.actions(conversation, *asks)
    if perhaps_seen:
        queued_at = parts[0].stamp or actions.now
        actions.index = actions.index.showed(Showing(at=actions.now, queued=queued_at))
    for action_id in asks:
        action = actions.get(action_id)
        if forged and action is not None and action.open:
            end_tampered(actions, action, was_running=False)
            context.alarms.sound(actions.by_id[action_id], "forged")
        else:
            close_undelivered(actions, action_id, actions.now, later=nowhere)
    match refusal:
        case OptedOut():
            withdraw(actions, _only_person(parts[0]), actions.now)
            transaction.puts[keys.opted_out(conversation)] = opt_out(actions.now)
        case Unreachable():
            transaction.puts[keys.unreachable(conversation)] = unreachable(actions.now, refusal.code)
    await actions.write(transaction)
    if refusal is None:
        address, language = actions.index.address, context.language_of(actions)
        transaction.parts += context.parts.render(
            conversation,
            address,
            actions.says,
            cause="put aside",
            language=language,
            reader=actions.reader(None),
        )


def _is_missed(queued: QueuedPart) -> bool:
    """Return True if a person misses a lost part: neither an edit nor a typing notice."""
    item = OutboxItem.from_json(queued.body)
    try:
        droppable = item.part.droppable
    except ValueError:
        return True
    return item.edits is None and not droppable


def _only_person(queued: QueuedPart) -> str:
    """Return the written form of the person in a conversation with one person: the place is the person's id."""
    address = OutboxItem.from_json(queued.body).address
    return str(Person(channel=address.channel, account=address.account, user_id=address.place))
