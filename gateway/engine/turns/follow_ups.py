"""Follow-ups: further turns planned by the tools of a turn, as events in the turn's final commit."""

from __future__ import annotations

from datetime import timedelta

from gateway.engine.turns.feature import Ending, TurnFeature
from gateway.store.transaction import Timer
from gateway.store.types import Incoming
from gateway.stored.events import FollowUp, body_of


class FollowUps(TurnFeature):
    """Accepts the follow-ups of a turn, or sets timers for later follow-ups. A stopped turn has no follow-ups."""

    async def contribute(self, ending: Ending) -> None:
        turn, outcome, context = ending.turn, ending.outcome, self.context
        if outcome is None or outcome.loop is None or not outcome.loop.follow_ups:
            return
        if outcome.stop_reason == "cancelled":
            return
        now = await context.store.now()
        depth = 1 + (turn.batch.follow_up.depth if turn.batch.follow_up is not None else 0)
        for number, planned in enumerate(outcome.loop.follow_ups, start=1):
            event_id = f"follow_up/{turn.events.run_id}/{number}"
            event = FollowUp(
                event_id=event_id,
                address=turn.address,
                person=str(turn.person),
                language=ending.language,
                text=planned.text,
                depth=depth,
            )
            body = context.keyring.stamped("event", turn.conversation, body_of(event))
            incoming = Incoming(conversation=turn.conversation, event_ids=(event_id,), body=body)
            if planned.after_seconds:
                due = now + timedelta(seconds=planned.after_seconds)
                ending.transaction.timers.append(Timer(timer_id=event_id, due=due, incoming=incoming))
            else:
                ending.transaction.accept.append(incoming)
