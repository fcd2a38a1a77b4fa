"""An operator's commands on dead letters: list, show, replay, drop."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from channels import Json
from gateway.operations.base import JsonObject, NotDone, StoreCommands, iso
from gateway.store.transaction import Transaction
from gateway.store.types import Dead, Key
from gateway.stored import keys

LETTERS_A_PAGE = 100
"""Dead letters on a page of the list."""


class DeadLetterCommands(StoreCommands):
    """Commands on the dead letters of a store, and on the shapes of payloads not understood by any channel."""

    async def dead(self, after: str = "0") -> list[JsonObject]:
        """Return a page of dead letters, oldest first, after the dead letter with this `seq`. The last page ends with
        the shapes. Raises NotDone."""
        if not after.isdecimal():
            raise NotDone(f"{after!r} is no place in the list: give the number that the page before ends with")
        letters = await self._store.dead_letters(after=int(after), limit=LETTERS_A_PAGE)
        shapes = [] if len(letters) == LETTERS_A_PAGE else await self._shapes()
        return [*map(_summary, letters), *(shape for _, shape in shapes)]

    async def letter(self, dead_id: str) -> JsonObject:
        """Return a dead letter in full, with the person's words. Raises NotDone."""
        for _, shape in await self._shapes(dead_id):
            return shape
        dead = await self._find_dead(dead_id)
        held = dead.incoming or dead.part
        return {**_summary(dead), "body": dict(held.body) if held is not None else None}

    async def replay(self, dead_id: str) -> JsonObject:
        """Put a dead letter back into the mailbox or outbox. Raises NotDone."""
        dead = await self._find_dead(dead_id)
        if dead.incoming is None and dead.part is None:
            raise NotDone(f"{dead_id} holds nothing that could be replayed ({dead.reason}): drop it")
        return _removed(dead, was_there=await self._store.replay(dead.dead_id))

    async def drop(self, dead_id: str) -> JsonObject:
        """Delete a dead letter. Raises NotDone."""
        for key, shape in await self._shapes(dead_id):
            await self._store.commit(Transaction(partition=key.partition, deletes=[key.name]))
            return shape
        dead = await self._find_dead(dead_id)
        return _removed(dead, was_there=await self._store.drop(dead.dead_id))

    async def drop_all(self, reason: str = "") -> JsonObject:
        """Delete all dead letters, or the dead letters with this text in the reason."""
        return {"dropped": await self._store.drop_all(reason or None)}

    async def _find_dead(self, dead_id: str) -> Dead:
        found = [dead for dead in await self._store.dead_letters() if dead_id and dead.dead_id.startswith(dead_id)]
        exact = [dead for dead in found if dead.dead_id == dead_id]
        if len(exact or found) > 1:
            raise NotDone(f"{len(found)} dead letters begin with {dead_id}: give more of the id")
        if not found:
            raise NotDone(f"there is no dead letter {dead_id}")
        return (exact or found)[0]

    async def _shapes(self, shape_id: str | None = None) -> list[tuple[Key, JsonObject]]:
        """Return the shapes, or the shape of this id, as lines of the list."""
        found = [
            (key, _shape(key.name, record.value))
            for key, record in await self._store.scan(keys.SHAPES)
            if isinstance(record.value, dict)
        ]
        return [(key, shape) for key, shape in found if shape_id is None or shape["id"] == shape_id]


def _removed(dead: Dead, *, was_there: bool) -> JsonObject:
    if not was_there:
        raise NotDone(f"the dead letter {dead.dead_id} is not there any more")
    return _summary(dead)


def _summary(dead: Dead) -> JsonObject:
    what = "event" if dead.incoming is not None else "part" if dead.part is not None else "unreadable"
    return {
        "id": dead.dead_id,
        "what": what,
        "conversation": dead.conversation,
        "reason": dead.reason,
        "at": iso(dead.stamp),
        "seq": dead.seq,
    }


def _shape(name: str, value: Mapping[str, Json]) -> JsonObject:
    try:
        at = iso(datetime.fromisoformat(str(value.get("at"))))
    except ValueError:
        at = None
    return {
        "id": name.rpartition("/")[2],
        "what": "shape",
        "conversation": str(value.get("conversation")),
        "reason": f"not understood, {value.get('seen')} times or more",
        "at": at,
        "seq": None,
        "body": value.get("shape"),
    }
