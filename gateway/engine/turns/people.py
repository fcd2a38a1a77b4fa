"""People: the record of the authors in a conversation, written by the turns with messages."""

from __future__ import annotations

from gateway.engine.turns.feature import Ending, TurnFeature
from gateway.store.transaction import Put
from gateway.stored import keys
from gateway.stored.people import PeopleOf


class People(TurnFeature):
    """Notes new authors of a conversation. Every message makes the conversation reachable again."""

    reads = (keys.PEOPLE,)

    async def contribute(self, ending: Ending) -> None:
        lease, batch = ending.turn.lease, ending.turn.batch
        if not batch.messages:
            return
        ending.transaction.deletes.append(keys.unreachable(lease.lane))
        if not self.context.has_prefetch(lease):
            return
        key = keys.key(self.context.store, lease.lane, keys.people)
        known = there = PeopleOf.from_json(lease.prefetched[key].value)
        for message in batch.messages:
            if message.person is not None and str(message.person) not in there.people:
                there = there.with_person(str(message.person), batch.at, group=message.address.group)
        if there is not known:
            ending.transaction.puts[key.name] = Put(there.to_json(), self.context.rules.retention.transcript_seconds)
