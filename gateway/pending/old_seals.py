"""Find old seals on the actions of a conversation, and seal these records with the first key."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from gateway.pending.index import Index, IndexEntry, StandingPermission
from gateway.pending.seal import Keyring
from gateway.store.base import Store
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from gateway.stored import keys


class OldSeals(NamedTuple):
    """The old seals of a conversation's index and of the records named in the index."""

    many: int
    named: Set[str]
    """The names of all records of actions in the index."""


async def look_at_actions(store: Store, keyring: Keyring, conversation: str, *, mends: bool) -> OldSeals:
    """Return the old seals of a conversation. With `mends`, seal these records with the first key.

    An index contains the seals of its records, so all of them are written together. A record without a valid seal is
    not changed. Raises Conflict while the actions change, and StoreUnavailable.
    """
    key = keys.key(store, conversation, keys.index)
    record = (await store.get([key]))[key]
    opened = keyring.open(key.name, record.value)
    if opened is None:
        return OldSeals(0, frozenset())
    index = Index.from_text(opened.text)
    entries: Sequence[IndexEntry | StandingPermission] = (*index.entries, *index.permissions)
    last = {each.action_id: each.seal for each in entries}
    places = {action_id: Key(key.partition, keys.action(action_id)) for action_id in last}
    found = await store.get([*places.values()])
    transaction = Transaction(partition=key.partition, expect={key.name: record.version})
    seals: dict[str, str] = {}
    for action_id, place in places.items():
        sealed = keyring.open(place.name, found[place].value)
        if sealed is not None and sealed.is_old and sealed.seal == last[action_id]:
            new = keyring.seal(place.name, sealed.text)
            seals[action_id] = str(new["seal"])
            transaction.expect[place.name] = found[place].version
            transaction.puts[place.name] = Put(new, keeps_end=True)
    many = len(seals) + opened.is_old
    if many and mends:
        text = index.written(seals, await store.now()).to_text()
        transaction.puts[key.name] = Put(keyring.seal(key.name, text), keeps_end=True)
        await store.commit(transaction)
    return OldSeals(many, frozenset(place.name for place in places.values()))
