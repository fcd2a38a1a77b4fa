"""Sealed records of JSON values for later readers: a model or a person."""

from __future__ import annotations

import contextlib

from channels import Json
from gateway.pending.seal import Keyring
from gateway.store.base import Store
from gateway.store.codec import decode, encode
from gateway.store.errors import Conflict
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key, Record


def seal_value(keyring: Keyring, name: str, value: Json) -> Json:
    """Return the stored form of the record of this name."""
    return keyring.seal(name, encode(value))


def open_value(keyring: Keyring, name: str, stored: Json) -> Json:
    """Return the value of a stored record; None without a record or without a valid seal."""
    sealed = keyring.open(name, stored)
    return decode(sealed.text) if sealed is not None else None


async def seal_anew(store: Store, keyring: Keyring, key: Key, record: Record) -> bool:
    """Seal a record again with the first key if another key sealed the record. The expiry stays the same.

    Return False without a valid old seal, or if the record has changed meanwhile. Raises StoreUnavailable.
    """
    sealed = keyring.open(key.name, record.value)
    if sealed is None or not sealed.is_old:
        return False
    put = Put(keyring.seal(key.name, sealed.text), keeps_end=True)
    with contextlib.suppress(Conflict):
        await store.commit(
            Transaction(partition=key.partition, expect={key.name: record.version}, puts={key.name: put})
        )
        return True
    return False
