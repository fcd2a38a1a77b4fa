"""Parts that nobody will get: kept for a person to look at; what they asked was never asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from channels import OptedOut, Person, Unreachable
from gateway.access.suppression import opt_out, opt_out_key, unreachable, unreachable_key
from gateway.engine.context import EngineContext
from gateway.engine.delivery import attempt_state, reports
from gateway.engine.parts import address_from_json, part_from_json
from gateway.pending.deciding import withdraw
from gateway.pending.index import Showing
from gateway.pending.settling import close_undelivered, end_tampered
from gateway.store.base import Dead, QueuedPart, Transaction

__all__ = ["dead_letter"]


async def dead_letter(
    transaction: Transaction,
    context: EngineContext,
    parts: Sequence[QueuedPart],
    reason: str,
    *,
    shut: OptedOut | Unreachable | None = None,
    perhaps_seen: bool = False,
    forged: bool = False,
) -> None:
    """Make dead letters of these parts of one conversation; what they asked was never asked.

    `shut`: nothing gets through there, the platform says now. That is remembered, and what somebody who has opted out
    had asked for is withdrawn. `perhaps_seen`: the part may stand there all the same. `forged`: somebody without the
    key has changed it, so what it asked ends as changed.
    """
    conversation, store = parts[0].conversation, context.store
    for queued in parts:
        if shut is None or _is_news(queued):
            transaction.dead.append(Dead(dead_id=queued.part_id, conversation=conversation, reason=reason, part=queued))
        reports.forget(context, transaction, queued)
        attempt_state.forget(context, transaction, queued)
    asks = [action_id for queued in parts for action_id in _asks(queued)]
    if not asks and shut is None and not perhaps_seen:
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
    match shut:
        case OptedOut():
            withdraw(actions, _alone(parts[0]), actions.now)
            transaction.puts[opt_out_key(store, conversation).name] = opt_out(actions.now)
        case Unreachable():
            transaction.puts[unreachable_key(store, conversation).name] = unreachable(actions.now, shut.code)
    actions.write(transaction)
    if shut is None:
        address, language = actions.index.address, actions.language
        transaction.parts += context.parts.render(
            conversation, address, actions.says, cause="put aside", language=language
        )


def _is_news(queued: QueuedPart) -> bool:
    """Whether it says anything by itself: nobody misses an edit of what they do not see."""
    try:
        droppable = part_from_json(queued.body["part"]).droppable
    except ValueError:
        return True
    return queued.body["edits"] is None and not droppable


def _asks(queued: QueuedPart) -> list[str]:
    return cast("list[str]", queued.body.get("asks") or queued.body["shows"])


def _alone(queued: QueuedPart) -> str:
    """The person of a conversation that has no other."""
    address = address_from_json(queued.body["address"])
    return str(Person(channel=address.channel, account=address.account, user_id=address.place))
