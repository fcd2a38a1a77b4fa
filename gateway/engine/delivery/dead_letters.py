"""Parts that reach no person: kept as dead letters for an operator, while their actions end as never asked."""

from __future__ import annotations

from collections.abc import Sequence

from channels import OptedOut, Person, Unreachable
from gateway.access.suppression import opt_out, unreachable
from gateway.engine.context import EngineContext
from gateway.engine.delivery import attempt_record, reports
from gateway.pending.deciding import withdraw
from gateway.pending.index import Showing
from gateway.pending.settling import close_undelivered, end_tampered
from gateway.store.transaction import Transaction
from gateway.store.types import Dead, QueuedPart
from gateway.stored import keys
from gateway.stored.outbox import OutboxItem

__all__ = ["dead_letter"]


async def dead_letter(
    transaction: Transaction,
    context: EngineContext,
    parts: Sequence[QueuedPart],
    reason: str,
    *,
    refusal: OptedOut | Unreachable | None = None,
    perhaps_seen: bool = False,
    forged: bool = False,
) -> None:
    """Add to the transaction that these parts of one conversation are dead letters, and end their actions.

    `refusal`: the platform lets no message through to the conversation. It goes on the suppression list, and the
    actions of a person that opted out are withdrawn. `perhaps_seen`: the part may have arrived all the same.
    `forged`: the part has no valid seal, so its actions end as tampered.
    """
    conversation = parts[0].conversation
    for queued in parts:
        if refusal is None or _is_missed(queued):
            transaction.dead.append(Dead(dead_id=queued.part_id, conversation=conversation, reason=reason, part=queued))
        reports.forget(transaction, context, queued)
        attempt_record.forget(transaction, context, queued)
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
            close_undelivered(actions, action_id, actions.now)
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
            conversation, address, actions.says, cause="put aside", language=language
        )


def _is_missed(queued: QueuedPart) -> bool:
    """Return True if a person misses the part when it does not arrive: not an edit, nor a typing notice."""
    item = OutboxItem.from_json(queued.body)
    try:
        droppable = item.part.droppable
    except ValueError:
        return True
    return item.edits is None and not droppable


def _only_person(queued: QueuedPart) -> str:
    """Return the written form of the person of a conversation with one person: the place is its id."""
    address = OutboxItem.from_json(queued.body).address
    return str(Person(channel=address.channel, account=address.account, user_id=address.place))
