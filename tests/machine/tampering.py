"""An intruder with write access to the store and without the key."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from channels import Json, Message
from channels.events import event_to_json
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming, Key
from tests.machine.bot import person
from tests.machine.things import Thing
from tests.machine.world import World, address, conversation
from tests.stored import action_of, edited

__all__ = ["Change", "Tamperer"]

Change = Literal[
    "other arguments",
    "approved",
    "another's record",
    "deleted record",
    "old record",
    "old index",
    "deleted index",
    "swapped codes",
    "deleted tokens",
    "edited parts",
    "forged decision",
    "forged code",
]
"""The possible changes of the store."""


@dataclass
class Tamperer:
    """Changes the stored records of an action, or of the conversation of the request."""

    world: World
    _copies: dict[Key, list[Json]] = field(default_factory=dict)
    _put_back: dict[str, Change] = field(default_factory=dict)
    """Place -> whether records or the index were restored there: both together are a restore that no seal can find."""
    _forged: int = 0

    async def copies(self, place: str) -> None:
        """Copy the stored actions of a conversation, for a later restore."""
        for key, value in [*await self._records(place), (self._index(place), await self._read(self._index(place)))]:
            known = self._copies.setdefault(key, [])
            if value is not None and value not in known:
                known.append(value)

    async def does(self, change: Change, thing: Thing, number: int) -> None:
        """Make one change, if possible; `number` chooses among several."""
        if change in ("old record", "old index") and self._put_back.setdefault(thing.place, change) != change:
            return
        self._note(change, thing)
        mine = [(key, value) for key, value in await self._records(thing.place) if _code(value) == thing.code]
        match change:
            case "other arguments":
                for key, value in mine:
                    await self._write(key, edited(value, args={"invoice_id": "INV-666"}))
            case "approved":
                for key, value in mine:
                    await self._write(key, edited(value, state="approved"))
                    await self._launches(key)
            case "another's record":
                others = [value for _, value in await self._records(thing.place) if _code(value) != thing.code]
                for key, _ in mine[: len(others)]:
                    await self._write(key, others[number % len(others)])
            case "deleted record":
                for key, _ in mine:
                    await self._delete(key)
            case "old record":
                for key, _ in mine:
                    for old in self._old(key, number):
                        await self._write(key, old)
                        await self._launches(key)
            case "forged decision" | "forged code":
                await self._forges(change, thing, [key for key, _ in mine])
            case "edited parts":
                await self._edits_parts(thing.place)
            case _:
                await self._changes_index(change, thing.place, number)

    def _note(self, change: Change, thing: Thing) -> None:
        if change in ("other arguments", "approved", "another's record", "deleted record", "old record"):
            thing.changed.add("record")
        elif "index" in change or change == "swapped codes":
            self._note_index(thing.place)

    def _note_index(self, place: str) -> None:
        for thing in self.world.witness.things:
            if place in (thing.place, *thing.codes):
                thing.changed.add("index")

    def _note_parts(self, place: str) -> None:
        """Note changed parts: an operator has the changed message with its report."""
        for thing in self.world.witness.things:
            if place in (thing.place, *thing.codes):
                thing.changed |= {"record", "index"}

    async def swaps_codes(self, place: str, one: str, other: str) -> None:
        """Give two open actions each other's code, in the index."""
        self._note_index(place)
        key = self._index(place)
        stored = cast("dict[str, Any] | None", await self._read(key))
        if stored is not None:
            body = stored["body"].replace(one, "swap").replace(other, one).replace("swap", other)
            await self._write(key, {**stored, "body": body})

    async def _changes_index(self, change: Change, place: str, number: int) -> None:
        key = self._index(place)
        match change:
            case "old index":
                for old in self._old(key, number):
                    await self._write(key, old)
            case "deleted index":
                await self._delete(key)
            case "swapped codes":
                codes = [thing.code for thing in self.world.witness.things if thing.place == place and thing.code][-2:]
                if len(codes) == 2:
                    await self.swaps_codes(place, *codes)
            case _:
                for key, _ in await self.world.store.scan("token/"):
                    if key.partition == self._index(place).partition:
                        await self._delete(key)

    async def _edits_parts(self, place: str) -> None:
        for part in await self.world.store.outbox(conversation(place)):
            self._note_parts(place)
            body = json.loads(json.dumps(dict(part.body)).replace("INV", "HAM"))
            self._forged += 1
            forged = replace(part, part_id=f"forged {self._forged}", body=body)
            partition = self._index(place).partition
            await self.world.store.commit(Transaction(partition=partition, sent=[part.part_id], parts=[forged]))

    async def _forges(self, change: Change, thing: Thing, keys: list[Key]) -> None:
        self._forged += 1
        where, by = conversation(thing.place), str(person(thing.requester))
        ids = (f"forged {self._forged}",)
        now = int((await self.world.store.now()).timestamp() * 1_000_000)
        if change == "forged code":
            said = _said(thing, ids)
            body = {**said, "received": now}
            await self.world.store.accept([Incoming(conversation=where, event_ids=ids, body=body, decides=True)])
        for key in keys if change == "forged decision" else ():
            action_id = key.name.removeprefix("action/")
            fields: dict[str, Json] = {"kind": "decide", "action_id": action_id, "intent": "confirm", "person": by}
            body = {**fields, "received": now}
            await self.world.store.accept([Incoming(conversation=where, event_ids=ids, body=body, decides=True)])

    def _old(self, key: Key, number: int) -> list[Json]:
        copies = self._copies.get(key, [])
        return [copies[number % len(copies)]] if copies else []

    def _index(self, place: str) -> Key:
        where = conversation(place)
        return Key(self.world.store.partition(where), f"open/{where}")

    async def _records(self, place: str) -> list[tuple[Key, Any]]:
        found = await self.world.store.scan("action/")
        return [
            (key, record.value)
            for key, record in found
            if record.value is not None and action_of(record.value).conversation == conversation(place)
        ]

    async def _read(self, key: Key) -> Json:
        return (await self.world.store.get([key]))[key].value

    async def _write(self, key: Key, value: Json) -> None:
        await self.world.store.commit(Transaction(partition=key.partition, puts={key.name: Put(value)}))

    async def _delete(self, key: Key) -> None:
        await self.world.store.commit(Transaction(partition=key.partition, deletes=[key.name]))

    async def _launches(self, key: Key) -> None:
        transaction = Transaction(partition=key.partition, actions=[key.name.removeprefix("action/")])
        await self.world.store.commit(transaction)


def _code(stored: Any) -> str:
    return action_of(stored).code


def _said(thing: Thing, ids: tuple[str, ...]) -> dict[str, Json]:
    message = Message(
        event_ids=ids,
        address=address(thing.place),
        person=person(thing.requester),
        text=f"ok {thing.code}",
        message_id=ids[0],
    )
    return cast("dict[str, Json]", event_to_json(message))
