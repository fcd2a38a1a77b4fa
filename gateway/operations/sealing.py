"""Seals of an old key: counted, and renewed with the first key of `ASKFIRST_SECRET`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Final

from channels import Json
from gateway.engine.retrying import attempts
from gateway.operations.base import JsonObject, StoreCommands
from gateway.pending.lines import read_entries, sealed_anew
from gateway.pending.old_seals import look_at_actions
from gateway.pending.seal import Purpose
from gateway.pending.sealed_records import seal_anew
from gateway.store.errors import Conflict
from gateway.store.transaction import Timer, Transaction
from gateway.store.types import Dead, LogEntry
from gateway.stored import keys

_MOST: Final = 10_000
_PAGE: Final = 500
_RECORDS: Final = {
    "people": (keys.ADMITTED, keys.NEWCOMERS),
    "memories": ("memory/", "knowledge/", keys.folded_notes(""), keys.overheard("")),
    "missed news": (keys.missed(""),),
    "results": ("raw/", "cached/", keys.streamed("")),
}
"""Independent sealed records: a word for each kind, and the prefixes of the names."""


class SealCommands(StoreCommands):
    """Commands on the seals of an old key. After a killed command, a repeat does the rest."""

    async def old_seals(self) -> JsonObject:
        """Return the number of seals made by any key other than the first, by kind."""
        return await self._look(mends=False)

    async def reseal(self) -> JsonObject:
        """Make these seals anew with the first key. Return the counts by kind."""
        return await self._look(mends=True)

    async def _look(self, *, mends: bool) -> JsonObject:
        found: Counter[str] = Counter()
        for kind, prefixes in _RECORDS.items():
            for prefix in prefixes:
                found[kind] += await self._records(prefix, mends=mends)
        found["actions"] += await self._actions(mends=mends)
        found["lines"] += await self._transcripts(mends=mends)
        found["events"] += await self._events(mends=mends) + await self._timers(mends=mends)
        found["dead letters"] += await self._letters(mends=mends)
        return {kind: count for kind, count in found.items() if count}

    async def _records(self, prefix: str, *, mends: bool, without: Set[str] = frozenset()) -> int:
        count = 0
        for key, record in await self._store.scan(prefix):
            sealed = self._keyring.open(key.name, record.value)
            if key.name in without or sealed is None or not sealed.is_old:
                continue
            count += await seal_anew(self._store, self._keyring, key, record) if mends else 1
        return count

    async def _actions(self, *, mends: bool) -> int:
        count, named, prefix = 0, set[str](), keys.index("")
        for key, _ in await self._store.scan(prefix):
            for attempt in attempts():
                async with attempt:
                    found = await look_at_actions(
                        self._store, self._keyring, key.name.removeprefix(prefix), mends=mends
                    )
                    count += found.many
                    named |= found.named
        return count + await self._records(keys.action(""), mends=mends, without=named)

    async def _transcripts(self, *, mends: bool) -> int:
        count, prefix = 0, keys.transcript("")
        for log in await self._store.logs(prefix):
            conversation, after = log.name.removeprefix(prefix), 0
            page: list[LogEntry]
            while page := await self._store.read(log, after=after, first=_PAGE):
                after = page[-1].seq
                read = read_entries(self._keyring, conversation, page)
                count += len(read.old)
                if read.old and mends:
                    lines = sealed_anew(self._keyring, conversation, log.name, read)
                    await self._store.commit(Transaction(partition=log.partition, rewrite=lines))
        return count

    async def _events(self, *, mends: bool) -> int:
        count = 0
        for box in await self._store.mailboxes(_MOST):
            conversation = box.conversation
            for waiting in await self._store.mailbox(conversation, _MOST):
                if not self._is_old("event", conversation, waiting.body):
                    continue
                count += 1
                if mends:
                    changed = conversation, waiting.seq, self._stamped("event", conversation, waiting.body)
                    transaction = Transaction(partition=self._store.partition(conversation), replace=[changed])
                    with contextlib.suppress(Conflict):  # a turn has taken it
                        await self._store.commit(transaction)
        return count

    async def _timers(self, *, mends: bool) -> int:
        """Count the timers with an old seal. `mends` renews the seals. A timer firing meanwhile comes back, and its
        event is then a twin of the first event."""
        old = [
            each
            for each in await self._store.timers()
            if self._is_old("event", each.incoming.conversation, each.incoming.body)
        ]
        for each in old if mends else ():
            conversation = each.incoming.conversation
            body = self._stamped("event", conversation, each.incoming.body)
            timer = Timer(timer_id=each.timer_id, due=each.due, incoming=replace(each.incoming, body=body))
            await self._store.commit(Transaction(partition=self._store.partition(conversation), timers=[timer]))
        return len(old)

    async def _letters(self, *, mends: bool) -> int:
        count = 0
        for letter in await self._store.dead_letters():
            purpose: Purpose = "event" if letter.incoming is not None else "part"
            held = letter.incoming or letter.part
            if held is None or not self._is_old(purpose, letter.conversation, held.body):
                continue
            count += 1
            if mends:
                body = self._stamped(purpose, letter.conversation, held.body)
                partition = self._store.partition(letter.conversation)
                await self._store.commit(Transaction(partition=partition, dead=[_with_body(letter, body)]))
        return count

    def _is_old(self, purpose: Purpose, conversation: str, body: Mapping[str, Json]) -> bool:
        return bool(self._keyring.key_of_body(purpose, conversation, body))

    def _stamped(self, purpose: Purpose, conversation: str, body: Mapping[str, Json]) -> Mapping[str, Json]:
        return self._keyring.stamped(purpose, conversation, {name: body[name] for name in body if name != "mac"})


def _with_body(letter: Dead, body: Mapping[str, Json]) -> Dead:
    if letter.incoming is not None:
        return replace(letter, incoming=replace(letter.incoming, body=body))
    return replace(letter, part=replace(letter.part, body=body)) if letter.part is not None else letter
