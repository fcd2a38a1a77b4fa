"""The states of an action and every way from one to the next, as pure functions of the record.

    pending ──approve──▶ approved ──launch(fence)──▶ running ──finish──▶ done | failed | unknown
       │                    │                           └──relaunch──▶ running (idempotent tools only)
       └────────close───────┘
                 ▼
               closed(reason)

None of them reads a clock, a key or a store: the time is the stamp of the event that caused it, and whoever writes the
record seals it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from gateway.tools.pending_action import Detail, PendingAction, Reason, Vote

__all__ = [
    "APPROVED_FOR",
    "PROBED_NOT_DONE",
    "SETTLED_BY",
    "WrongState",
    "approve",
    "close",
    "expired",
    "finish",
    "is_stale",
    "launch",
    "may_approve",
    "may_ask_again",
    "may_close",
    "may_refuse",
    "may_relaunch",
    "settle",
    "show",
    "tighten",
]

APPROVED_FOR = timedelta(minutes=15)
"""How long after the decision an effect may still be launched: later it would surprise whoever said yes."""
PROBED_NOT_DONE = "found not done by its probe"
"""The outcome of an action that a probe took for not done: a worker that was only slow may know better."""
SETTLED_BY = "settled by "
"""The outcome of an action begins so that somebody has settled by hand; who that was stands behind it."""
RELAUNCHES = 3
RELAUNCH_WITHIN = timedelta(hours=24)


class WrongState(ValueError):
    """The action is not in a state from which this can happen."""

    def __init__(self, action: PendingAction, wanted: str) -> None:
        super().__init__(f"action {action.pending_action_id} is {action.state}: it cannot {wanted}")


def may_approve(action: PendingAction, person: str) -> bool:
    """Without approvers the requester alone; otherwise whoever the approver rule names, and nobody else."""
    if not action.approvers:
        return person == action.requester
    return person in action.approvers


def may_refuse(action: PendingAction, person: str) -> bool:
    """The requester or an approver may always say no."""
    return person == action.requester or may_approve(action, person)


def may_close(action: PendingAction) -> bool:
    """Return True before the launch: the action may still end as one that does not happen."""
    return action.state in ("pending", "approved")


def expired(action: PendingAction, at: datetime) -> bool:
    """Return True when its deadline had passed at this stamp. An action that was never shown has no deadline yet."""
    return action.expires_at is not None and at > action.expires_at


def is_stale(action: PendingAction, at: datetime) -> bool:
    """Return True when the yes to an action that was not launched is too old to be acted on."""
    return action.state == "approved" and action.decided_at is not None and at - action.decided_at > APPROVED_FOR


def may_ask_again(action: PendingAction) -> bool:
    """Return True for an action that one press asks anew: its time has passed, or what it was about has changed."""
    return action.reason in ("expired", "drifted") and action.detail != "tampered"


def show(action: PendingAction, at: datetime, message_id: str | None) -> PendingAction:
    """The prompt has arrived. Its time starts with the first showing; another one does not move it."""
    prompts = action.prompts if message_id is None or message_id in action.prompts else (*action.prompts, message_id)
    if not action.open or action.shown_at is not None:
        return replace(action, prompts=prompts)
    return replace(action, prompts=prompts, shown_at=at, expires_at=_earlier(action, at, action.ttl_seconds))


def tighten(action: PendingAction, at: datetime, seconds: float) -> PendingAction:
    """Leave at most so many seconds; the time never grows. Raises ValueError when negative or not a number."""
    if not 0 <= seconds < float("inf"):
        raise ValueError("seconds must be zero or more, and finite")
    return replace(action, expires_at=_earlier(action, at, seconds))


def approve(action: PendingAction, person: str, name: str | None, at: datetime) -> PendingAction:
    """A yes: one more vote, and approved when that is enough.

    Raises WrongState when it is not pending or its deadline has passed, and PermissionError for the wrong person.
    """
    if not action.open or expired(action, at):
        raise WrongState(action, "be approved")
    if not may_approve(action, person):
        raise PermissionError(person)
    votes = action.votes
    if all(vote.person != person for vote in votes):
        votes = (*votes, Vote(person=person, name=name, at=at))
    if len(votes) < action.need:
        return replace(action, votes=votes)
    return replace(action, votes=votes, state="approved", decided_at=at, decided_by=person, decided_name=name)


def close(
    action: PendingAction,
    reason: Reason,
    at: datetime,
    *,
    detail: Detail | None = None,
    by: str | None = None,
    name: str | None = None,
) -> PendingAction:
    """It will not happen. Only before launch: raises WrongState afterwards."""
    if not may_close(action):
        raise WrongState(action, "be closed")
    return replace(
        action,
        state="closed",
        reason=reason,
        detail=detail,
        finished_at=at,
        decided_at=action.decided_at or (at if by else None),
        decided_by=by or action.decided_by,
        decided_name=name if by else action.decided_name,
    )


def launch(action: PendingAction, fence: int, at: datetime) -> PendingAction:
    """The effect is about to run under this fence. Also the relaunch of an idempotent one whose worker died.

    Raises WrongState from any other state, or when the fence is not newer than the record's.
    """
    if action.state not in ("approved", "running") or fence <= action.fence:
        raise WrongState(action, "be launched")
    return replace(
        action,
        state="running",
        fence=fence,
        attempts=action.attempts + 1,
        launched_at=action.launched_at or at,
    )


def may_relaunch(action: PendingAction, at: datetime) -> bool:
    """Whether an idempotent effect may be tried again: three times, within a day of its first launch.

    Providers forget idempotency keys after about a day (Stripe: docs.stripe.com/api/idempotent_requests).
    """
    return (
        action.state == "running"
        and action.attempts < RELAUNCHES
        and action.launched_at is not None
        and at - action.launched_at < RELAUNCH_WITHIN
    )


def finish(
    action: PendingAction,
    fence: int,
    state: Literal["done", "failed", "unknown"],
    outcome: str | None,
    at: datetime,
) -> PendingAction:
    """Return the action as the effect that ran under this fence has left it.

    A late end still settles `unknown`, and what a probe took for not done is no longer sure of that. Done also beats
    what somebody has settled as failed by hand. An earlier attempt whose end comes late counts only when it is done:
    others with the same key came after it.
    Raises WrongState for any other fence or state.
    """
    late = action.state == "unknown" and state != "unknown"
    by_hand = (action.outcome or "").startswith(SETTLED_BY) and state == "done"
    doubted = action.state == "failed" and (by_hand or (action.outcome == PROBED_NOT_DONE and state != "failed"))
    under = fence == action.fence or (fence < action.fence and late and state == "done")
    if not under or not (action.state == "running" or late or doubted):
        raise WrongState(action, f"end as {state}")
    return replace(action, state=state, outcome=outcome, finished_at=at)


def settle(action: PendingAction, state: Literal["done", "failed"], outcome: str, at: datetime) -> PendingAction:
    """A person or a probe has found out what became of an unknown one. Raises WrongState from any other state."""
    if action.state != "unknown":
        raise WrongState(action, "be settled by hand")
    return replace(action, state=state, outcome=outcome, finished_at=at)


def _earlier(action: PendingAction, at: datetime, seconds: float) -> datetime:
    """Return the end of its time, at the latest so many seconds after this moment."""
    end = at + timedelta(seconds=seconds)
    return end if action.expires_at is None else min(action.expires_at, end)
