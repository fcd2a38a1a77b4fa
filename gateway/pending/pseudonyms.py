"""The people in the audit: each line names them by a pseudonym, and a record in the store tells the person of it.

A pseudonym is an HMAC of the person under a random key of that person, 128 bits. The record holds the key and the
person, one in each partition with lines about them, and is written in the same commit as the first of these lines.
Without the record a line can be linked to no person, not even by trying every phone number with `ASKFIRST_SECRET` at
hand. So deleting the records forgets the person, and the chains stay whole.

The record has no seal. The pseudonym in the line proves it: another key or person gives another pseudonym. A seal would
also have to outlive the secret that made it, because the record is kept for as long as the lines.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from channels import Json
from gateway.store.base import Store
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from gateway.stored import keys

__all__ = ["Pseudonyms", "forget_person", "is_pseudonym", "people_by_pseudonym"]

_KEY_BYTES = 32
_PSEUDONYM = re.compile("~[0-9a-f]{32}")


def is_pseudonym(name: object) -> bool:
    """Return True for the text that a line has in place of a person."""
    return isinstance(name, str) and _PSEUDONYM.fullmatch(name) is not None


class Pseudonyms:
    """The pseudonyms of people in one store, made at the first use of each."""

    def __init__(self, store: Store, random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._store, self._random = store, random

    async def name(self, people: Iterable[str], transaction: Transaction) -> dict[str, str]:
        """Return the pseudonym of each person for the lines of this transaction.

        The transaction writes the records that are missing. It expects all of them to be as they were read: two first
        uses make one record, and a line never names a person that was forgotten meanwhile by the deleted key. Raises
        StoreUnavailable.
        """
        places = {person: Key(transaction.partition, keys.pseudonym(person)) for person in dict.fromkeys(people)}
        if not places:
            return {}
        found = await self._store.get(list(places.values()))
        named: dict[str, str] = {}
        for person, place in places.items():
            transaction.expect[place.name] = found[place].version
            known = _read(found[place].value)
            if known is None or known.person != person:
                known = _Known(person, self._random(_KEY_BYTES).hex())
                transaction.puts[place.name] = Put({"person": known.person, "key": known.key})
            named[person] = known.pseudonym
        return named


async def people_by_pseudonym(store: Store) -> Mapping[str, str]:
    """Return the person of each pseudonym whose record is there."""
    found = [_read(record.value) for _, record in await store.scan(keys.PSEUDONYMS)]
    return {known.pseudonym: known.person for known in found if known is not None}


async def forget_person(store: Store, person: str) -> int:
    """Delete the records of a person in all partitions, and return their number.

    From then on no line of the audit can be linked to the person. A later action of theirs gets a new pseudonym.
    """
    name = keys.pseudonym(person)
    places = [place for place, _ in await store.scan(name) if place.name == name]
    for place in places:
        await store.commit(Transaction(partition=place.partition, deletes=[name]))
    return len(places)


class _Known(NamedTuple):
    """The content of a record."""

    person: str
    key: str

    @property
    def pseudonym(self) -> str:
        key, person = bytes.fromhex(self.key), self.person.encode("utf-8", "surrogatepass")
        return f"~{hmac.digest(key, person, hashlib.sha256).hex()[:32]}"


def _read(stored: Json) -> _Known | None:
    """Return the content of a record. None for an absent one, and for one that somebody broke."""
    if not isinstance(stored, dict):
        return None
    person, key = stored.get("person"), stored.get("key")
    is_whole = isinstance(person, str) and isinstance(key, str) and re.fullmatch(r"[0-9a-f]{64}", key)
    return _Known(str(person), str(key)) if is_whole else None
