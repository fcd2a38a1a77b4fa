"""The further turns that the tools of a turn planned: events in the commit that ends it."""

from __future__ import annotations

from datetime import timedelta

from gateway.engine.context import EngineContext
from gateway.engine.turns.running import RunningTurn
from gateway.store.transaction import Timer, Transaction
from gateway.store.types import Incoming
from gateway.stored.events import FollowUp, body_of
from gateway.turn import Outcome


async def accept_follow_ups(
    transaction: Transaction, context: EngineContext, running: RunningTurn, outcome: Outcome, language: str
) -> None:
    """Accept the follow-ups of a turn, or set their timers. A turn that was stopped has none."""
    if outcome.loop is None or not outcome.loop.follow_ups or outcome.stop_reason == "cancelled":
        return
    now = await context.store.now()
    depth = 1 + (running.batch.follow_up.depth if running.batch.follow_up is not None else 0)
    for number, planned in enumerate(outcome.loop.follow_ups, start=1):
        event_id = f"follow_up/{running.events.run_id}/{number}"
        event = FollowUp(
            event_id=event_id,
            address=running.address,
            person=str(running.person),
            language=language,
            text=planned.text,
            depth=depth,
        )
        body = context.keyring.stamped("event", running.conversation, body_of(event))
        incoming = Incoming(conversation=running.conversation, event_ids=(event_id,), body=body)
        if planned.after_seconds:
            due = now + timedelta(seconds=planned.after_seconds)
            transaction.timers.append(Timer(timer_id=event_id, due=due, incoming=incoming))
        else:
            transaction.accept.append(incoming)
