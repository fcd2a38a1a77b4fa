"""Deciding: the effect of a press, a code, a reply or a bare reply on the actions of a conversation.

A press and a call return their feedback, which the caller words. A reply is answered in the chat at once: `language` is
the language of its writer. Sentences about an action are in the action's own language.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeAlias

from channels import Person
from gateway.pending import transitions
from gateway.pending.actions import ConversationActions
from gateway.pending.bare_reply import BareReply
from gateway.pending.feedback import PressFeedback
from gateway.pending.index import IndexEntry
from gateway.pending.prompt import code_only, outcome_key
from gateway.pending.prompting import ask_for_code, ask_which, say_feedback
from gateway.pending.reading import Answer
from gateway.pending.settling import close, close_if_drifted, expire
from gateway.pending.tokens import token_sha256
from gateway.pending.words import Intent
from gateway.tools.pending_action import PendingAction

__all__ = ["Reads", "code", "decide", "in_group", "press", "reply", "withdraw", "word"]

Reads: TypeAlias = Callable[[str | None, str], Answer]
"""Return the answer that a message gives to a question of this verb, asked in this language."""

_LAUNCH_GRACE = timedelta(seconds=5)
"""The time that a launch under way has to commit before the approval is closed as too old."""


def press(
    actions: ConversationActions, action_id: str, token: str, person: Person | None, at: datetime
) -> PressFeedback:
    """Apply the press of a button, and return the feedback for the presser."""
    action = actions.get(action_id)
    known = action.tokens if action is not None else ()
    intent = next((token_of.intent for token_of in known if token_of.sha256 == token_sha256(token)), None)
    if action is None or intent is None:
        return PressFeedback(key="unknown_button")
    if intent == "again":
        return _ask_again(actions, action, person, at)
    if not _eligible(actions, action, intent, person, at):
        return PressFeedback(key="not_yours")
    actions.note_decided(person, at)
    return _decide(actions, action, intent, person, at)


def _ask_again(
    actions: ConversationActions, action: PendingAction, person: Person | None, at: datetime
) -> PressFeedback:
    """Have an ended action asked anew. Only its requester may do that."""
    if person is None or person.is_bot or str(person) != action.requester:
        actions.refused = True
        actions.put(action, "not_allowed", str(person) if person is not None else None, at)
        return PressFeedback(key="not_yours")
    actions.note_decided(person, at)
    actions.changes.again.append(action)
    return PressFeedback(key="one_moment", told=True)


def code(
    actions: ConversationActions,
    written: str,
    reads: Reads,
    person: Person | None,
    at: datetime,
    language: str,
    *,
    remark: str = "",
) -> bool:
    """Apply a message of a word and a code. Returns False if it answers no action of this conversation.

    `remark` holds the person's words beside a no.
    """
    entry = actions.index.by_code(written)
    return entry is not None and _answered(actions, [entry], reads, person, at, language, by_code=True, remark=remark)


def reply(
    actions: ConversationActions,
    message_id: str,
    reads: Reads,
    person: Person | None,
    at: datetime,
    language: str,
    *,
    in_thread: bool = False,
) -> bool:
    """Apply a yes or no in reply to a prompt. Returns False if that message asked about no action.

    `in_thread`: it stands in the thread beneath the prompt, where another question may have been asked since. Only a no
    counts there; a yes may still count as a bare reply.
    """
    entries = actions.index.by_prompt(message_id)
    if len(entries) > 1:
        return _which(actions, entries, person, language)
    if in_thread and any(entry in actions.index.open for entry in entries):
        action = actions.get(entries[0].action_id)
        if action is None or reads(action.verb, action.language) != "cancel":
            return False
    return bool(entries) and _answered(actions, entries, reads, person, at, language)


def word(actions: ConversationActions, reads: Reads, person: Person, said: BareReply, language: str) -> bool:
    """Apply a bare reply, in a one-to-one chat. Returns False if it is an ordinary message here."""
    actions.check_all_are_known()
    mine = actions.open_for(str(person))
    if not mine:
        return _late_word(actions, reads, person, said, language)
    if len(mine) > 1:
        return _which(actions, actions.index.open, person, language)
    action, intent = mine[0], reads(mine[0].verb, mine[0].language)
    if intent != "unclear" and (said.decides(intent, action, person) or transitions.expired(action, said.at)):
        say_feedback(actions, action, _decide(actions, action, intent, person, said.at), language)
    else:
        ask_for_code(actions, action)
    return True


def in_group(actions: ConversationActions, person: Person, language: str) -> bool:
    """Answer a bare reply in a group, where it decides no action. Only a person who may answer gets a reply.

    Returns False if no action is open.
    """
    mine = actions.open_for(str(person))
    if len(mine) > 1:
        return _which(actions, actions.index.open, person, language)
    if mine:
        ask_for_code(actions, mine[0])
    return bool(actions.open)


def decide(actions: ConversationActions, action_id: str, intent: Intent, person: Person, at: datetime) -> PressFeedback:
    """Apply the decision of a trusted caller, which names its action, and return the feedback.

    Raises PermissionError for a person that may not decide it, and KeyError for an action that is not here.
    """
    action = actions.by_id[action_id]
    if not _eligible(actions, action, intent, person, at):
        raise PermissionError(str(person))
    return _decide(actions, action, intent, person, at, by_code=True)


def withdraw(
    actions: ConversationActions,
    person: str | None,
    at: datetime,
    *,
    action_id: str | None = None,
    by: str | None = None,
) -> list[PendingAction]:
    """Close actions before their launch, and return them: all of a requester (a stop, an opt-out), or one by hand.

    `by` is the name of the operator. Only with it the person is told here, because a stop has an answer of its own.
    """
    withdrawn = [
        action
        for action in actions.by_id.values()
        if transitions.may_close(action)
        and (action.requester == person if action_id is None else action.pending_action_id == action_id)
    ]
    for action in withdrawn:
        close(actions, action, "withdrawn", at, by=by, tell="cancelled" if by else None)
    return withdrawn


def _eligible(
    actions: ConversationActions, action: PendingAction, intent: Intent, person: Person | None, at: datetime
) -> bool:
    """Return True if this person may give this answer; otherwise add the refusal to the audit."""
    may = transitions.may_refuse if intent == "cancel" else transitions.may_approve
    if person is not None and not person.is_bot and may(action, str(person)):
        return True
    actions.refused = True
    actions.put(action, "not_allowed", str(person) if person is not None else None, at)
    return False


def _decide(
    actions: ConversationActions,
    action: PendingAction,
    intent: Intent,
    person: Person | None,
    at: datetime,
    *,
    by_code: bool = False,
    remark: str = "",
) -> PressFeedback:
    """Apply the decision of an eligible person to this action. `by_code`: the person has given the action's code."""
    if action.settled or (action.state != "pending" and intent == "confirm") or action.state == "running":
        return PressFeedback(key=outcome_key(action, at), language=action.language)
    if close_if_drifted(actions, action, at) or (action.open and transitions.expired(action, at)):
        expire(actions, action.pending_action_id, at)
        ended = actions.by_id[action.pending_action_id]
        return PressFeedback(key=outcome_key(ended, at), language=ended.language, told=True)
    decider, name = (str(person), person.name) if person is not None else ("", None)
    if intent == "cancel":
        action = replace(action, remark=remark or None)
        close(
            actions, action, "refused", at, by=decider, name=name, tell="cancelled_because" if remark else "cancelled"
        )
        return PressFeedback(key="pressed_no", told=True)
    if not by_code and action.open and code_only(action):
        ask_for_code(actions, action)
        return PressFeedback(key="say_code", values={"code": action.code}, told=True)
    decided = transitions.approve(action, decider, name, at)
    actions.put(decided, "decided" if decided.state == "approved" else "voted", decider, at)
    if decided.state != "approved":
        return PressFeedback(key="pressed_vote", values={"count": len(decided.votes), "need": decided.need})
    actions.changes.no_longer_due(action, "expiry", "undelivered")
    actions.changes.due("unlaunched", action, at + transitions.APPROVED_FOR + _LAUNCH_GRACE)
    actions.changes.approved.append(action.pending_action_id)
    return PressFeedback(key="pressed_ok", told=True)


def _answered(
    actions: ConversationActions,
    entries: Sequence[IndexEntry],
    reads: Reads,
    person: Person | None,
    at: datetime,
    language: str,
    *,
    by_code: bool = False,
    remark: str = "",
) -> bool:
    action = actions.get(entries[0].action_id)
    intent = reads(action.verb, action.language) if action is not None else "unclear"
    if action is None or intent == "unclear":
        return False
    if _eligible(actions, action, intent, person, at):
        actions.note_decided(person, at)
        feedback = _decide(actions, action, intent, person, at, by_code=by_code, remark=remark)
        say_feedback(actions, action, feedback, language)
    return True


def _late_word(actions: ConversationActions, reads: Reads, person: Person, said: BareReply, language: str) -> bool:
    entry = said.meant_of([entry for entry in actions.index.settled if _may_refuse(entry, person)])
    action = actions.get(entry.action_id) if entry is not None else None
    intent = reads(action.verb, action.language) if action is not None else "unclear"
    if action is None or intent == "unclear":
        return False
    say_feedback(actions, action, _decide(actions, action, intent, person, said.at), language)
    return True


def _which(actions: ConversationActions, entries: Sequence[IndexEntry], person: Person | None, language: str) -> bool:
    """Ask which action a reply means, among the ones that this person may answer."""
    named = [actions.get(entry.action_id) for entry in entries if _may_refuse(entry, person)]
    ask_which(actions, [action for action in named if action is not None], language)
    return True


def _may_refuse(entry: IndexEntry, person: Person | None) -> bool:
    return person is not None and (str(person) == entry.requester or str(person) in entry.approvers)
