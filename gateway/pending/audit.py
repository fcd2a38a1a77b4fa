"""The audit of actions: for each a chain of lines, in which a line has the hash of itself and of the line before it.

The head of the chain stands in the sealed record of its action. As long as the record is kept, nobody without the key
can change, remove or add a line that it covers.

A line names its person by a pseudonym (see `gateway.pending.pseudonyms`), and has nothing else that tells of a person:
no conversation, and no hash that a guessed name or number could be checked against. Lines of an older release have the
person in plain, and the run that asked.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from channels import Json
from gateway.tools.pending_action import PendingAction, canonical_json

__all__ = ["OPERATOR", "AuditCheck", "AuditLine", "Noted", "chained"]

OPERATOR = "operator"
"""The name of an operator in the audit. It is no person, and has no pseudonym."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """An event of an action that the audit will have a line for."""

    action_id: str
    what: str
    by: str | None
    at: datetime

    @property
    def person(self) -> str | None:
        """The person that the line names, or None."""
        return self.by if self.by != OPERATOR else None


class AuditLine(dict[str, Json]):
    """A line as it is stored, with the person in plain beside it for the events of this process."""

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
    """A check of many chains at once. It is given every line once, in any order, and keeps little of each."""

    def __init__(self, heads: Mapping[str, str]) -> None:
        """`heads`: action id -> the head in its record, of every action that has a record. Read before the lines."""
        self._heads = heads
        self._ends: dict[str, str] = {}
        """Action -> the hash of the last line of its chain so far."""
        self._early: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """Action -> the lines that came before the line they follow: the hash of that line -> their own."""
        self._found: set[str] = set()
        """The actions with a line that is the head in the record."""
        self._faults: dict[str, str] = {}

    def take(self, line: Mapping[str, Json]) -> None:
        """Take the next line."""
        action, before, head = str(line.get("action")), str(line.get("before")), str(line.get("head"))
        if head != _hash({name: value for name, value in line.items() if name != "head"}):
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
        """Return why the chains are not whole, by action. It is empty when all of them are.

        `was_cut`: the oldest lines of the audit have expired. Then the chain of an action without a record, and of no
        other, may begin with a line whose line before is gone.
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
