"""The audit of actions: a hash chain of lines per action. A line contains its own hash and the previous hash.

The sealed record of the action contains the head of the chain. As long as this record is kept, no line covered by the
head can be changed, removed or added without the key.

A line names the person by a pseudonym and contains no other personal data: no conversation, and no hash of a guessable
name or number.

A pseudonym is an HMAC of the person under a random key of this person, 128 bits. A record holds the key and the person:
a record in each partition with lines about the person, written in the same commit as the first of these lines. Without
the record a line can be linked to no person, not even by trying every phone number with `ASKFIRST_SECRET` at hand. So
deleting the records forgets the person, and the chains stay whole. The record has no seal, because the pseudonym in the
line proves the record: another key or person gives another pseudonym. A seal would also have to outlive its secret,
because the record is kept for as long as the lines.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from channels import Json
from gateway.store.base import Store
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from gateway.stored import keys
from gateway.tools.pending_action import PendingAction, canonical_json

OPERATOR = "operator"
"""The name of an operator in the audit: not a person, and without a pseudonym."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """An event of an action, to be written as an audit line."""

    action_id: str
    what: str
    by: str | None
    at: datetime

    @property
    def person(self) -> str | None:
        """The person named in the line, or None."""
        return self.by if self.by != OPERATOR else None


class AuditLine(dict[str, Json]):
    """A stored line, plus the person in plain text for the events of this process."""

    def __init__(self, line: Mapping[str, Json], by: str | None) -> None:
        super().__init__(line)
        self.by = by


def chained(action: PendingAction, noted: Noted, pseudonyms: Mapping[str, str]) -> AuditLine:
    """Return the next line of an action's audit: the action with its digest, the event, the time, and both hashes."""
    line: dict[str, Json] = {
        "action": action.pending_action_id,
        "what": noted.what,
        "person": pseudonyms[noted.person] if noted.person else noted.by,
        "at": noted.at.isoformat(),
        "digest": action.digest,
        "before": action.audit,
    }
    return AuditLine({**line, "head": _hash(line)}, noted.by)


class AuditCheck:
    """A check of many chains at once. Give every line exactly once, in any order; little of each line is kept."""

    def __init__(self, heads: Mapping[str, str]) -> None:
        """`heads`: action id -> the recorded head, for every action with a record. Read the heads before the lines."""
        self._heads = heads
        self._ends: dict[str, str] = {}
        """Action -> the hash of the last line of the chain so far."""
        self._early: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """Action -> the lines read before their previous line: the previous hash -> the own hash."""
        self._found: set[str] = set()
        """The actions with the recorded head among the lines read."""
        self._faults: dict[str, str] = {}

    def take(self, line: Mapping[str, Json]) -> None:
        """Take the next line."""
        action, before, head = str(line.get("action")), str(line.get("before")), str(line.get("head"))
        try:
            is_whole = head == _hash({name: value for name, value in line.items() if name != "head"})
        except ValueError:  # a value that no line of ours has
            is_whole = False
        if not is_whole:
            self._faults[action] = "a line was changed"
            return
        if self._heads.get(action) == head:
            self._found.add(action)
        if self._ends.get(action, "") == before:
            self._ends[action] = head
        elif before in self._early[action]:
            self._faults.setdefault(action, "two lines follow the same one")
        else:
            self._early[action][before] = head

    def faults(self, *, was_cut: bool = False) -> dict[str, str]:
        """Return the fault of each broken chain, by action; empty if all chains are whole.

        `was_cut`: the oldest lines of the audit have expired. Only the chain of an action without a record may then
        begin with a line without its previous line.
        """
        found = dict(self._faults)
        for action, early in self._early.items():
            end = self._ends.get(action, "")
            begins = [*early.keys() - set(early.values())]
            if was_cut and len(begins) == 1 and action not in self._heads and action not in self._ends:
                end = begins[0]
            while end in early:
                end = early.pop(end)
            if early:
                found.setdefault(action, "a line is missing, or was added")
        for action, head in self._heads.items():
            if head and action not in self._found:
                found.setdefault(action, "its last lines are missing")
        return found


def _hash(line: Mapping[str, Json]) -> str:
    return hashlib.sha256(canonical_json(dict(line))).hexdigest()


_KEY_BYTES = 32
_PSEUDONYM = re.compile("~[0-9a-f]{32}")


def is_pseudonym(name: object) -> bool:
    """Return True for a text in the form of a pseudonym."""
    return isinstance(name, str) and _PSEUDONYM.fullmatch(name) is not None


class Pseudonyms:
    """The pseudonyms of people in a store, each made at first use."""

    def __init__(self, store: Store, random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._store, self._random = store, random

    async def name(self, people: Iterable[str], transaction: Transaction) -> dict[str, str]:
        """Return the pseudonym of each person for the lines of this transaction.

        The transaction writes the missing records and expects all of these records unchanged: concurrent first uses
        make a single record, and no line names a forgotten person by the deleted key. Raises StoreUnavailable.
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
    """Return the person of each pseudonym with an existing record."""
    found = [_read(record.value) for _, record in await store.scan(keys.PSEUDONYMS)]
    return {known.pseudonym: known.person for known in found if known is not None}


class _Known(NamedTuple):
    """The content of a record."""

    person: str
    key: str

    @property
    def pseudonym(self) -> str:
        key, person = bytes.fromhex(self.key), self.person.encode("utf-8", "surrogatepass")
        return f"~{hmac.digest(key, person, hashlib.sha256).hex()[:32]}"


def _read(stored: Json) -> _Known | None:
    """Return the content of a record; None if the record is missing or cannot be read."""
    if not isinstance(stored, dict):
        return None
    person, key = stored.get("person"), stored.get("key")
    is_whole = isinstance(person, str) and isinstance(key, str) and re.fullmatch(r"[0-9a-f]{64}", key)
    return _Known(str(person), str(key)) if is_whole else None
