"""Rerouting: another place for a part refused by its place.

A part refused by a thread is sent without the thread. A part refused by a group goes to the private chat of the reader,
else into the group for the reader alone, if the platform supports this. Each place is tried once, and a delivered part
is never repeated.

A question is asked anew in the other place, by a ballot. So the buttons and the code belong to the other place, and
answers are judged by the rules of the other place.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from channels import (
    Address,
    CanOpen,
    CanReroute,
    Channel,
    Person,
    PlaceRefused,
    Unavailable,
    Undeliverable,
    Unreachable,
)
from gateway.access.suppression import check_suppression
from gateway.engine.context import EngineContext
from gateway.engine.delivery.outgoing import OutgoingPart
from gateway.pending.ballots import ask_instead
from gateway.pending.settling import close_undelivered
from gateway.pending.voting import lose_place
from gateway.store.transaction import Transaction
from gateway.store.types import Incoming, QueuedPart
from gateway.stored import keys
from gateway.stored.events import NewsMissed, PartMoved, body_of
from gateway.stored.outbox import OutboxItem, address_from_json, address_to_json, part_to_json

_OPEN_SECONDS = 10.0
"""Time limit for a platform to open a private chat."""


@dataclass(frozen=True, slots=True)
class OtherPlace:
    """Another place for a refused part."""

    address: Address
    only_to: str = ""
    """The platform's id of the only person to see the part in the group."""


async def next_place(
    context: EngineContext, out: OutgoingPart, refusal: PlaceRefused | Unreachable
) -> OtherPlace | None:
    """Return the next place for a part refused by its place; None without one. Raises SendError to try again later."""
    channel, item, address = out.channel, out.item, out.address
    if not isinstance(channel, CanReroute) or item.only_to:
        return None
    if isinstance(refusal, PlaceRefused) and refusal.thread and address.thread is not None:
        return OtherPlace(replace(address, thread=None))
    group = address if address.group else _refused_at(item)
    if group is None or not item.reader:
        return None
    reader = Person.parse(item.reader)
    if address.group and (private := await _private_chat(context, out.channel, reader)) is not None:
        return OtherPlace(private)
    top = replace(group, thread=None)
    if channel.reroute(out.part, top, only_to=reader.user_id) is None:
        return None
    return OtherPlace(top, only_to=reader.user_id)


def _refused_at(item: OutboxItem) -> Address | None:
    return address_from_json(item.refused_at) if item.refused_at is not None else None


async def _private_chat(context: EngineContext, channel: Channel, reader: Person) -> Address | None:
    if not isinstance(channel, CanOpen):
        return None
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            address = await channel.open(reader)
        await check_suppression(context.store, context.conversation(address))
    except Undeliverable:
        return None
    except TimeoutError:
        raise Unavailable("no_answer") from None
    return address


async def moved_part(context: EngineContext, out: OutgoingPart, place: OtherPlace) -> Incoming | None:
    """Return the event handing a part without a question over to another place; None if it cannot be sent so."""
    channel, item = out.channel, out.item
    part = channel.reroute(out.part, place.address, only_to=place.only_to) if isinstance(channel, CanReroute) else None
    if part is None:
        return None
    moved = OutboxItem(
        stored_address=address_to_json(place.address),
        stored_part=part_to_json(part),
        tells=item.tells,
        cause=item.cause,
        language=item.language,
        reader=item.reader,
        only_to=place.only_to,
        refused_at=address_to_json(out.address) if out.address.group else item.refused_at,
        news=item.news,
        news_at=item.news_at,
    )
    event = PartMoved(event_id=f"moved/{out.queued.part_id}", item=moved.to_json())
    return await _handed_over(context, context.conversation(place.address), event)


async def move_question(transaction: Transaction, context: EngineContext, out: OutgoingPart, place: OtherPlace) -> None:
    """Ask the questions of a part in another place. A question without anybody to decide there ends as undelivered."""
    conversation, asks = out.queued.conversation, out.item.asks
    actions = await context.actions(conversation, *asks)
    for action_id in asks:
        action = actions.get(action_id)
        if action is None or not action.open:
            continue
        if action.ballot_of is not None:
            lose_place(actions, action, actions.now, place.address, only_to=place.only_to)
        elif not ask_instead(actions, action, place.address, actions.now, only_to=place.only_to):
            close_undelivered(actions, action_id, actions.now, later=True)
    await actions.write(transaction)


async def keep_outcome(transaction: Transaction, context: EngineContext, queued: QueuedPart) -> None:
    """Keep the news of a part refused everywhere, for the next message of the requester.

    The news are an outcome, or missed news told in a place without messages.
    """
    item = OutboxItem.from_json(queued.body)
    if not item.news:
        return
    reader, place = item.reader, _refused_at(item)
    if place is None and not item.tells:
        place = item.address
    elif place is None:
        actions = await context.actions(queued.conversation, *item.tells)
        told = next((action for each in item.tells if (action := actions.get(each)) is not None), None)
        if told is None or told.ballot_of is not None or told.address is None:
            return
        reader, place = told.requester, told.address
    at = item.news_at or (await context.store.now()).isoformat()
    news = NewsMissed(event_id=f"missed/{queued.part_id}", address=place, text=item.news, at=at)
    transaction.hand_over.append(await _handed_over(context, keys.beside(queued.conversation, reader), news))


async def _handed_over(context: EngineContext, conversation: str, event: PartMoved | NewsMissed) -> Incoming:
    body = context.keyring.stamped("event", conversation, body_of(event))
    at = await context.store.now()
    return Incoming(conversation=conversation, event_ids=(event.event_id,), body=body, decides=True, stamp=at)
