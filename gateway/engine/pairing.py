"""Newcomers: strangers who wrote to the bot, their pairing codes, and the people who were let in by one.

One record holds the last newcomers. Each person who was let in has a record of their own. All records are sealed, so a
row that was written without the key admits nobody.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from channels import Address, Json, Person
from gateway.engine.retrying import attempts
from gateway.pending.seal import Keyring
from gateway.store.base import Key, Put, Record, Store, Transaction
from gateway.store.form import NewerForm

__all__ = ["Admitted", "Newcomer", "Newcomers"]

_LAST = 20
"""At most this many newcomers are remembered, and at most this many codes are open."""
_LAST_OF_CHANNEL = 10
"""So that the codes of one channel, such as a public web chat, leave some to the others."""
_REMEMBERED_SECONDS = 86_400.0
_CODE_LIFE = timedelta(hours=1)
_LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
_HALF = 4
_LIST = "newcomers"
_ADMITTED = "admitted/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """A person who wrote and was turned away."""

    person: str
    """As `ASKFIRST_ALLOW` takes it."""
    name: str | None
    address: str
    language: str
    at: str
    code: str | None = None
    until: str | None = None
    """When the code expires."""

    def is_open(self, now: datetime) -> bool:
        """Return True while its code counts."""
        return self.until is not None and now < datetime.fromisoformat(self.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A person who was let in."""

    person: str
    name: str | None
    at: str
    by: str
    """The operator, or the person who admitted them in a chat."""


class Newcomers:
    """Remembers newcomers in the store, and admits them."""

    def __init__(self, store: Store, keyring: Keyring) -> None:
        self._store, self._keyring = store, keyring

    async def is_admitted(self, person: Person) -> bool:
        """Return True for a person who was let in by a code. Raises StoreError."""
        key = self._key(str(person))
        return self._opened(key, (await self._store.get([key]))[key]) is not None

    async def note(self, person: Person, address: Address, language: str, *, pairing: bool) -> str | None:
        """Remember a person who was turned away. With `pairing` return their code; None while too many are open."""
        code: str | None = None
        for attempt in attempts():
            async with attempt:
                now, key, record = await self._read()
                known = self._newcomers(key, record)
                mine = next((each for each in known if each.person == str(person)), None)
                others = [each for each in known if each.person != str(person)]
                code, until = (mine.code, mine.until) if mine is not None and mine.is_open(now) else (None, None)
                if pairing and code is None:
                    is_open = [each.person.startswith(f"{person.channel}:") for each in others if each.is_open(now)]
                    if len(is_open) >= _LAST or sum(is_open) >= _LAST_OF_CHANNEL:
                        return None
                    code, until = _new_code(), (now + _CODE_LIFE).isoformat()
                newcomer = Newcomer(
                    person=str(person),
                    name=person.name,
                    address=str(address),
                    language=language,
                    at=now.isoformat(),
                    code=code,
                    until=until,
                )
                await self._write(key, record, [*_bounded(others, now), newcomer])
        return code

    async def admit(self, code: str, by: str) -> Newcomer | None:
        """Let in the person with this code. Return them; None when no code that still counts is this one."""
        now, key, record = await self._read()
        wanted = _letters(code)
        known = self._newcomers(key, record)
        newcomer = next((each for each in known if each.is_open(now) and _letters(each.code or "") == wanted), None)
        if newcomer is None:
            return None
        admitted = Admitted(person=newcomer.person, name=newcomer.name, at=now.isoformat(), by=by)
        place = self._key(newcomer.person)
        put = Put(self._keyring.seal(place.name, json.dumps(asdict(admitted))))
        await self._store.commit(Transaction(partition=place.partition, puts={place.name: put}))
        await self._forget(newcomer.person)
        return newcomer

    async def expel(self, person: str) -> bool:
        """Take back that a person was let in. False when nobody of that name was."""
        key = self._key(person)
        if (await self._store.get([key]))[key].value is None:
            return False
        await self._store.commit(Transaction(partition=key.partition, deletes=[key.name]))
        return True

    async def listed(self) -> tuple[list[Newcomer], list[Admitted]]:
        """Return who was turned away, the newest last, and who was let in."""
        now, key, record = await self._read()
        knocked = [each if each.is_open(now) else replace(each, code=None) for each in self._newcomers(key, record)]
        admitted = [
            Admitted(**json.loads(text))
            for place, found in await self._store.scan(_ADMITTED)
            if (text := self._opened(place, found)) is not None
        ]
        return knocked, sorted(admitted, key=lambda each: each.at)

    async def _forget(self, person: str) -> None:
        for attempt in attempts():
            async with attempt:
                _, key, record = await self._read()
                await self._write(key, record, [e for e in self._newcomers(key, record) if e.person != person])

    # ── the records ──

    def _key(self, person: str) -> Key:
        return Key(self._store.partition(person), f"{_ADMITTED}{person}")

    async def _read(self) -> tuple[datetime, Key, Record]:
        key = Key(self._store.partition(_LIST), _LIST)
        return await self._store.now(), key, (await self._store.get([key]))[key]

    def _newcomers(self, key: Key, record: Record) -> list[Newcomer]:
        text = self._opened(key, record)
        return [Newcomer(**each) for each in json.loads(text)] if text is not None else []

    async def _write(self, key: Key, record: Record, newcomers: Sequence[Newcomer]) -> None:
        sealed: Json = self._keyring.seal(key.name, json.dumps([asdict(each) for each in newcomers]))
        transaction = Transaction(partition=key.partition, expect={key.name: record.version})
        transaction.puts[key.name] = Put(sealed, ttl_seconds=_REMEMBERED_SECONDS)
        await self._store.commit(transaction)

    def _opened(self, key: Key, record: Record) -> str | None:
        """Return the text of a record of ours; None for none, and for what another key or a newer release wrote."""
        try:
            sealed = self._keyring.open(key.name, record.value)
        except NewerForm:
            return None
        return sealed.text if sealed is not None else None


def _letters(code: str) -> str:
    """Return a code's letters, however a person has typed it."""
    return "".join(letter for letter in code.upper() if letter.isalnum())


def _new_code() -> str:
    """Return a new code as it is read aloud: in two halves."""
    halves = ("".join(secrets.choice(_LETTERS) for _ in range(_HALF)) for _ in range(2))
    return "-".join(halves)


def _bounded(newcomers: Sequence[Newcomer], now: datetime) -> list[Newcomer]:
    """Return the newest, with room for one more; one whose code is open goes last."""
    kept = sorted(newcomers, key=lambda each: (each.is_open(now), each.at))[-(_LAST - 1) :]
    return sorted(kept, key=lambda each: each.at)
