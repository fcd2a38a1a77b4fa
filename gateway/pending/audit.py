"""The audit of actions: for each a chain of lines, in which a line has the hash of itself and of the line before it.

The head of the chain stands in the sealed record of its action. As long as the record is kept, nobody without the key
can change, remove or add a line that it covers.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from channels import Json
from gateway.tools.pending_action import PendingAction, canonical_json

__all__ = ["AuditCheck", "chained"]


def chained(action: PendingAction, what: str, person: str | None, at: datetime) -> dict[str, Json]:
    """Return the next line of an action's audit.

    The line holds the digest of the action, the event, the person, the time, the run that asked, and both hashes.
    """
    line: dict[str, Json] = {
        "action": action.pending_action_id,
        "what": what,
        "person": person,
        "at": at.isoformat(),
        "digest": action.digest,
        "before": action.audit,
        **({"run": action.run_id} if action.run_id else {}),  # none in the record of an older release
    }
    return {**line, "head": _hash(line)}


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

    def faults(self) -> dict[str, str]:
        """Return why the chains are not whole, by action. It is empty when all of them are."""
        found = dict(self._faults)
        for action, early in self._early.items():
            end = self._ends.get(action, "")
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
