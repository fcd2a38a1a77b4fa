"""The bot that a store belongs to."""

from __future__ import annotations

from gateway.engine.retrying import attempts
from gateway.store.base import Store
from gateway.store.errors import StoreRefused
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from gateway.stored import keys


async def claim(store: Store, bot: str) -> None:
    """Make a store that several processes share this bot's. Raises StoreRefused when it is another bot's.

    Two bots on one store would take each other's messages, because the process that leases a conversation answers in
    it. The bot of an embedded store may have been renamed: the store has one owner.
    """
    if not store.shared:
        return
    key = _key(store)
    for attempt in attempts():
        async with attempt:
            record = (await store.get([key]))[key]
            if record.value == bot:
                return
            if record.value is not None:
                raise StoreRefused(
                    f"This store holds the conversations of the bot {record.value!r}, and its messages would be taken "
                    f"by {bot!r}. Give {bot!r} a database of its own: another number at the end of ASKFIRST_STORE."
                )
            claimed = Transaction(partition=key.partition, expect={key.name: record.version}, puts={key.name: Put(bot)})
            await store.commit(claimed)


async def served_bot(store: Store) -> str | None:
    """Return the name of the bot that was last served from this store, or None."""
    key = _key(store)
    name = (await store.get([key]))[key].value
    return name if isinstance(name, str) else None


async def record_served(store: Store, bot: str | None) -> None:
    """Record the name of the bot that is served, for commands beside the server.

    A store that is full takes no new record, so the record is written only when it changes.
    """
    if await served_bot(store) != bot:
        key = _key(store)
        await store.commit(Transaction(partition=key.partition, puts={key.name: Put(bot)}))


def _key(store: Store) -> Key:
    return Key(store.partition(keys.SERVED), keys.SERVED)
