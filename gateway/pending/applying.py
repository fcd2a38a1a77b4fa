"""Applying: one answer of one person to one action, however it was given."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from channels import Person
from gateway.pending import transitions
from gateway.pending.actions import ConversationActions
from gateway.pending.ballots import report
from gateway.pending.feedback import PressFeedback
from gateway.pending.plans import launch_in_order
from gateway.pending.prompt import code_only, outcome_key
from gateway.pending.prompting import ask_for_code
from gateway.pending.settling import close, close_if_drifted, close_replaced, expire, withdraw_replaced
from gateway.pending.words import Intent
from gateway.tools.pending_action import PendingAction

__all__ = ["apply", "is_eligible", "refuse", "take_vote"]


def take_vote(
    actions: ConversationActions,
    action: PendingAction,
    intent: Intent,
    person: Person,
    at: datetime,
    *,
    digest: str,
    remark: str,
) -> PressFeedback:
    """Apply a vote that an approver gave in their own chat at that moment, and return the feedback for them.

    `digest` is that of the question they saw.
    """
    if action.settled:
        return PressFeedback(key=outcome_key(action, at), language=action.language)
    if digest != action.digest or not is_eligible(actions, action, intent, person, at):
        return PressFeedback(key="not_yours")
    return apply(actions, action, intent, person, at, by_code=True, remark=remark)


def is_eligible(
    actions: ConversationActions, action: PendingAction, intent: Intent, person: Person | None, at: datetime
) -> bool:
    """Return True if this person may give this answer; otherwise add the refusal to the audit."""
    may = transitions.may_refuse if intent == "cancel" else transitions.may_approve
    if person is not None and not person.is_bot and may(action, str(person)):
        return True
    refuse(actions, action, person, at)
    return False


def refuse(actions: ConversationActions, action: PendingAction, person: Person | None, at: datetime) -> None:
    """Add the refusal of this person to the audit."""
    actions.refused = True
    actions.put(action, "not_allowed", str(person) if person is not None else None, at)


def apply(
    actions: ConversationActions,
    action: PendingAction,
    intent: Intent,
    person: Person | None,
    at: datetime,
    *,
    by_code: bool = False,
    remark: str = "",
    together: bool = False,
) -> PressFeedback:
    """Apply the decision of an eligible person to this action. `by_code`: the person has given the action's code.

    `together`: the caller tells the refusals of several actions in one message.
    """
    if action.ballot_of is not None:
        return _pass_on(actions, action, intent, person, at, by_code=by_code, remark=remark)
    if action.settled or (action.state != "pending" and intent == "confirm") or action.state == "running":
        return PressFeedback(key=outcome_key(action, at), language=action.language)
    if close_if_drifted(actions, action, at) or (action.open and transitions.expired(action, at)):
        expire(actions, action.pending_action_id, at)
        ended = actions.by_id[action.pending_action_id]
        return PressFeedback(key=outcome_key(ended, at), language=ended.language, told=True)
    decider, name = (str(person), person.name) if person is not None else ("", None)
    if intent == "cancel":
        withdraw_replaced(actions, action, at)
        action = replace(action, remark=remark or None)
        tell = None if together else "cancelled_because" if remark else "cancelled"
        close(actions, action, "refused", at, by=decider, name=name, tell=tell)
        return PressFeedback(key="pressed_no", told=True)
    if not by_code and action.open and code_only(action):
        ask_for_code(actions, action)
        return PressFeedback(key="say_code", values={"code": action.code}, told=True)
    decided = transitions.approve(action, decider, name, at)
    actions.put(decided, "decided" if decided.state == "approved" else "voted", decider, at)
    if decided.state != "approved":
        return PressFeedback(key="pressed_vote", values={"count": len(decided.votes), "need": decided.need})
    close_replaced(actions, [action.pending_action_id], at)
    launch_in_order(actions, decided, at)
    return PressFeedback(key="pressed_ok", told=True)


def _pass_on(
    actions: ConversationActions,
    ballot: PendingAction,
    intent: Intent,
    person: Person | None,
    at: datetime,
    *,
    by_code: bool,
    remark: str,
) -> PressFeedback:
    """Hand the vote of an eligible person over to the action of this ballot. The action's answer comes from there."""
    if ballot.settled or ballot.vote == intent:
        return PressFeedback(key=outcome_key(ballot, at), language=ballot.language)
    if intent == "confirm" and not by_code and code_only(ballot):
        ask_for_code(actions, ballot)
        return PressFeedback(key="say_code", values={"code": ballot.code}, told=True)
    voter, name = (str(person), person.name) if person is not None else ("", None)
    voted = replace(
        ballot,
        state="approved",
        vote=intent,
        decided_at=at,
        decided_by=voter,
        decided_name=name,
        remark=remark or None,
    )
    actions.put(voted, "ballot_voted", voter, at)
    actions.changes.no_longer_due(voted, "undelivered")
    report(actions, voted, intent, at, name=name)
    return PressFeedback(key="vote_passed_on", told=True)
