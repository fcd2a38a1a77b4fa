"""The upgrade from the first form of records to the sealed form, once a store.

A sealed record, the note, says until when records of the first form count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from channels import Json
from gateway.pending.loading import conversation_of
from gateway.pending.restamping import restamping
from gateway.pending.seal import Keyring, is_sealed
from gateway.store.base import Store
from gateway.store.embedded import is_embedded
from gateway.store.errors import Conflict
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from gateway.stored import keys
from gateway.tools.pending_action import PendingAction

__all__ = ["first_form_counts", "first_form_until", "upgrade"]

_BEGUN = "begun "
_RESUMED_WITHIN = timedelta(minutes=10)
"""An upgrade that was cut off is resumed for so long. An older note of its beginning is a copy that was put back."""
_LEAST = timedelta(days=1)
"""The longest time for which a question of an older release is open, unless its tool sets a longer one."""


async def first_form_until(store: Store, keyring: Keyring) -> datetime | None:
    """Return until when the first form counts in this store; None if no upgrade of it has ended yet."""
    note = await _note(store, keyring)
    return None if note is None or note.startswith(_BEGUN) else datetime.fromisoformat(note)


async def _note(store: Store, keyring: Keyring) -> str | None:
    key = Key(store.partition(keys.FIRST_FORM), keys.FIRST_FORM)
    sealed = keyring.open(keys.FIRST_FORM, (await store.get([key]))[key].value)
    return sealed.text if sealed is not None else None


async def _is_begun(store: Store, keyring: Keyring, now: datetime) -> bool:
    """Return True if a process began the upgrade a short time ago and did not end it."""
    note = await _note(store, keyring) or ""
    return note.startswith(_BEGUN) and now - datetime.fromisoformat(note.removeprefix(_BEGUN)) < _RESUMED_WITHIN


async def first_form_counts(store: Store, keyring: Keyring) -> bool:
    """Return True while records of the first form count in this store."""
    until = await first_form_until(store, keyring)
    return until is None or await store.now() < until


async def upgrade(
    store: Store, keyring: Keyring, rewrite: Callable[[str, frozenset[str]], Awaitable[None]]
) -> datetime:
    """Rewrite the records of an older release in the sealed form, once; return until when the first form counts.

    `rewrite` is called for each conversation in the first form, with the ids of its actions. In an embedded store the
    waiting events, parts and steps are sealed too, and the first form never counts again. In a shared store, to which
    processes of the older release may still write, it counts until the longest ttl has passed. A store that holds a
    sealed record was upgraded before: a missing note was removed without the key, and the first form does not count
    again. An upgrade that was cut off is resumed.
    """
    if (until := await first_form_until(store, keyring)) is not None:
        return until
    partition, now = store.partition(keys.FIRST_FORM), await store.now()
    version = (await store.get([key := Key(partition, keys.FIRST_FORM)]))[key].version
    indexes, records = await store.scan(keys.index("")), await store.scan(keys.action(""))
    upgraded = any(is_sealed(record.value) for _, record in (*indexes, *records))
    cut_off = await _is_begun(store, keyring, now)
    if not cut_off and (upgraded or await _is_fresh(store, len(records))):
        until = now
    else:
        begun = Transaction(
            partition=partition,
            expect={keys.FIRST_FORM: version},
            puts={keys.FIRST_FORM: Put(keyring.seal(keys.FIRST_FORM, f"{_BEGUN}{now.isoformat()}"))},
        )
        try:
            await store.commit(begun)
        except Conflict:  # another process has begun it just now, or ended it
            return await upgrade(store, keyring, rewrite)
        if is_embedded(store):
            await store.rewrite(restamping(keyring))
        asked: dict[str, set[str]] = {key.name.removeprefix(keys.index("")): set() for key, _ in indexes}
        for key, record in records:
            if (conversation := conversation_of(record.value)) in asked and _is_live(record.value):
                asked[conversation].add(key.name.removeprefix(keys.action("")))
        for conversation, action_ids in asked.items():
            await rewrite(conversation, frozenset(action_ids))
        until = now + max([_LEAST, *(_ttl(record.value) for _, record in records)]) if store.shared else now
    if (noted := await first_form_until(store, keyring)) is not None:  # another process was first
        return noted
    note = Put(keyring.seal(keys.FIRST_FORM, until.isoformat()))
    await store.commit(Transaction(partition=partition, puts={keys.FIRST_FORM: note}))
    return until


async def _is_fresh(store: Store, records: int) -> bool:
    """Return True for a store that was never written to."""
    stats = await store.stats()
    return not (records or stats.waiting or stats.parts or stats.timers or stats.dead or await store.scan(keys.SERVED))


def _is_live(stored: Json) -> bool:
    return isinstance(stored, dict) and stored.get("state") in ("pending", "approved", "running", "unknown")


def _ttl(stored: Json) -> timedelta:
    try:
        action = PendingAction.from_json(stored) if isinstance(stored, dict) else None
    except ValueError:
        return _LEAST
    return timedelta(seconds=action.ttl_seconds) if action is not None and action.open else _LEAST
