"""Emission of the engine's events: the ids of events and runs, and the events of a commit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from channels import Address, Json
from channels.direct import DirectChannel
from gateway.observe.events import (
    ActionAudited,
    DeliveryFailed,
    EventSettled,
    PendingDecided,
    PendingLaunched,
    PendingResolved,
)
from gateway.observe.runs import run_id_of
from gateway.observe.teller import Teller
from gateway.pending.audit import AuditLine
from gateway.pending.seal import is_sealed
from gateway.store.transaction import Transaction
from gateway.store.types import QueuedPart, Waiting
from gateway.stored import keys
from gateway.stored.events import is_internal
from gateway.stored.outbox import OutboxItem
from gateway.tools.pending_action import PendingAction


def event_id_of(waiting: Waiting) -> str:
    """Return the first id of an event. An event of the gateway has an `event_id`, or is named by kind and action."""
    ids = waiting.body.get("event_ids")
    if isinstance(ids, list | tuple) and ids:
        return str(ids[0])
    if "action_id" not in waiting.body:
        return str(waiting.body.get("event_id"))
    return f"{waiting.body.get('kind')}/{waiting.body.get('action_id')}"


def event_ids(events: Iterable[Waiting]) -> Sequence[str]:
    """Return the id of each event."""
    return [event_id_of(waiting) for waiting in events]


def run_of(waiting: Waiting) -> str:
    """Return the id of the run begun by this event."""
    return run_id_of(waiting.conversation, event_id_of(waiting))


def was_received(waiting: Waiting) -> bool:
    """Return True for an event delivered by a platform and emitted as `MessageReceived`."""
    return not is_internal(waiting.body) and _address(waiting.conversation).channel != DirectChannel.name


def cause_of_part(queued: QueuedPart, item: OutboxItem) -> tuple[str, str]:
    """Return the ids of the event answered by a part, and of the event's run. `item` is the part's decoded body."""
    cause = str(item.cause)
    return cause, run_id_of(queued.conversation, cause)


def tell_settled(
    events: Teller, run_id: str, conversation: str, taken: Sequence[Waiting], transaction: Transaction, how: str
) -> None:
    """Emit `EventSettled`: these events left the mailbox in this commit."""
    events.tell_now(
        EventSettled,
        run_id,
        conversation=conversation,
        event_ids=event_ids(taken),
        how=how,
        parts=[part.part_id for part in transaction.parts],
        actions=list(dict.fromkeys(str(line["action"]) for line in _audit(transaction))),
        received=was_received(taken[0]),
    )


def tell_failed(events: Teller, queued: QueuedPart, reason: str, *, suppressed: bool = False) -> None:
    """Emit `DeliveryFailed` for a dead letter. `suppressed`: the person has opted out or left, so this is no error."""
    cause, run_id = cause_of_part(queued, OutboxItem.from_json(queued.body))
    _tell_failed(events, run_id, queued.conversation, cause, reason, part_id=queued.part_id, suppressed=suppressed)


def tell_lost(events: Teller, report: Waiting, reason: str) -> None:
    """Emit `DeliveryFailed` for a platform's report of a lost message no longer known to the gateway."""
    _tell_failed(events, run_of(report), report.conversation, event_id_of(report), reason)


def _tell_failed(
    events: Teller,
    run_id: str,
    conversation: str,
    cause: str,
    reason: str,
    *,
    part_id: str = "",
    suppressed: bool = False,
) -> None:
    events.tell_now(
        DeliveryFailed,
        run_id,
        address=_address(conversation),
        reason=reason,
        conversation=conversation,
        part_id=part_id,
        cause=cause,
        suppressed=suppressed,
    )


def _address(conversation: str) -> Address:
    return Address.parse(conversation.partition("/")[2])


_CHANGES = (PendingDecided, PendingLaunched, PendingResolved)
_UNTOLD = frozenset(
    {
        *("asked", "shown", "moved", "tightened", "not_allowed", "approver_lost", "standins_asked"),
        *("asked_elsewhere", "place_lost"),
        *("ballot_asked", "ballot_shown", "ballot_voted", "ballot_ended"),
    }
)
"""The audit lines without an event about a change of the action. The action's record need not be read."""


def tell_audited(events: Teller, transaction: Transaction) -> None:
    """Emit the stored changes of actions, from the audit lines of a commit.

    Never raises and never waits: the commit is made, and an effect may follow under the lease.
    """
    for line in _audit(transaction):
        action_id, what, by = str(line["action"]), str(line["what"]), line.by
        events.tell_now(ActionAudited, action_id=action_id, what=what, person=by)
        is_told = what not in _UNTOLD and any(map(events.listeners, _CHANGES))
        put = transaction.puts.get(keys.action(action_id)) if is_told else None
        action = _action(put.value) if put is not None else None
        if action is not None:
            _tell_change(events, action, what, by)


def _tell_change(events: Teller, action: PendingAction, what: str, person: str | None) -> None:
    if what in ("decided", "voted", "refused") and person is not None:
        intent = "cancel" if what == "refused" else "confirm"
        events.tell_now(PendingDecided, action=action, person=person, intent=intent)
    if what == "launched":
        events.tell_now(PendingLaunched, action=action)
    elif what in ("finished", "settled"):
        events.tell_now(PendingResolved, action=action, status=action.state)
    elif what == action.reason:
        events.tell_now(PendingResolved, action=action, status=what)


def _action(sealed: Json) -> PendingAction | None:
    """Return the action of a freshly sealed record; None for an unreadable record, since the commit is already made."""
    try:
        return PendingAction.from_json(json.loads(str(sealed["body"]))) if is_sealed(sealed) else None
    except ValueError:
        return None


def _audit(transaction: Transaction) -> list[AuditLine]:
    return [line for _, line in transaction.appends if isinstance(line, AuditLine)]
