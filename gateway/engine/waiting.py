"""The open questions to a person in groups, for /pending in the person's own chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from channels import Address, Json, Person
from gateway.engine.context import EngineContext
from gateway.engine.memory.records import hand_to_lanes
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Lease
from gateway.stored import keys
from gateway.stored.memory_events import MemoryEvent, QuestionWaits, person_lane
from gateway.tools.approver_places import place_of
from gateway.tools.pending_action import PendingAction

_MOST: Final = 20
"""The most questions kept for a person."""
_KEPT_SECONDS: Final = 2 * 86_400.0
"""Longer than any question stays open."""


async def hand_to_people(
    transaction: Transaction, context: EngineContext, address: Address, asked: Sequence[PendingAction]
) -> None:
    """Hand the questions of a group over to the lanes of the people allowed to answer there."""
    if not address.group:
        return
    events: list[tuple[str, MemoryEvent]] = []
    for action in asked:
        people = {each for each in action.approvers if place_of(each) is None}
        for person in sorted({action.requester, *people} - action.elsewhere):
            event = QuestionWaits(
                event_id=f"waits/{action.pending_action_id}/{person}",
                action_id=action.pending_action_id,
                conversation=action.conversation,
            )
            events.append((person_lane(context.bot.name, person), event))
    await hand_to_lanes(transaction, context, events)


async def keep_waiting(
    transaction: Transaction, context: EngineContext, lease: Lease, events: Sequence[QuestionWaits]
) -> None:
    """Add questions to the record of a person's lane."""
    key = keys.key(context.store, lease.lane, keys.waits)
    found = (await context.store.get([key]))[key].value
    kept: list[Json] = [*found] if isinstance(found, list) else []
    kept += [[event.action_id, event.conversation] for event in events]
    transaction.puts[key.name] = Put(kept[-_MOST:], _KEPT_SECONDS)


async def questions_elsewhere(context: EngineContext, address: Address, person: Person) -> list[PendingAction]:
    """Return the open questions in groups for this person to answer.

    In a group the list is empty, since other people read the answer there.
    """
    if address.group:
        return []
    key = keys.key(context.store, person_lane(context.bot.name, str(person)), keys.waits)
    found = (await context.store.get([key]))[key].value
    places: dict[str, set[str]] = {}
    for entry in found if isinstance(found, list) else []:
        match entry:
            case [str(action_id), str(conversation)]:
                places.setdefault(conversation, set()).add(action_id)
    waiting: list[PendingAction] = []
    for conversation, action_ids in places.items():
        actions = await context.actions(conversation)
        waiting += [each for each in actions.open_for(str(person)) if each.pending_action_id in action_ids]
    return waiting
