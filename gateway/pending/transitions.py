"""The states of an action and every transition between them, as pure functions of the record.

    pending ──approve──▶ approved ──launch(fence)──▶ running ──finish──▶ done | failed | unknown
       │                    │                           └──relaunch──▶ running (idempotent tools only)
       └────────close───────┘
                 ▼
               closed(reason)

These functions read no clock, key or store. The time is the stamp of the event behind the transition. The writer of the
record makes the seal.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from channels import Person
from channels.errors import Portable
from gateway.tools.approver_places import place_around
from gateway.tools.pending_action import Detail, PendingAction, Reason, Vote

APPROVED_FOR = timedelta(minutes=15)
"""The time after the decision in which an effect may be launched. A later effect would surprise the person."""
PROBED_NOT_DONE = "found not done by its probe"
"""The outcome of an action after a probe's "not done". A slow worker may still report the effect done."""
SETTLED_BY = "settled by "
"""The beginning of the outcome of an action settled by hand; the name of the operator follows."""
RELAUNCHES = 3
RELAUNCH_WITHIN = timedelta(hours=24)


class WrongState(Portable, ValueError):
    """The state of the action does not allow this transition."""

    def __init__(self, action: PendingAction, wanted: str) -> None:
        super().__init__(f"action {action.pending_action_id} is {action.state}: it cannot {wanted}")


def may_approve(action: PendingAction, person: str) -> bool:
    """Return True if this person may approve the action.

    The people of the approver rule and the asked stand-ins may; without a rule, the requester alone.
    """
    if not action.approvers:
        return person == action.requester
    return person in action.approvers or any(
        ballot.person == person and ballot.state in ("asked", "shown") and not ballot.instead
        for ballot in action.ballots
    )


def approver_of(action: PendingAction, person: Person) -> str | None:
    """Return the approver as whom this person may vote: the person, or the place of the action; None for other people.

    The requester votes for no place, unless the requester is an approver too.
    """
    if may_approve(action, str(person)):
        return str(person)
    return (
        None
        if only_asks(action, str(person))
        else place_around(action.approvers, action.address, person, action.conversation)
    )


def only_asks(action: PendingAction, person: str) -> bool:
    """Return True for the requester of an action whose rule does not name the requester."""
    people = action.ballot_of.people if action.ballot_of is not None else action.approvers
    return person == action.requester and person not in people


def may_refuse(action: PendingAction, person: str) -> bool:
    """Return True for the requester and for each approver."""
    return person == action.requester or may_approve(action, person)


def may_close(action: PendingAction) -> bool:
    """Return True before the launch: the action may still be closed without its effect."""
    return action.state in ("pending", "approved")


def expired(action: PendingAction, at: datetime) -> bool:
    """Return True if the deadline had passed at this stamp: an answer at the deadline itself is in time.

    An action that was never shown has no deadline yet.
    """
    return action.expires_at is not None and at > action.expires_at


def is_stale(action: PendingAction, at: datetime) -> bool:
    """Return True if the approval is too old for a launch."""
    return action.state == "approved" and action.decided_at is not None and at - action.decided_at > APPROVED_FOR


def may_ask_again(action: PendingAction) -> bool:
    """Return True if a single press may ask the action again.

    The action failed, expired, drifted or was refused by an approver. A child of a change may also have been
    undelivered. A tampered action is never asked again, and a ballot only with its action.
    """
    if action.ballot_of is not None or action.detail == "tampered":
        return False
    missed = action.reason == "undelivered" and action.replaces is not None
    return missed or action.state == "failed" or action.reason in ("expired", "drifted") or was_refused(action)


def was_refused(action: PendingAction) -> bool:
    """Return True if an approver other than the requester refused the action."""
    return action.reason == "refused" and bool(action.approvers) and action.decided_by != action.requester


def show(
    action: PendingAction, at: datetime, message_id: str | None, number: tuple[int, int] | None = None
) -> PendingAction:
    """Return the action with another delivered prompt. Only the first showing starts the time to answer.

    `number`: the number of the action in the message's list, and the number of questions in this list.
    """
    if number is not None and message_id is not None:
        action = replace(action, numbered={**action.numbered, message_id: number})
    prompts = action.prompts if message_id is None or message_id in action.prompts else (*action.prompts, message_id)
    if not action.open or action.shown_at is not None:
        return replace(action, prompts=prompts)
    return replace(action, prompts=prompts, shown_at=at, expires_at=_earlier(action, at, action.ttl_seconds))


def tighten(action: PendingAction, at: datetime, seconds: float) -> PendingAction:
    """Return the action with at most this many seconds left, never more than before.

    Raises ValueError for a number that is negative or not finite.
    """
    if not 0 <= seconds < float("inf"):
        raise ValueError("seconds must be zero or more, and finite")
    return replace(action, expires_at=_earlier(action, at, seconds))


def approve(
    action: PendingAction, person: str, name: str | None, at: datetime, *, approver: str | None = None
) -> PendingAction:
    """Return the action with the vote of this person, approved if the votes suffice.

    `approver` is the place that the person votes for; None: the person is an approver.

    Raises WrongState if the action is not pending or has expired, and PermissionError for a person without the right to
    approve.
    """
    if not action.open or expired(action, at):
        raise WrongState(action, "be approved")
    if not may_approve(action, approver or person):
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
    """Return the closed action, without an effect. Raises WrongState after the launch."""
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
    """Return the action as running under this fence. Also relaunches an idempotent action of a dead worker.

    Raises WrongState if the action is neither approved nor running, or if the fence is not newer than the record's
    fence.
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
    """Return True if an idempotent effect may be retried: three attempts in all, within a day of the first launch.

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
    """Return the action with the outcome of the effect under this fence.

    A late outcome settles ``unknown``. ``done`` and ``unknown`` replace a probe's "not done". ``done`` also replaces a
    ``failed`` settled by hand. The late outcome of an earlier attempt counts only if ``done``, because later attempts
    used the same idempotency key. Raises WrongState for any other fence or state.
    """
    late = action.state == "unknown" and state != "unknown"
    by_hand = (action.outcome or "").startswith(SETTLED_BY) and state == "done"
    doubted = action.state == "failed" and (by_hand or (action.outcome == PROBED_NOT_DONE and state != "failed"))
    under = fence == action.fence or (fence < action.fence and late and state == "done")
    if not under or not (action.state == "running" or late or doubted):
        raise WrongState(action, f"end as {state}")
    return replace(action, state=state, outcome=outcome, finished_at=at)


def settle(action: PendingAction, state: Literal["done", "failed"], outcome: str, at: datetime) -> PendingAction:
    """Return an unknown action with the outcome found by an operator or a probe. Raises WrongState if not unknown."""
    if action.state != "unknown":
        raise WrongState(action, "be settled by hand")
    return replace(action, state=state, outcome=outcome, finished_at=at)


def _earlier(action: PendingAction, at: datetime, seconds: float) -> datetime:
    """Return the deadline, at most this many seconds after this time."""
    end = at + timedelta(seconds=seconds)
    return end if action.expires_at is None else min(action.expires_at, end)
