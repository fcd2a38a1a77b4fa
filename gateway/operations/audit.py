"""Commands on the audit: read and verify."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping
from datetime import UTC, datetime, time
from typing import Final

from channels import Json
from gateway.operations.base import JsonObject, StoreCommands
from gateway.pending.audit import AuditCheck, is_pseudonym, people_by_pseudonym
from gateway.pending.loading import stored_action
from gateway.store.types import Key
from gateway.stored import keys

LINES_TOLD: Final = 1_000
"""Limit of the returned lines. The newest lines are returned."""
_PAGE: Final = 1_000
"""Limit of the lines read in a call of the store."""
_ACTIONS = keys.action("")


class AuditCommands(StoreCommands):
    """Commands on the audit of a store."""

    async def audit(self, action_id: str = "", person: str = "", since: str = "") -> list[JsonObject]:
        """Return the last lines of the audit, oldest first: at most `LINES_TOLD`.

        `action_id`: only of actions with an id beginning with this text. `person`: only with this person, like
        ``telegram:123:456``, or with this pseudonym. `since`: only from this day of UTC on, like ``2026-11-01``. Raises
        NotDone for a `since` that is no day.

        ``person`` is the person of a line. Beside ``person`` stand the stored ``pseudonym`` of the line, and the
        ``run`` while the action's record is kept. A ``forgotten`` person has the pseudonym alone.
        """
        day = await self._day(since)
        first = "" if day is None else datetime.combine(day, time(), UTC).isoformat()
        people = await people_by_pseudonym(self._store)
        found: list[tuple[str, JsonObject]] = []
        for partition in self._store.partitions:
            last: deque[tuple[str, JsonObject]] = deque(maxlen=LINES_TOLD)
            async for line in self._lines(partition, action_id):
                named = str(line.get("person") or "")
                if person in ("", named, people.get(named)) and str(line.get("at")) >= first:
                    last.append((partition, {**line, **_told(named, people)}))
            found += last
        newest = sorted(found, key=lambda each: str(each[1].get("at")))[-LINES_TOLD:]
        runs = await self._runs({Key(partition, keys.action(str(line.get("action")))) for partition, line in newest})
        return [{**runs.get(str(line.get("action")), {}), **line} for _, line in newest]

    async def verify_audit(self, action_id: str = "") -> JsonObject:
        """Check the chains of all actions, or of the actions with an id beginning with `action_id`.

        Return the number of lines, the number of actions, and the faults by action.
        """
        heads, faults = await self._heads(action_id)
        check, lines, actions = AuditCheck(heads), 0, set(heads)
        for partition in self._store.partitions:
            async for line in self._lines(partition, action_id):
                lines += 1
                actions.add(str(line.get("action")))
                check.take(line)
        begins = [await self._store.read(Key(partition, keys.AUDIT), first=1) for partition in self._store.partitions]
        was_cut = any(line.seq > 1 for first in begins for line in first)
        found: dict[str, Json] = {**check.faults(was_cut=was_cut), **faults}
        return {"lines": lines, "actions": len(actions), "faults": found}

    async def _lines(self, partition: str, action_id: str) -> AsyncIterator[Mapping[str, Json]]:
        after, log = 0, Key(partition, keys.AUDIT)
        while page := await self._store.read(log, after=after, first=_PAGE):
            after = page[-1].seq
            for entry in page:
                line = entry.value
                if isinstance(line, dict) and str(line.get("action")).startswith(action_id):
                    yield line

    async def _runs(self, wanted: Collection[Key]) -> dict[str, JsonObject]:
        """Return the id of the asking run, by action, of the actions with a stored record."""
        found: dict[str, JsonObject] = {}
        for partition in {key.partition for key in wanted}:
            snapshot = await self._store.get([key for key in wanted if key.partition == partition])
            for key, record in snapshot.records.items():
                action = stored_action(self._keyring, key, record)
                if action is not None and action.run_id:
                    found[action.pending_action_id] = {"run": action.run_id}
        return found

    async def _heads(self, action_id: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return the heads in the records by action, and the faults of records."""
        heads, faults = dict[str, str](), dict[str, str]()
        for key, record in await self._store.scan(keys.action(action_id)):
            action = stored_action(self._keyring, key, record)
            name = key.name.removeprefix(_ACTIONS)
            if action is None:
                faults[name] = "its record was changed without the key, or ASKFIRST_SECRET is another"
            else:
                heads[name] = action.audit
        return heads, faults


def _told(named: str, people: Mapping[str, str]) -> JsonObject:
    """Return the fields for the person of a line."""
    if not is_pseudonym(named):
        return {}
    told: JsonObject = {"person": people.get(named, named), "pseudonym": named}
    return told if named in people else {**told, "forgotten": True}
