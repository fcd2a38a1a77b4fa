"""From the first form of records to the sealed one: once a store, with a note of until when the first form counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from channels import Json
from gateway.pending.loading import conversation_of
from gateway.pending.restamping import restamping
from gateway.pending.seal import Keyring, is_sealed
from gateway.store.base import Conflict, Key, Put, Store, Transaction
from gateway.store.embedded import is_embedded
from gateway.tools.pending_action import PendingAction

__all__ = ["first_form_counts", "first_form_until", "upgrade"]

_NOTE = "first_form"
_BEGUN = "begun "
_GONE_ON_WITHIN = timedelta(minutes=10)
"""An upgrade that a process did not end is gone on with. Later, somebody has put the note of its beginning back."""
_LEAST = timedelta(days=1)
"""The longest time that a question of an older release is open, unless its tool says more."""


async def first_form_until(store: Store, keyring: Keyring) -> datetime | None:
    """Return until when this store's first form counts; None: nobody has upgraded it to the end yet."""
    note = await _note(store, keyring)
    return None if note is None or note.startswith(_BEGUN) else datetime.fromisoformat(note)


async def _note(store: Store, keyring: Keyring) -> str | None:
    key = Key(store.partition(_NOTE), _NOTE)
    sealed = keyring.open(_NOTE, (await store.get([key]))[key].value)
    return sealed.text if sealed is not None else None


async def _is_begun(store: Store, keyring: Keyring, now: datetime) -> bool:
    """Return True when a process has just begun the upgrade, and was killed."""
    note = await _note(store, keyring) or ""
    return note.startswith(_BEGUN) and now - datetime.fromisoformat(note.removeprefix(_BEGUN)) < _GONE_ON_WITHIN


async def first_form_counts(store: Store, keyring: Keyring) -> bool:
    """Return True while records of the first form count in this store."""
    until = await first_form_until(store, keyring)
    return until is None or await store.now() < until


async def upgrade(
    store: Store, keyring: Keyring, rewrite: Callable[[str, frozenset[str]], Awaitable[None]]
) -> datetime:
    """Have what an older release left rewritten in the sealed form, once; return until when the first form counts.

    `rewrite` is called for each conversation in the first form, with the actions that it has. What waits in a store of
    one process is sealed as well, and the first form never counts there again; where processes of the older release may
    still write, it counts for a while. A store that holds anything in the sealed form already has been upgraded: a note
    that is missing there was removed by somebody, and opens nothing again. An upgrade that was cut off is gone on with.
    """
    if (until := await first_form_until(store, keyring)) is not None:
        return until
    partition, now = store.partition(_NOTE), await store.now()
    version = (await store.get([key := Key(partition, _NOTE)]))[key].version
    indexes, records = await store.scan("open/"), await store.scan("action/")
    upgraded = any(is_sealed(record.value) for _, record in (*indexes, *records))
    cut_off = await _is_begun(store, keyring, now)
    if not cut_off and (upgraded or await _is_fresh(store, len(records))):
        until = now
    else:
        begun = Put(keyring.seal(_NOTE, f"{_BEGUN}{now.isoformat()}"))
        try:
            await store.commit(Transaction(partition=partition, expect={_NOTE: version}, puts={_NOTE: begun}))
        except Conflict:  # another process has begun it just now, or ended it
            return await upgrade(store, keyring, rewrite)
        if is_embedded(store):
            await store.rewrite(restamping(keyring))
        asked: dict[str, set[str]] = {key.name.removeprefix("open/"): set() for key, _ in indexes}
        for key, record in records:
            if (conversation := conversation_of(record.value)) in asked and _is_live(record.value):
                asked[conversation].add(key.name.removeprefix("action/"))
        for conversation, action_ids in asked.items():
            await rewrite(conversation, frozenset(action_ids))
        until = now + max([_LEAST, *(_ttl(record.value) for _, record in records)]) if store.shared else now
    if (noted := await first_form_until(store, keyring)) is not None:  # another process was first
        return noted
    note = Put(keyring.seal(_NOTE, until.isoformat()))
    await store.commit(Transaction(partition=partition, puts={_NOTE: note}))
    return until


async def _is_fresh(store: Store, records: int) -> bool:
    """Return True for a store that nothing was ever put into."""
    stats = await store.stats()
    return not (records or stats.waiting or stats.parts or stats.timers or stats.dead or await store.scan("served"))


def _is_live(stored: Json) -> bool:
    return isinstance(stored, dict) and stored.get("state") in ("pending", "approved", "running", "unknown")


def _ttl(stored: Json) -> timedelta:
    try:
        action = PendingAction.from_json(stored) if isinstance(stored, dict) else None
    except ValueError:
        return _LEAST
    return timedelta(seconds=action.ttl_seconds) if action is not None and action.open else _LEAST
