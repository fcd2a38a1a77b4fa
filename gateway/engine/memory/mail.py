"""The way of events into memory lanes: with the commit of a turn."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.engine.context import EngineContext
from gateway.store.transaction import Transaction
from gateway.store.types import Incoming
from gateway.stored.memory_events import MemoryEvent, memory_body_of

__all__ = ["hand_to_lanes"]


async def hand_to_lanes(
    transaction: Transaction, context: EngineContext, events: Sequence[tuple[str, MemoryEvent]]
) -> None:
    """Hand events over to memory lanes, each with the name of its lane."""
    if not events:
        return
    now = await context.store.now()
    for lane, event in events:
        body = context.keyring.stamped("event", lane, memory_body_of(event))
        transaction.hand_over.append(Incoming(conversation=lane, event_ids=(event.event_id,), body=body, stamp=now))
