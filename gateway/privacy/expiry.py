"""The removal of data older than `ASKFIRST_RETENTION` allows.

A sweep reads all logs once a day, in one process of a store, outside of any turn. So logs without new turns expire too,
and a changed retention applies to data stored before. A killed sweep has removed whole pages, and the next sweep begins
an hour later.
"""

from __future__ import annotations

import contextlib
import logging
from datetime import datetime, timedelta
from typing import Final

from gateway.config.limits import Retention
from gateway.store.base import Store
from gateway.store.codec import micros
from gateway.store.embedded import is_embedded
from gateway.store.errors import Conflict, StoreUnavailable
from gateway.store.transaction import LogCut, Put, Transaction
from gateway.store.types import Key, LogEntry
from gateway.stored import keys

log = logging.getLogger("askfirst.expiry")

_EVERY: Final = timedelta(days=1)
_AGAIN: Final = timedelta(hours=1)
"""The time until another process takes over an unfinished sweep."""
_PAGE: Final = 100
"""The most lines or dead letters read, and removed, in one call of the store."""


class Expiry:
    """The sweep of one store."""

    def __init__(self, store: Store, retention: Retention) -> None:
        self._store, self._retention = store, retention
        self._due = Key(store.partition(keys.EXPIRY), keys.EXPIRY)

    async def run(self, now: datetime) -> bool:
        """Remove the expired data, if a sweep is due. Return True if a sweep was due and ran. Raises StoreError."""
        record = (await self._store.get([self._due]))[self._due]
        # A time that no sweep can have written puts off none.
        if isinstance(record.value, int) and micros(now) < record.value <= micros(now + _EVERY):
            return False
        if not await self._postpone(record.version, now + _AGAIN):
            return False
        removed = await self._sweep(now)
        await self._postpone(record.version + 1, now + _EVERY)
        if removed:
            log.info("expired: %d lines and dead letters", removed)
            if is_embedded(self._store):
                with contextlib.suppress(StoreUnavailable):  # while a backup reads the file; the next sweep does it
                    await self._store.scrub()
        return True

    async def _postpone(self, version: int, due: datetime) -> bool:
        """Write the time of the next sweep. Return False if another process has written a time first."""
        name = self._due.name
        written = Transaction(partition=self._due.partition, expect={name: version}, puts={name: Put(micros(due))})
        try:
            await self._store.commit(written)
        except Conflict:
            return False
        return True

    async def _sweep(self, now: datetime) -> int:
        """Return the number of removed lines and dead letters."""
        days, store = self._retention, self._store
        removed = 0
        for prefix, kept in ((keys.transcript(""), days.transcript), (keys.visible_log(""), days.visible)):
            before = now - timedelta(days=kept)
            for found in await store.logs(prefix, before=before):
                removed += await self._cut(found, before)
        for partition in store.partitions:
            removed += await self._cut(Key(partition, keys.SECURITY), now - timedelta(days=days.security))
            removed += await self._cut(Key(partition, keys.AUDIT), now - timedelta(days=days.audit))
        return removed + await self._drop_letters(now - timedelta(days=days.dead_letters))

    async def _cut(self, found: Key, before: datetime) -> int:
        """Remove the lines of a log older than a moment. Return the number of removed lines."""
        removed = 0
        while True:
            page = await self._store.read(found, first=_PAGE)
            old = [entry for entry in page if entry.stamp < before]
            if found.name == keys.AUDIT:
                old = await self._without_record(found.partition, old)
            if old:
                cut = LogCut(log=found.name, upto=old[-1].seq)
                await self._store.commit(Transaction(partition=found.partition, cut=[cut]))
                removed += len(old)
            if len(old) < _PAGE:
                return removed

    async def _without_record(self, partition: str, lines: list[LogEntry]) -> list[LogEntry]:
        """Return the lines before the first line of an action with a record. The action's audit chain stays whole."""
        of = {entry.seq: _record_of(partition, entry) for entry in lines}
        snapshot = await self._store.get(list({key for key in of.values() if key is not None}))
        there = {key for key, record in snapshot.records.items() if record.version}
        first = next((number for number, entry in enumerate(lines) if of[entry.seq] in there), len(lines))
        return lines[:first]

    async def _drop_letters(self, before: datetime) -> int:
        """Remove the dead letters older than a moment. Return the number of removed letters."""
        removed = 0
        while True:
            page = await self._store.dead_letters(limit=_PAGE)
            old = [letter for letter in page if letter.stamp is not None and letter.stamp < before]
            for letter in old:
                removed += await self._store.drop(letter.dead_id)
            if len(old) < _PAGE:
                return removed


def _record_of(partition: str, entry: LogEntry) -> Key | None:
    """Return the record of the action of an audit line."""
    action_id = entry.value.get("action") if isinstance(entry.value, dict) else None
    return Key(partition, keys.action(action_id)) if isinstance(action_id, str) else None
