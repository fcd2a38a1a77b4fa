"""Strangers: people not allowed to talk to the bot. The answer is a refusal, or a code for the admission.

Pairing admits newcomers by code. A single record holds the last newcomers. Each admitted person has a separate record.
All records are sealed, so a record written without the key admits no person.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from channels import Address, Json, Message, Person, Reply
from gateway.engine.context import EngineContext
from gateway.engine.reply_limits import PAIRED_AN_HOUR, stranger_replies
from gateway.engine.retrying import attempts
from gateway.pending.actions import OutgoingReply
from gateway.pending.seal import Keyring
from gateway.pending.sealed_records import seal_anew
from gateway.store.base import Store
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key, Record
from gateway.stored import keys
from gateway.tools.escape import plain
from gateway.wording import say

log = logging.getLogger("askfirst.access")


class Strangers:
    """Decides which people may talk to the bot, answers the others, and admits newcomers."""

    def __init__(self, context: EngineContext) -> None:
        self._context, self._allowed = context, context.allowed
        self._newcomers = Newcomers(context.store, context.keyring)

    async def may_talk(self, person: Person | None) -> bool:
        """Return True for a person on the allow-list or admitted by a code. Raises StoreError."""
        if self._allowed(person):
            return True
        if person is None or person.is_bot or not self._allowed.pairing:
            return False
        return await self._newcomers.is_admitted(person)

    async def turn_away(self, message: Message, person: Person) -> None:
        """Answer a stranger, within the limits of `stranger_replies`. The message is not kept.

        All strangers together get a few answers a second at most, so a flood of strangers delays no other message.
        """
        context, pairing = self._context, self._allowed.pairing
        asks = message.command == "whoami"
        rates = stranger_replies(person, message.address, context.rules.limits.strangers, pairing=pairing, asks=asks)
        if await context.store.acquire(rates):
            return
        language = context.language(person)
        code = await self._newcomers.note(person, message.address, language, pairing=pairing)
        log.info("turned away %s: `askfirst people list` says how to let them in", person)
        if asks:
            text = say("whoami", language, person=f"`{person}`")
        elif code is not None:
            text = say("newcomer", language, code=code)
        else:
            text = say("stranger", language)
        await self._say(message.address, text, language)

    def may_admit(self, person: Person) -> bool:
        """Return True for a person named by the allow-list, with pairing on. No other person may admit newcomers."""
        return self._allowed.pairing and self._allowed.names(person)

    async def admit(self, code: str, language: str, *, by: Person) -> str:
        """Admit and notify the person with this code. Return the answer to `by`, the admitting person."""
        newcomer = await self._newcomers.admit(code, str(by))
        if newcomer is None:
            return say("no_such_newcomer", language)
        log.info("%s let in %s", by, newcomer.person)
        told_in = newcomer.language
        await self._say(Address.parse(newcomer.address), say("admitted", told_in), told_in)
        return say("has_admitted", language, person=plain(newcomer.name or newcomer.person))

    async def _say(self, address: Address, text: str, language: str) -> None:
        """Queue a text in this language."""
        context, reply = self._context, OutgoingReply(reply=Reply(text=text))
        conversation = context.conversation(address)
        parts = context.parts.render(conversation, address, [reply], cause="stranger", language=language)
        await context.store.commit(Transaction(partition=context.store.partition(conversation), parts=parts))


_LAST = 2 * PAIRED_AN_HOUR
"""The most remembered newcomers and open codes. In the hour of a code's life at most this many replies go out, so each
reply has a code."""
_LAST_OF_CHANNEL = _LAST // 2
"""The most open codes of a channel, so a public web chat leaves codes to the other channels."""
_REMEMBERED_SECONDS = 86_400.0
_CODE_LIFE = timedelta(hours=1)
_LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
_HALF = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """A person turned away after a message to the bot."""

    person: str
    """The written form, as in `ASKFIRST_ALLOW`."""
    name: str | None
    address: str
    language: str
    at: str
    code: str | None = None
    until: str | None = None
    """The expiry of the code."""

    def is_open(self, now: datetime) -> bool:
        """Return True while the code counts."""
        return self.until is not None and now < datetime.fromisoformat(self.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A person admitted by a code."""

    person: str
    name: str | None
    at: str
    by: str
    """The operator, or the admitting person in a chat."""


class Newcomers:
    """The stored newcomers and admitted people."""

    def __init__(self, store: Store, keyring: Keyring) -> None:
        self._store, self._keyring = store, keyring

    async def is_admitted(self, person: Person) -> bool:
        """Return True for a person admitted by a code. Raises StoreError."""
        key = self._key(str(person))
        record = (await self._store.get([key]))[key]
        opened = self._keyring.open(key.name, record.value)
        if opened is not None and opened.is_old:
            await seal_anew(self._store, self._keyring, key, record)
        return opened is not None

    async def note(self, person: Person, address: Address, language: str, *, pairing: bool) -> str | None:
        """Remember a turned-away person. With `pairing`, return the person's code.

        With too many open codes, remember no person and return None.
        """
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
        """Admit the person with this code. Return the person, or None without an open code of this value.

        The written form of a remembered newcomer counts as a code.
        """
        now, key, record = await self._read()
        wanted, known = _letters(code), self._newcomers(key, record)
        coded = {_letters(each.code): each for each in known if each.code is not None and each.is_open(now)}
        newcomer = coded.get(wanted) or next((each for each in known if each.person == code.strip()), None)
        if newcomer is None:
            return None
        admitted = Admitted(person=newcomer.person, name=newcomer.name, at=now.isoformat(), by=by)
        place = self._key(newcomer.person)
        put = Put(self._keyring.seal(place.name, json.dumps(asdict(admitted))))
        await self._store.commit(Transaction(partition=place.partition, puts={place.name: put}))
        await self._forget(newcomer.person)
        return newcomer

    async def expel(self, person: str) -> bool:
        """Take an admission back. Return False if this person was not admitted."""
        key = self._key(person)
        if (await self._store.get([key]))[key].value is None:
            return False
        await self._store.commit(Transaction(partition=key.partition, deletes=[key.name]))
        return True

    async def listed(self) -> tuple[list[Newcomer], list[Admitted]]:
        """Return the remembered newcomers, newest last, and the admitted people, oldest first."""
        now, key, record = await self._read()
        newcomers = [each if each.is_open(now) else replace(each, code=None) for each in self._newcomers(key, record)]
        admitted = [
            Admitted(**json.loads(text))
            for place, found in await self._store.scan(keys.ADMITTED)
            if (text := self._opened(place, found)) is not None
        ]
        return newcomers, sorted(admitted, key=lambda each: each.at)

    async def _forget(self, person: str) -> None:
        for attempt in attempts():
            async with attempt:
                _, key, record = await self._read()
                await self._write(key, record, [e for e in self._newcomers(key, record) if e.person != person])

    # ── the records ──

    def _key(self, person: str) -> Key:
        return keys.key(self._store, person, keys.admitted)

    async def _read(self) -> tuple[datetime, Key, Record]:
        key = Key(self._store.partition(keys.NEWCOMERS), keys.NEWCOMERS)
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
        """Return the text of a sealed record. None for a missing record, or with the seal of another key."""
        sealed = self._keyring.open(key.name, record.value)
        return sealed.text if sealed is not None else None


def _letters(code: str) -> str:
    """Return the letters and digits of a code, without typed spaces and dashes."""
    return "".join(letter for letter in code.upper() if letter.isalnum())


def _new_code() -> str:
    """Return a new code. Two halves are easier to read aloud."""
    halves = ("".join(secrets.choice(_LETTERS) for _ in range(_HALF)) for _ in range(2))
    return "-".join(halves)


def _bounded(newcomers: Sequence[Newcomer], now: datetime) -> list[Newcomer]:
    """Return the newest newcomers, with room for one more. Newcomers with an open code are kept before all others."""
    kept = sorted(newcomers, key=lambda each: (each.is_open(now), each.at))[-(_LAST - 1) :]
    return sorted(kept, key=lambda each: each.at)
