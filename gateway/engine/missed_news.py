"""Missed news: the ends of actions with no place to be told, told with the next message of the requester.

The news are a sealed record in the person's own conversation. In a private chat with this name the turn tells the news
itself. Any other chat hands the person's message over to the own conversation, and gets the news back in the same way.
In a group only news of the group are told. News refused by their place again come back into the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from channels import Address, CanReroute, Json, Reply
from gateway.engine.context import EngineContext
from gateway.engine.turns.feature import Ending, TurnFeature
from gateway.pending.actions import OutgoingReply
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming, Record
from gateway.stored import keys
from gateway.stored.events import NewsMissed, PartMoved, PersonWrote, body_of
from gateway.stored.outbox import OutboxItem

_MOST: Final = 10
_KEPT_SECONDS: Final = 30 * 86_400.0


class MissedNews(TurnFeature):
    """Tells a person the missed news under the answer to their message."""

    reads = (keys.MISSED,)

    async def contribute(self, ending: Ending) -> None:
        turn, context = ending.turn, self.context
        if turn.direct or not turn.batch.messages:
            return
        own = keys.beside(turn.conversation, turn.person)
        key = keys.key(context.store, own, keys.missed)
        if own == turn.conversation:
            if context.has_prefetch(turn.lease) and turn.lease.prefetched[key].value is None:
                return
        elif not isinstance(context.channels.get(turn.address.channel), CanReroute):
            return
        record = (await context.store.get([key]))[key]
        if record.value is None:
            return
        if own == turn.conversation:
            ending.says += _take(context, ending.transaction, own, record, turn.address)
            return
        event = PersonWrote(event_id=f"wrote/{turn.cause}", address=turn.address)
        body = context.keyring.stamped("event", own, body_of(event))
        at = await context.store.now()
        incoming = Incoming(conversation=own, event_ids=(event.event_id,), body=body, decides=True, stamp=at)
        ending.transaction.hand_over.append(incoming)


async def keep(context: EngineContext, transaction: Transaction, conversation: str, event: NewsMissed) -> None:
    """Add news to the record of the person's own conversation, `conversation`, in the order of their times."""
    key = keys.key(context.store, conversation, keys.missed)
    record = (await context.store.get([key]))[key]
    new = {"place": str(event.address), "text": event.text, "at": event.at}
    news = sorted([*_read(context, conversation, record), new], key=lambda each: str(each["at"]))
    _write(context, transaction, conversation, record, news[-_MOST:])


async def hand_over(
    context: EngineContext, transaction: Transaction, conversation: str, event: PersonWrote, at: datetime
) -> None:
    """Hand the news for the place of the person's message over to this place, as rendered parts."""
    key = keys.key(context.store, conversation, keys.missed)
    record = (await context.store.get([key]))[key]
    if event.address.channel not in context.channels:
        return
    there = context.conversation(event.address)
    parts = context.parts.render(
        there,
        event.address,
        _take(context, transaction, conversation, record, event.address),
        cause=event.event_id,
        language=context.language(None),
        reader=conversation.partition("/")[2],  # the person's own conversation
    )
    for number, part in enumerate(parts):
        item = OutboxItem.from_json(part.body).to_json()
        moved = PartMoved(event_id=f"{event.event_id}/{number}", item=item)
        body = context.keyring.stamped("event", there, body_of(moved))
        transaction.hand_over.append(
            Incoming(conversation=there, event_ids=(moved.event_id,), body=body, decides=True, stamp=at)
        )


def _take(
    context: EngineContext, transaction: Transaction, conversation: str, record: Record, address: Address
) -> Sequence[OutgoingReply]:
    """Take the news for this address out of the record, and return the replies with them."""
    told: list[OutgoingReply] = []
    others: list[Mapping[str, Json]] = []
    for each in _read(context, conversation, record):
        place = Address.parse(str(each["place"]))
        if not address.group or _is_around(place, address):
            reply = Reply(text=str(each["text"]), exact=True)
            told.append(OutgoingReply(reply=reply, news_of=place, news_at=str(each["at"])))
        else:
            others.append(each)
    if told:
        _write(context, transaction, conversation, record, others)
    return told


def _is_around(place: Address, address: Address) -> bool:
    return (place.channel, place.account, place.place) == (address.channel, address.account, address.place)


def _read(context: EngineContext, conversation: str, record: Record) -> list[Mapping[str, Json]]:
    key = keys.key(context.store, conversation, keys.missed)
    match context.unsealed(key, record, conversation):
        case {"news": list(news)}:
            return [each for each in news if isinstance(each, dict)]
    return []


def _write(
    context: EngineContext,
    transaction: Transaction,
    conversation: str,
    record: Record,
    news: Sequence[Mapping[str, Json]],
) -> None:
    name = keys.missed(conversation)
    transaction.expect[name] = record.version
    if news:
        value: Json = {"news": [dict(each) for each in news]}
        transaction.puts[name] = Put(context.sealed(name, value), _KEPT_SECONDS)
    else:
        transaction.deletes.append(name)
