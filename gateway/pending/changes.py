"""The changes of a conversation's actions, until one transaction writes all of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, TypeAlias

from channels import Json
from gateway.pending.index import Index
from gateway.pending.seal import Keyring
from gateway.store.base import Incoming, Put, Timer, Transaction
from gateway.tools.pending_action import PendingAction, canonical_json, why_closed

__all__ = ["KEPT_SECONDS", "Changes", "Deadline"]

KEPT_SECONDS = 30 * 86400.0
"""How long a settled action can still be answered for."""

Deadline: TypeAlias = Literal["expiry", "undelivered", "unlaunched"]


@dataclass(slots=True, kw_only=True)
class Changes:
    """The changes of one conversation's actions, in the order they were made."""

    conversation: str
    keyring: Keyring
    versions: dict[str, int]
    """Action id -> the version its record was read at."""
    index_read: Index
    index_version: int
    rewrites: bool = False
    """The index and the records it names are written in any case: an older release wrote them."""
    actions: dict[str, PendingAction] = field(default_factory=dict)
    """The new records."""
    tokens: dict[str, tuple[str, float]] = field(default_factory=dict)
    """SHA-256 of a new token -> the action it is of, and for how many seconds."""
    audit: list[Json] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    approved: list[str] = field(default_factory=list)
    """To be executed."""
    settled: list[PendingAction] = field(default_factory=list)
    """To be told to the model."""
    again: list[PendingAction] = field(default_factory=list)
    """To be asked anew."""
    tampered: list[str] = field(default_factory=list)
    """Ended because somebody without the key had changed them."""

    def audited(self, action: PendingAction, what: str, person: str | None, at: datetime) -> PendingAction:
        """Return the record with one more line in its audit chain: its digest, the event, the person and the time."""
        line: dict[str, Json] = {
            "action": action.pending_action_id,
            "what": what,
            "person": person,
            "at": at.isoformat(),
            "digest": action.digest,
            "before": action.audit,
        }
        head = hashlib.sha256(canonical_json(line)).hexdigest()
        self.audit.append({**line, "head": head})
        return replace(action, audit=head)

    def due(self, what: Deadline, action: PendingAction, at: datetime) -> None:
        """Have this come back as an event of the decision lane."""
        timer_id = f"{what}/{action.pending_action_id}"
        event_id = f"{timer_id}/{at.isoformat()}"
        body: dict[str, Json] = {"kind": what, "event_id": event_id, "action_id": action.pending_action_id}
        body = self.keyring.stamped("event", self.conversation, body)
        incoming = Incoming(conversation=self.conversation, event_ids=(event_id,), body=body, decides=True)
        self.timers.append(Timer(timer_id=timer_id, due=at, incoming=incoming))

    def no_longer_due(self, action: PendingAction, *which: Deadline) -> None:
        self.cancelled += [f"{what}/{action.pending_action_id}" for what in which]

    def write(self, transaction: Transaction, index: Index, at: datetime) -> None:
        """Add all of it to a transaction of this partition."""
        seals: dict[str, str] = {}
        for action_id, action in self.actions.items():
            name = f"action/{action_id}"
            transaction.expect[name] = self.versions.get(action_id, 0)
            sealed = self.keyring.seal(name, action.to_text())
            seals[action_id] = str(sealed["seal"])
            transaction.puts[name] = Put(sealed, KEPT_SECONDS if action.settled else None)
        if seals or self.rewrites or index != self.index_read:
            self._write_index(transaction, index.written(seals, at))
        for sha256, (action_id, ttl_seconds) in self.tokens.items():
            stored: Json = {"action_id": action_id, "conversation": self.conversation}
            transaction.puts[f"token/{sha256}"] = Put(stored, ttl_seconds)
        transaction.appends += [("audit", line) for line in self.audit]
        transaction.timers += self.timers
        transaction.cancel += self.cancelled
        transaction.actions += self.approved
        transaction.accept += [self._settled_event(action) for action in self.settled]
        transaction.accept += [self._again_event(action) for action in self.again]

    def _write_index(self, transaction: Transaction, index: Index) -> None:
        name = f"open/{self.conversation}"
        transaction.expect[name] = self.index_version
        transaction.puts[name] = Put(self.keyring.seal(name, index.to_text()), None if index.live else KEPT_SECONDS)

    def _again_event(self, action: PendingAction) -> Incoming:
        """Return what makes the conversation ready for a turn that asks the same anew; a second press is a twin."""
        event_id = f"again/{action.pending_action_id}"
        body: dict[str, Json] = {"kind": "again", "event_id": event_id, "action_id": action.pending_action_id}
        body = self.keyring.stamped("event", self.conversation, body)
        return Incoming(conversation=self.conversation, event_ids=(event_id,), body=body)

    def _settled_event(self, action: PendingAction) -> Incoming:
        event_id = f"settled/{action.pending_action_id}/{action.state}"
        body: dict[str, Json] = {
            "kind": "settled",
            "event_id": event_id,
            "action_id": action.pending_action_id,
            "tool": action.kind,
            "preview": action.preview,
            "state": action.state,
            "reason": why_closed(action.reason, action.detail) if action.reason is not None else None,
            "outcome": action.outcome,
            "by": action.decided_name or action.decided_by,
            "remark": action.remark,
            "resume": action.after == "resume",
        }
        return Incoming(
            conversation=self.conversation,
            event_ids=(event_id,),
            body=self.keyring.stamped("event", self.conversation, body),
            wakes=action.after == "resume",
            about=f"settled/{action.pending_action_id}",
        )
