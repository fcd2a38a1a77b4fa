"""The uncommitted changes of a conversation's actions, written in a single transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from channels import Json
from gateway.pending.audit import Noted, chained
from gateway.pending.index import Index
from gateway.pending.seal import Keyring
from gateway.store.transaction import Put, Timer, Transaction
from gateway.store.types import Incoming
from gateway.stored import keys
from gateway.stored.events import (
    ActionDeadline,
    ActionSettled,
    AskAgain,
    Deadline,
    HandedOver,
    InternalEvent,
    body_of,
)
from gateway.tools.pending_action import PendingAction, why_closed

KEPT_SECONDS = 30 * 86400.0
"""The time during which the record of a settled action is kept and answers late replies."""


@dataclass(slots=True, kw_only=True)
class Changes:
    """The uncommitted changes of a conversation's actions, in order."""

    conversation: str
    keyring: Keyring
    versions: dict[str, int]
    """Action id -> the version of its record at the read."""
    index_read: Index
    index_version: int
    rewrites: bool = False
    """True if the index and its records are written in any case, because the index is broken."""
    actions: dict[str, PendingAction] = field(default_factory=dict)
    """Action id -> its new record."""
    tokens: dict[str, tuple[str, float]] = field(default_factory=dict)
    """SHA-256 of a new token -> the id of the action, and the token's time to live in seconds."""
    audit: list[Noted] = field(default_factory=list)
    """The events to write into the audit, in order."""
    timers: list[Timer] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    """The ids of the timers to cancel."""
    approved: list[str] = field(default_factory=list)
    """The ids of the actions to execute."""
    settled: list[PendingAction] = field(default_factory=list)
    """The ended actions to report to the model."""
    again: list[PendingAction] = field(default_factory=list)
    """The ended actions to ask anew."""
    handed_over: list[Incoming] = field(default_factory=list)
    """The events for other conversations."""
    unreached: list[str] = field(default_factory=list)
    """The approvers out of reach, for the operator's log."""
    old_seals: bool = False
    """True if a record with an old seal was read."""
    tampered: list[str] = field(default_factory=list)
    """The ids of the actions ended because of a record changed without the key."""

    @property
    def people(self) -> list[str]:
        """The people named in the lines of the audit."""
        return [noted.person for noted in self.audit if noted.person]

    def due(self, what: Deadline, action: PendingAction, at: datetime) -> None:
        """Set a timer for this deadline, delivered at its time as an event of the decision lane."""
        timer_id = f"{what}/{action.pending_action_id}"
        event_id = f"{timer_id}/{at.isoformat()}"
        body = self._sealed(ActionDeadline(kind=what, event_id=event_id, action_id=action.pending_action_id))
        incoming = Incoming(conversation=self.conversation, event_ids=(event_id,), body=body, decides=True)
        self.timers.append(Timer(timer_id=timer_id, due=at, incoming=incoming))

    def no_longer_due(self, action: PendingAction, *which: Deadline) -> None:
        """Cancel the timers of these deadlines."""
        self.cancelled += [f"{what}/{action.pending_action_id}" for what in which]

    def hand_over(self, conversation: str, event: HandedOver, at: datetime) -> None:
        """Hand an event over to the decision lane of another conversation, with this stamp."""
        body = self.keyring.stamped("event", conversation, body_of(event))
        ids = (event.event_id,)
        incoming = Incoming(conversation=conversation, event_ids=ids, body=body, decides=True, stamp=at)
        self.handed_over.append(incoming)

    def write(self, transaction: Transaction, index: Index, at: datetime, pseudonyms: Mapping[str, str]) -> None:
        """Add all changes to a transaction of this partition. `pseudonyms`: the pseudonyms of `people`."""
        self._write_audit(transaction, pseudonyms)
        seals: dict[str, str] = {}
        for action_id, action in self.actions.items():
            name = keys.action(action_id)
            transaction.expect[name] = self.versions.get(action_id, 0)
            sealed = self.keyring.seal(name, action.to_text())
            seals[action_id] = str(sealed["seal"])
            transaction.puts[name] = Put(sealed, KEPT_SECONDS if action.settled else None)
        if seals or self.rewrites or index != self.index_read:
            self._write_index(transaction, index.written(seals, at))
        for sha256, (action_id, ttl_seconds) in self.tokens.items():
            stored: Json = {"action_id": action_id, "conversation": self.conversation}
            transaction.puts[keys.token(sha256)] = Put(stored, ttl_seconds)
        transaction.timers += self.timers
        transaction.cancel += self.cancelled
        transaction.actions += self.approved
        transaction.accept += [self._settled_event(action) for action in self.settled]
        transaction.accept += [self._again_event(action) for action in self.again]
        transaction.hand_over += self.handed_over

    def _write_audit(self, transaction: Transaction, pseudonyms: Mapping[str, str]) -> None:
        """Add the lines of the audit to the transaction, and the new heads of the chains to the records."""
        for noted in self.audit:
            action = self.actions[noted.action_id]
            line = chained(action, noted, pseudonyms)
            transaction.appends.append((keys.AUDIT, line))
            self.actions[noted.action_id] = replace(action, audit=str(line["head"]))

    def _write_index(self, transaction: Transaction, index: Index) -> None:
        name = keys.index(self.conversation)
        transaction.expect[name] = self.index_version
        transaction.puts[name] = Put(self.keyring.seal(name, index.to_text()), None if index.live else KEPT_SECONDS)

    def _again_event(self, action: PendingAction) -> Incoming:
        """Return the event of a turn to ask the same anew. A second press makes a twin of this event."""
        event_id = f"again/{action.pending_action_id}"
        body = self._sealed(AskAgain(event_id=event_id, action_id=action.pending_action_id))
        return Incoming(conversation=self.conversation, event_ids=(event_id,), body=body)

    def _settled_event(self, action: PendingAction) -> Incoming:
        event_id = f"settled/{action.pending_action_id}/{action.state}"
        event = ActionSettled(
            event_id=event_id,
            action_id=action.pending_action_id,
            tool=action.kind,
            preview=action.preview,
            state=action.state,
            reason=why_closed(action.reason, action.detail) if action.reason is not None else None,
            outcome=action.outcome,
            by=action.decided_name or action.decided_by,
            remark=action.remark,
            resume=action.after == "resume",
        )
        return Incoming(
            conversation=self.conversation,
            event_ids=(event_id,),
            body=self._sealed(event),
            wakes=action.after == "resume",
            about=f"settled/{action.pending_action_id}",
        )

    def _sealed(self, event: InternalEvent) -> dict[str, Json]:
        return self.keyring.stamped("event", self.conversation, body_of(event))
