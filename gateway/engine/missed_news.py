"""Missed news: the ends of actions with no place to be told, told with the next message of the requester.

The news are a sealed record in the person's own conversation. In a private chat with this name the turn tells the news
itself. Any other chat hands the person's message over to the own conversation, and gets the news back in the same way.
In a group only news of the group are told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from channels import Address, CanReroute, Json, Reply
from gateway.engine.context import EngineContext
from gateway.engine.parts import scheduled_reply
from gateway.engine.turns.feature import Ending, TurnFeature
from gateway.pending.actions import OutgoingReply
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming, Record
from gateway.stored import keys
from gateway.stored.events import NewsMissed, PersonWrote, body_of

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
            news = _take(context, ending.transaction, own, record, turn.address)
            ending.says += [OutgoingReply(reply=reply) for reply in news]
            return
        event = PersonWrote(event_id=f"wrote/{turn.cause}", address=turn.address)
        body = context.keyring.stamped("event", own, body_of(event))
        at = await context.store.now()
        incoming = Incoming(conversation=own, event_ids=(event.event_id,), body=body, decides=True, stamp=at)
        ending.transaction.hand_over.append(incoming)


async def keep(context: EngineContext, transaction: Transaction, conversation: str, event: NewsMissed) -> None:
    """Add news to the record of the person's own conversation, `conversation`."""
    key = keys.key(context.store, conversation, keys.missed)
    record = (await context.store.get([key]))[key]
    news = [*_read(context, conversation, record), {"place": str(event.address), "text": event.text}]
    _write(context, transaction, conversation, record, news[-_MOST:])


async def hand_over(
    context: EngineContext, transaction: Transaction, conversation: str, event: PersonWrote, at: datetime
) -> None:
    """Hand the news for the place of the person's message over to this place."""
    key = keys.key(context.store, conversation, keys.missed)
    record = (await context.store.get([key]))[key]
    there = context.conversation(event.address)
    for number, reply in enumerate(_take(context, transaction, conversation, record, event.address)):
        event_id = f"{event.event_id}/{number}"
        told = scheduled_reply(context.keyring, there, event.address, reply, event_id=event_id)
        transaction.hand_over.append(replace(told, stamp=at))


def _take(
    context: EngineContext, transaction: Transaction, conversation: str, record: Record, address: Address
) -> Sequence[Reply]:
    """Take the news that may be told at this address out of the record, and return their texts."""
    news = _read(context, conversation, record)
    told = [each for each in news if not address.group or _is_around(Address.parse(str(each["place"])), address)]
    if told:
        _write(context, transaction, conversation, record, [each for each in news if each not in told])
    return [Reply(text=str(each["text"]), exact=True) for each in told]


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
