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

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from gateway.tools.action import PendingAction, Reason, Vote

__all__ = [
    "WrongState",
    "approve",
    "close",
    "expired",
    "finish",
    "launch",
    "may_approve",
    "may_refuse",
    "may_relaunch",
    "settle",
    "show",
    "tighten",
]

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


def expired(action: PendingAction, at: datetime) -> bool:
    """Whether its deadline had passed at this stamp. What was never shown has no deadline yet."""
    return action.expires_at is not None and at > action.expires_at


def show(action: PendingAction, at: datetime, message_id: str | None) -> PendingAction:
    """The prompt has arrived. Both windows start with the first showing; another one moves neither."""
    prompts = action.prompts if message_id is None or message_id in action.prompts else (*action.prompts, message_id)
    if not action.open or action.shown_at is not None:
        return replace(action, prompts=prompts)
    windows = (action.ttl_seconds, min(action.answer_window_seconds, action.ttl_seconds))
    expires_at, answer_until = _shorter(action, [at + timedelta(seconds=seconds) for seconds in windows])
    return replace(action, prompts=prompts, shown_at=at, expires_at=expires_at, answer_until=answer_until)


def tighten(action: PendingAction, at: datetime, seconds: float) -> PendingAction:
    """Leave at most so many seconds; a window never grows. Raises ValueError when negative or not a number."""
    if not 0 <= seconds < float("inf"):
        raise ValueError("seconds must be zero or more, and finite")
    expires_at, answer_until = _shorter(action, [at + timedelta(seconds=seconds)] * 2)
    return replace(action, expires_at=expires_at, answer_until=answer_until)


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
    action: PendingAction, reason: Reason, at: datetime, *, by: str | None = None, name: str | None = None
) -> PendingAction:
    """It will not happen. Only before launch: raises WrongState afterwards."""
    if action.state not in ("pending", "approved"):
        raise WrongState(action, "be closed")
    return replace(
        action,
        state="closed",
        reason=reason,
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
    """What became of the effect that ran under this fence; a late one still settles `unknown`.

    Raises WrongState for another fence or any other state.
    """
    late = action.state == "unknown" and state != "unknown"
    if fence != action.fence or not (action.state == "running" or late):
        raise WrongState(action, f"end as {state}")
    return replace(action, state=state, outcome=outcome, finished_at=at)


def _shorter(action: PendingAction, limits: Sequence[datetime]) -> list[datetime]:
    """Both windows, ended by these limits at the latest."""
    now = (action.expires_at, action.answer_until)
    return [limit if until is None else min(until, limit) for until, limit in zip(now, limits, strict=True)]


def settle(action: PendingAction, state: Literal["done", "failed"], outcome: str, at: datetime) -> PendingAction:
    """A person or a probe has found out what became of an unknown one. Raises WrongState from any other state."""
    if action.state != "unknown":
        raise WrongState(action, "be settled by hand")
    return replace(action, state=state, outcome=outcome, finished_at=at)
